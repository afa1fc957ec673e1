"""The meaning of the words on the command line: networks, collectives, algorithm files, contenders."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
