from .watching import Watch as Watch, shared_memory as shared_memory
