"""Integer programs: one model for the solvers CBC and HiGHS."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
