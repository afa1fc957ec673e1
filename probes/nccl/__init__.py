"""NCCL's topology files: read into a topology, and written for NCCL_TOPO_FILE."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
