"""Probes: the parts of a machine, and the cost of its links.

In: this machine, files of other tools, or ranks over MPI. Out: a `Topology` (``detect``) and a `Profile`
(``profile``): alpha and beta of every directed link. Nothing here prints, or knows of schedules.

Read `topology` and `link_costs`, the two records; `detection` with its sources (`sysfs`, `nvml`, `nccl`,
`hwloc`, `smi`, `live`); `paths` and `diff`; `profiling` over `sampling`, `sharing` and `statistics`.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
