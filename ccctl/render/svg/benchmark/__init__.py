"""Reports of benchmarks as SVG: curves over size, and where the time of a run went."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
