"""Detection: the topology of this host, of files, or of many hosts laid over each other.

In: what the readers of sysfs, NVML and files found. Out: one `Topology`, with what no source said derived
from tables and what sources disagree on reported.
Read `merge`, `derive`, `conflicts`, `gather`; `active` and `adapcc_probes` ask the hardware itself;
`declared`, `host_edits` and `nic_speeds` correct a topology by a measured profile.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
