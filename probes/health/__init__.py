"""Health of hosts: what a machine says about itself that decides whether it can be accepted.

In: the kernel's files and the driver's answers of one host. Out: its `HostHealth`, the problems of that host
alone, and the ways in which hosts that should be alike differ. Read `model`, then the readers, then the
rules.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
