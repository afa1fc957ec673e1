"""The lab: hosts as network namespaces of this machine, their links shaped by the kernel."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
