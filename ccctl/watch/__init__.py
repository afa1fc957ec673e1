"""One run of ``ccctl watch``, its findings and decisions, and the state folder that it keeps."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
