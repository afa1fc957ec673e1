"""MSCCL's XML, the exchange format of GC3: reader, writer, and the limits of its runtimes."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
