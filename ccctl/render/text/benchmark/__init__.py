"""Reports of benchmarks as text: the table of nccl-tests, several side by side, and where the time went."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
