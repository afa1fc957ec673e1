"""Reader of hwloc's XML: from a file to a topology."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
