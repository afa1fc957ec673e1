"""Detection: the topology of this host, of files, or of many hosts merged.

In: the results of the readers of sysfs, NVML and files. Out: one `Topology`; missing facts come from tables,
and conflicts between sources are findings. Read `merge`, `derive`, `conflicts`, `gather`; `active` and
`adapcc_probes` measure the hardware itself; `declared`, `host_edits` and `nic_speeds` correct a topology by a
measured profile.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
