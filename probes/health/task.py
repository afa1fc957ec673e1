"""Health of every host of a cluster: one rank of each machine reads it, and a tree of hosts merges it."""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from probes.base import CcctlError, Safekeeping, UnavailableError, UsageError, distinct
from probes.health.cpu_limit import read_cpu_limit
from probes.health.environment import default_interface
from probes.health.gpu_load import pcie_load
from probes.health.gpus import read_gpus
from probes.health.groups import HealthGroups, group_of, merged_groups
from probes.health.host import read_host, read_ports
from probes.health.model import HostHealth
from probes.health.nics import regrown
from probes.live import first_ranks, host_key, merged_up_a_tree

__all__ = ["HealthRequest", "health_task"]

# The wait between two readings reports progress in steps of this length, well before a silent rank counts as
# lost. No wait may be longer than a day.
_STEP_S = 0.5
_MOST_SECONDS = 86_400.0


@dataclass(frozen=True)
class HealthRequest:
    """A request for the health of each host: its counters are read twice, ``seconds`` apart.

    In the default of 5 s, a port of 10 Gbit/s can carry four million frames of 1500 bytes. With 0, the
    counters are read once.
    """

    seconds: float = 5.0


def health_task(comm: Any, request: HealthRequest, progress: Safekeeping) -> HealthGroups | None:
    """Read the health of each machine on its first rank; return groups of alike hosts on rank 0, else None.

    Groups are merged up a tree of hosts, so no rank receives the health of all. Another machine of the same
    name gets a number after its name.
    """
    if not 0 <= request.seconds <= _MOST_SECONDS:
        raise UsageError(f"seconds: expected from 0 to {_MOST_SECONDS:g}, found {request.seconds:g}")
    me = (socket.gethostname(), str(host_key()))
    progress.waiting(-1, "finding out which ranks share a host")
    machines = comm.allgather(me)
    firsts = first_ranks(machines)
    rank = comm.Get_rank()
    if firsts[me] != rank:
        return None
    name = distinct(host for host, _ in firsts)[list(firsts).index(me)]
    mine = _read(rank, name, machines.count(me), request, progress)
    progress.waiting(-1, "the health of other hosts")
    return merged_up_a_tree(comm, list(firsts.values()), mine, merged_groups)


def _read(rank: int, host: str, ranks: int, request: HealthRequest, progress: Safekeeping) -> HealthGroups:
    progress.update(0, 1, "reading this host's health")
    try:
        start_s = time.monotonic()
        health = _with_gpus(read_host(host))
        if request.seconds:
            _wait(start_s + request.seconds, start_s, progress)
            later = read_ports(host)
            nics = regrown(health.nics, later, time.monotonic() - start_s)
            health = replace(health, nics=nics)
        if (limit := read_cpu_limit(Path("/"))) is not None:
            health = replace(health, cpu_limit=replace(limit, ranks=ranks))
        return group_of(rank, health)
    except CcctlError as error:
        return HealthGroups(failed={host: error.message})
    except Exception as error:  # one host's broken library must not lose the facts of all others
        return HealthGroups(failed={host: f"{type(error).__name__}: {error}"})


def _wait(end_s: float, start_s: float, progress: Safekeeping) -> None:
    while (left_s := end_s - time.monotonic()) > 0:
        done = (time.monotonic() - start_s) / (end_s - start_s)
        progress.update(done, 1, "waiting for counters that grow")
        time.sleep(min(left_s, _STEP_S))


def _with_gpus(health: HostHealth) -> HostHealth:
    """Return the health with the host's GPUs and the interface of its default route."""
    import pynvml

    unread = dict(health.unread)
    try:
        load = pcie_load(pynvml)
    except UnavailableError as error:
        load = None
        unread["PCIe under load"] = f"{error.message}; {error.hint}".rstrip("; ")
    gpus, missing = read_gpus(pynvml, load)
    if not gpus:
        unread.pop("PCIe under load", None)
    return replace(health, gpus=gpus, interface=default_interface(), unread=unread | missing)
