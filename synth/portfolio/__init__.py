"""The portfolio: which methods are tried on a request, with which options, and the best of them.

In: a `Request` (network, collective, size or sizes, failures). Out: a `Synthesis`, the best proven schedule
with its bound.

Read `request` and `synthesis`, what goes in and comes out; `planning`, the door, which chooses between
`plain` (`attempts`, `attempt_runner`, `incumbent`), `plain_or_periodic`, `size_sweep` and `symmetry`.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
