"""What ``ccctl watch`` keeps between its runs: the state folder, and what one run finds and decides."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
