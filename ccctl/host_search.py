"""A search for unreachable hosts by halving, while the others are detected.

mpirun starts all hosts or none. So after a failed start, the hosts without a result are tried again in
halves, until each unreachable host is found.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ccctl import console
from ccctl.errors import TimeoutExpired
from ccctl.launching import World, placed, run_ranks, started_by_mpi
from exec.errors import RankFailed
from exec.launcher import fold
from probes.base import CcctlError, UnavailableError
from probes.detection import DetectRequest, HostDetection, answers_to, together
from probes.topology import Topology

__all__ = ["answering", "look_everywhere"]

_LOOK, _ANSWER = "probes.detection.gather:look_task", "probes.detection.gather:answer_task"
# The time limits of the first try and of each later one: a detector takes a second or two, but a hanging
# driver never returns.
_PATIENCE_S = 60.0
_AGAIN_S = 30.0


def look_everywhere(world: World, request: DetectRequest, timeout_s: float | None) -> Topology:
    """Return the topology of all hosts of ``world``, with a finding for each missing host.

    Raises UnavailableError where no host answered.
    """
    where = () if started_by_mpi() else placed(world)[1]
    if not where:
        looks = run_ranks(_LOOK, request, world, label="detect", timeout_s=timeout_s)
        return together(looks, {})
    asked = [entry.host for entry in where]
    search = _Looking(
        _LOOK, request, "detect", time.monotonic() + timeout_s if timeout_s else None, asked=asked
    )
    search.run(asked[: world.ranks] if world.ranks else asked)
    if search.error is not None and not search.looks:
        raise UnavailableError(
            f"none of {fold(search.missing)} answered: {_reason(search.error)}",
            hint="ssh to each must work without a password, and ccctl be installed there at the same place.",
        )
    return together(search.looks, search.missing)


def answering(hosts: Sequence[str], label: str, deadline_s: float | None) -> dict[str, str]:
    """Map each host that cannot start a rank to the reason; ``deadline_s`` is on the monotonic clock."""
    search = _Search(_ANSWER, None, label, deadline_s)
    half = len(hosts) // 2
    search.run(*([hosts[:half], hosts[half:]] if half else [hosts]))
    return search.missing


@dataclass
class _Search:
    """Starts of ``task`` on groups of hosts; ``missing`` maps hosts without a result to the reason."""

    task: str
    request: DetectRequest | None
    label: str
    deadline_s: float | None
    missing: dict[str, str] = field(default_factory=dict)
    error: CcctlError | RankFailed | None = None

    def run(self, *together: Sequence[str]) -> None:
        """Try each group of hosts in ``together``, then those without a result in ever smaller groups."""
        groups, patience_s = [list(hosts) for hosts in together], _PATIENCE_S
        while groups:
            group = groups.pop(0)
            error = self._try(group, self._left_s(patience_s))
            patience_s = _AGAIN_S
            if error is None:
                continue
            self.error = error
            left = [host for host in group if not self.came(host)]
            hung = isinstance(error, TimeoutExpired) and len(left) < len(group)
            if len(group) == 1 or hung or self._left_s(1.0) <= 0:
                self.missing |= dict.fromkeys(left, _reason(error))
            elif len(left) < len(group):
                groups.append(left)
            else:
                half = len(left) // 2
                groups += [left[:half], left[half:]]

    def _try(self, hosts: Sequence[str], timeout_s: float) -> CcctlError | RankFailed | None:
        """Run the task on these hosts; return None, or why some of them did not answer."""
        console.detail(f"{self.label}: trying {len(hosts)} hosts")
        world = World(hosts=",".join(f"{host}:1" for host in hosts))
        try:
            # mpirun's messages about each try would bury the result.
            with console.hushed():
                value = run_ranks(
                    self.task, self.request, world, label=self.label, timeout_s=timeout_s, keep=self.keep
                )
        except (CcctlError, RankFailed) as error:
            return error
        self.finished(value)
        return None

    def keep(self, value: Any) -> None:
        """Take a partial result of a group, which may still fail."""

    def finished(self, value: Any) -> None:
        """Take the result of a group that succeeded."""

    def came(self, host: str) -> bool:
        """Return whether a host gave a result although its group failed."""
        return False

    def _left_s(self, at_most_s: float) -> float:
        return at_most_s if self.deadline_s is None else min(at_most_s, self.deadline_s - time.monotonic())


@dataclass
class _Looking(_Search):
    """A search that collects the detected hosts among those ``asked`` for."""

    asked: Sequence[str] = ()
    looks: list[HostDetection] = field(default_factory=list)

    def keep(self, value: Any) -> None:
        self.looks.append(value)

    def finished(self, value: Any) -> None:
        self.looks += value

    def came(self, host: str) -> bool:
        found = [look.topology.hosts[0] for look in self.looks if look.topology is not None]
        failed = {look.host for look in self.looks if look.topology is None}
        if host in failed or any(answers_to(host, one) for one in found):
            return True
        # Resolve names last, as DNS is slow: only an unmatched result may be a host under another name.
        others = [one for one in found if not any(answers_to(name, one) for name in self.asked)]
        return bool(others) and any(answers_to(host, other, _addresses(host)) for other in others)


def _addresses(host: str) -> list[str]:
    try:
        return [str(entry[4][0]) for entry in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)]
    except OSError:
        return []


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutExpired):
        return "it did not answer in time"
    if isinstance(error, UnavailableError):
        said = error.message.rpartition("; ")[2].rpartition("/")[2]
        return f"mpirun could not start a rank there; -v shows why ({said})"
    return str(error).splitlines()[0]
