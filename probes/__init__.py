"""Probes: discover the parts of a machine and measure the costs of its links.

In: this machine, files of other tools, or ranks over MPI. Out: a `Topology` (``detect``) and a `Profile`
(``profile``): alpha and beta of every directed link. Nothing here prints, or knows of schedules.

Read `topology` and `link_costs`, the two records; `detection` with its sources (`sysfs`, `nvml`, `nccl`,
`hwloc`, `smi`, `live`); `paths` and `diff`; `profiling` over `sampling`, `sharing` and `statistics`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from probes.detection import detect
    from probes.link_costs import Profile
    from probes.profiling import Effort, profile
    from probes.topology import Topology

__all__ = ["Effort", "Profile", "Topology", "detect", "profile"]

# These modules are slow to import, so they are loaded on first use (PEP 562).
_HOME = {
    "Effort": "probes.profiling.options",
    "Profile": "probes.link_costs",
    "Topology": "probes.topology",
    "detect": "probes.detection.detector",
    "profile": "probes.profiling.task",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
