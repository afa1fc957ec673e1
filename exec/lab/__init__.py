"""The lab: a cluster emulated on this machine. Network namespaces are hosts; the kernel shapes links."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
