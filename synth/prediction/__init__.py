"""The predicted time of a program on a measured network.

In: a program and a measured network. Out: seconds, by cause. Read ``run_time``, then ``one_host`` (ranks that
copy and add in one memory, in pieces of ``host_transfers``).
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
