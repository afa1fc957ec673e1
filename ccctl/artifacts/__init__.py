"""Artifacts: JSON files of each kind, checked as they are read and written at once or not at all."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
