"""Text of schedules that list a part of their sends: those of one period, or of one orbit."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
