"""The nodes of this process's Slurm job, from the environment."""

from __future__ import annotations

import os
import re

from exec.launcher import HostSlots, parse
from probes.base import UsageError

__all__ = ["nodes", "other_nodes"]

# An entry of SLURM_TASKS_PER_NODE, such as 2(x3),1.
_TASKS = re.compile(r"([0-9]+)(?:\(x([0-9]+)\))?")


def nodes() -> tuple[HostSlots, ...]:
    """Return the nodes of the job, with one slot per task; none outside of a job.

    Inside a step whose task count does not cover the job's nodes, each node has one slot.
    """
    try:
        named = parse(os.environ.get("SLURM_JOB_NODELIST", ""))
    except UsageError:
        return ()
    tasks: list[int] = []
    for count, times in _TASKS.findall(os.environ.get("SLURM_TASKS_PER_NODE", "")):
        tasks += [int(count)] * int(times or 1)
    if len(tasks) != len(named) or 0 in tasks:
        tasks = [1] * len(named)
    return tuple(HostSlots(node.host, count) for node, count in zip(named, tasks, strict=True))


def other_nodes() -> str | None:
    """Return `nodes` as a node set, gpu1:2,gpu2:2; None if there is no host but this one."""
    found = nodes()
    if not found or (len(found) == 1 and found[0].is_here):
        return None
    return ",".join(f"{node.host}:{node.slots}" for node in found)
