"""GC3's interpreter as one persistent kernel: source, compilation, memory, launch, diagnosis."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
