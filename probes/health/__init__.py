"""Health of hosts: what a machine says about itself that decides whether it can be accepted.

In: the kernel's files and the driver's answers of one host. Out: its `HostHealth`, the problems of that host
alone, and the ways in which hosts that should be alike differ.

Read `model` first. `host` reads one machine, from `settings` and `software` (facts that should be equal),
`nics`, `isolation` (IOMMU, ACS, hypervisor) and `kernel_log`. `rules` judges it, with `port_rules` and
`event_rules`; `xids` has the meaning of each XID. `alike` compares hosts. `task` does this on all hosts.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
