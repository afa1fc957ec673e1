"""Detection on every host of a cluster: one rank per host reads it, rank 0 collects all.

A host whose detector fails becomes a finding; the others are kept.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from probes.base import CcctlError, Safekeeping
from probes.detection import merge
from probes.live import first_ranks
from probes.sysfs import text
from probes.topology import Finding, Host, Topology

__all__ = ["DetectRequest", "HostDetection", "answer_task", "answers_to", "look_task", "together"]

_BOOT = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class DetectRequest:
    """A request to the detector of each host; ``seed`` is for the active probes."""

    active: bool = False
    seed: int = 0


@dataclass(frozen=True)
class HostDetection:
    """The result or failure of one machine's detector; ``machine`` distinguishes machines of equal name."""

    host: str
    machine: str
    topology: Topology | None
    failure: str = ""


def answer_task(comm: Any, request: None, progress: Safekeeping) -> None:
    """Do nothing: a host that runs this is reachable."""


def look_task(comm: Any, request: DetectRequest, progress: Safekeeping) -> list[HostDetection] | None:
    """Detect each machine once, on the first of its ranks; return all results on rank 0, else None.

    Each result is also handed over as soon as it is ready, so that a lost host does not lose the others'.
    """
    me = (socket.gethostname(), text(_BOOT))
    progress.waiting(-1, "finding out which ranks share a host")
    mine = None
    if first_ranks(comm.allgather(me))[me] == comm.Get_rank():
        progress.update(0, 1, "looking at this host")
        mine = _look(*me, request)
        progress.partial(mine)
    progress.waiting(-1, "every host's detector")
    gathered: list[HostDetection | None] | None = comm.gather(mine)
    return None if gathered is None else [one for one in gathered if one is not None]


def together(looks: Sequence[HostDetection], missing: Mapping[str, str]) -> Topology:
    """Return all hosts as one topology; ``missing`` maps hosts without a result to the reason."""
    machines = {(look.host, look.machine): look for look in looks}
    found = merge.side_by_side([look.topology for look in machines.values() if look.topology is not None])
    failed = {look.host: look.failure for look in machines.values() if look.topology is None}
    lost = [
        Finding(what, name, reason)
        for what, names in (("host-failed", failed), ("host-missing", missing))
        for name, reason in names.items()
    ]
    return replace(found, findings=(*lost, *found.findings))


def answers_to(name: str, host: Host, addresses: Sequence[str] = ()) -> bool:
    """Return whether ``name``, with these addresses, means this host."""
    own = {address for nic in host.nics for address in nic.addresses}
    short = name.partition(".")[0] == host.name.partition(".")[0] and not name[:1].isdigit()
    return name == host.name or short or bool(own & {name, *addresses})


def _look(name: str, machine: str, request: DetectRequest) -> HostDetection:
    try:
        found = merge.live(name)
        if request.active:
            from probes.detection.active import probed

            found = probed(found, request.seed)
        return HostDetection(name, machine, found)
    except CcctlError as error:
        return HostDetection(name, machine, None, error.message)
    except Exception as error:  # one host's broken library must not lose the facts of all others
        return HostDetection(name, machine, None, f"{type(error).__name__}: {error}")
