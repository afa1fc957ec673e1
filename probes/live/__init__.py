"""Live measurements of this machine: memory, affinity, loopback traffic, GPU copies, recordings."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
