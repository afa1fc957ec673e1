"""One run of ``ccctl watch``: its measurements, findings and decisions, and its state folder."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
