"""AdapCC's synthesis (Sec. IV-D): trees or paths of sub-collectives, as an integer program or a heuristic."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
