"""The portfolio: it tries many methods on a request, with several options each, and keeps the best.

In: a `Request` (network, collective, size or sizes, failures). Out: a `Synthesis`, the best proven schedule
with its bound.

Read `request` (input) and `synthesis` (output); then `planning`, the entry point, which chooses between
`plain` (`attempts`, `attempt_runner`, `incumbent`), `periodic`, `size_sweep` and `symmetry`.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
