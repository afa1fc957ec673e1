"""The CPU time that cgroups allow a host's ranks: quotas, CPU sets, and throttled periods."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

from probes.base import cpu_numbers, is_cpu_list, plural, whole
from probes.health.model import CpuLimit, HostHealth, HostProblem, Severity
from probes.sysfs import cgroups, lines, text

__all__ = ["cpu_limit_problems", "read_cpu_limit"]

_CGROUPS = "sys/fs/cgroup"
# A quota holds ranks back only in periods in which they use it up. If these are fewer than a tenth, it costs
# less than the noise of measurements. Fewer than 50 periods (5 s by default) are not judged, because the
# processes may only just have begun.
_LEAST_SHARE, _LEAST_PERIODS = 0.1, 50


def read_cpu_limit(root: Path) -> CpuLimit | None:
    """Return the limit of this process's cgroups on the machine below ``root``; None if there is none."""
    cores: float | None = None
    periods = throttled = 0
    membership = lines(root / "proc/self/cgroup")
    for group, version in cgroups(membership, root / _CGROUPS, "cpu"):
        quota = _quota(group, version)
        if quota is None or (cores is not None and quota >= cores):
            continue
        stat = (line.partition(" ") for line in lines(group / "cpu.stat").splitlines())
        counters = {name: value for name, _, value in stat}
        cores = quota
        periods, throttled = (whole(counters.get(name, "")) or 0 for name in ("nr_periods", "nr_throttled"))
    online = _count(root / "sys/devices/system/cpu/online")
    name = {1: "cpuset.effective_cpus", 2: "cpuset.cpus.effective"}
    sets = [
        _count(group / name[version]) for group, version in cgroups(membership, root / _CGROUPS, "cpuset")
    ]
    least = min((count for count in sets if count), default=online)
    cpus = least if 0 < least < online else None
    return None if cores is None and cpus is None else CpuLimit(cores, cpus, None, online, periods, throttled)


def _count(path: Path) -> int:
    """Return the number of CPUs in a list; 0 if it cannot be read."""
    found = text(path)
    return len(cpu_numbers(found)) if is_cpu_list(found) else 0


def _quota(group: Path, version: int) -> float | None:
    """Return the cores of a cgroup's quota; None without a quota (version 1 writes -1, version 2 "max")."""
    if version == 2:
        quota_us, _, period_us = text(group / "cpu.max").partition(" ")
    else:
        quota_us, period_us = text(group / "cpu.cfs_quota_us"), text(group / "cpu.cfs_period_us")
    quota, period = whole(quota_us), whole(period_us)
    return quota / period if quota and period else None


def cpu_limit_problems(health: HostHealth) -> Iterator[HostProblem]:
    """Yield a fault if the ranks get less than a core each, or a remark if their quota holds them back."""
    limit = health.cpu_limit
    if limit is None:
        return
    most, cpus = (math.inf if one is None else one for one in (limit.cores, limit.cpus))
    cores = min(most, cpus)
    where = f"of {limit.online} CPUs (cpuset)" if cpus < most else "cores (CPU quota)"
    share = limit.throttled / limit.periods if limit.periods >= _LEAST_PERIODS else 0.0
    # Hosts with the same problem are reported as one culprit. The share is rounded to tens of per cent, so
    # that small differences do not separate them.
    held = f"; its processes were held back in about {10 * round(10 * share)} % of the time" if share else ""
    remedy = (
        "raise or remove the limit of the job or container: cpu.max of its cgroup, resources.limits.cpu in "
        "Kubernetes, the CPUs per task in Slurm"
    )
    severity: Severity = "fault"
    if limit.ranks and cores < min(limit.ranks, limit.online or limit.ranks):
        ranks = plural(limit.ranks, "rank")
        found = f"{ranks} may use {cores:.3g} {where}; a core for each rank is normal{held}"
    elif share >= _LEAST_SHARE:
        severity = "remark"
        found = f"the ranks may use {cores:.3g} {where}, which is not enough{held}; never is normal"
    else:
        return
    yield HostProblem(health.host, "CPU limit", "quota", severity, found, remedy)
