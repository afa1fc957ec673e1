"""Sampling: how single links are timed, and which pairs of ranks are timed together.

In: a communicator and pairs of ranks. Out: samples (bytes, seconds) of each link. Read `rounds`, `prober`,
`samples`; `latency` and `packet_trains` are the two methods of timing.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
