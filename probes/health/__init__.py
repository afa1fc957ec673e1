"""Health of hosts: what a machine says about itself that decides whether it can be accepted.

Input: the kernel's files and the driver's answers of one host. Output: the `HostHealth` of that host, the
problems that it shows by itself, and the differences between hosts that should be alike.

Read `model` first. `host` reads one machine, from `settings` and `software` (facts that should be equal),
`nics`, `isolation` (IOMMU, ACS, hypervisor) and `kernel_log`. `rules` judges it, with `port_rules` and
`event_rules`; `xids` has the meaning of each XID. `alike` compares hosts, `groups` puts equal hosts together.
`task` reads all hosts of a cluster.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
