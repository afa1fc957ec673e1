"""Files and folders that are not trusted: bounded reading, XML, ownership, locks."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
