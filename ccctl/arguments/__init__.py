"""What the words of the command line mean: units, networks, collectives, files of algorithms, contenders."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
