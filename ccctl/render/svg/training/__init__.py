"""Plans for training as SVG: models, fusion plans, searches, groups, and runs of training."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
