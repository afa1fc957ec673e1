"""Programs on CUDA devices: GC3's interpreter as one persistent kernel, AdapCC's transmission contexts."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
