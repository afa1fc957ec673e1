"""Compares a report with proven bounds, NCCL's own algorithms and a synthesized schedule.

``judged`` gives one `JudgedRow` for each measured row; its verdict says whether the time is normal on that
network. Bounds hold at the row's own size.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

import numpy as np

from exec.benchmark.report import Report, Row
from exec.benchmark.runner import busbw_factor
from probes.base import UsageError, plural
from synth import Request, synthesize
from synth.bounds import crossing
from synth.collective import KINDS, Kind
from synth.network import Network
from synth.networks import restricted
from synth.portfolio import bounds_of, library_rates
from synth.schedules import Bound

__all__ = [
    "JudgedRow",
    "LibraryTime",
    "Verdict",
    "abnormal",
    "fitted",
    "judged",
    "largest",
    "nics_of_a_host",
    "synthesized_s",
    "with_hosts",
]

Verdict = Literal["normal", "low", "very low", "start-up", "in-network", "impossible"]

# Two thirds of the rate of NCCL's ring count as normal: NVLink's protocol takes 20 % of its line rate, xGMI's
# 25 %, and the healthy machines in docs/explanation/results/normal-bandwidth.md reach more than two thirds.
_NORMAL, _LOW = 2 / 3, 1 / 3
# Seconds that each of the 2(n - 1) steps of a ring takes to begin. A slow row is start-up if its bytes alone
# take less time than all steps take to begin.
_STEP_S = 10e-6
# A measurement contradicts a bound only if it is faster by this factor, because nominal rates are rounded.
_BEYOND = 1.02
# The ports of a NIC in the networks of named machines and topologies.
_NIC_EGRESS = re.compile(r"(\S+) nic\d+ egress")


@dataclass(frozen=True)
class LibraryTime:
    """The time of a row's bytes in one of NCCL's algorithms, and the resource that limits it."""

    algorithm: str
    time_s: float
    binding: str


@dataclass(frozen=True)
class JudgedRow:
    """One row: its time, and what its network allows.

    ``bound`` holds for all schedules that reduce at ranks; ``in_network`` also holds where switches reduce
    (NVLink SHARP, SHARP) or copy. ``libraries`` has the fastest first; it is empty if NCCL has no algorithm
    for the collective.
    """

    row: Row
    ranks: int
    time_s: float
    bound: Bound
    in_network: Bound
    libraries: tuple[LibraryTime, ...]

    @property
    def reached(self) -> float:
        """The bound over the time: 1 is the proven limit."""
        return self.bound.time_s / self.time_s if self.time_s else 0.0

    @property
    def reached_in_network(self) -> float:
        """The bound that also holds where switches reduce, over the time."""
        return self.in_network.time_s / self.time_s if self.time_s else 0.0

    def busbw_gbs(self, time_s: float) -> float:
        """Return nccl-tests' bus bandwidth in GB/s for a row that takes ``time_s``; 0 for no time at all."""
        factor = busbw_factor(self.row.collective, self.ranks)
        return factor * self.row.size_bytes / time_s / 1e9 if time_s else 0.0

    @property
    def verdict(self) -> Verdict:
        """Whether the time is normal.

        *impossible*: no machine with this network is that fast, so the network is another one. *in-network*:
        faster than ranks alone can be, so switches reduce or copy. *start-up*: too small for bandwidth to
        matter. The other verdicts compare the row with NCCL's slowest algorithm (the report does not tell
        which one ran), or with the bound if NCCL has none: *normal* is at least two thirds of that speed,
        *low* at least one third, *very low* less.
        """
        if self.time_s * _BEYOND < self.in_network.time_s:
            return "impossible"
        if self.time_s * _BEYOND < self.bound.time_s:
            return "in-network"
        expected_s = self.libraries[-1].time_s if self.libraries else self.bound.time_s
        if expected_s < 2 * (self.ranks - 1) * _STEP_S and expected_s < _NORMAL * self.time_s:
            return "start-up"
        share = expected_s / self.time_s
        return "normal" if share >= _NORMAL else "low" if share >= _LOW else "very low"


def fitted(network: Network, report: Report) -> Network:
    """Return the network of the report's ranks: all of it, or the first ranks of every host.

    Raises UsageError if they do not fit.
    """
    if network.ranks == report.ranks:
        return network
    names = list(dict.fromkeys(network.hosts))
    each, left = divmod(report.ranks, len(names))
    members = [[rank for rank, host in enumerate(network.hosts) if host == name] for name in names]
    if left or not each or len(names) != len(report.hosts) or any(len(own) < each for own in members):
        raise UsageError(
            f"{network.name} has {plural(network.ranks, 'rank')} on {plural(len(names), 'host')}, the report "
            f"{plural(report.ranks, 'rank')} on {plural(len(report.hosts), 'host')}",
            hint="Name the network that was measured; several hosts of one machine are dgx-a100:2.",
        )
    return restricted(network, np.concatenate([own[:each] for own in members]))[0]


def with_hosts(network: Network, hosts: Sequence[str]) -> Network:
    """Return the network with these names of hosts, in its ports too; unchanged if their number differs."""
    before = list(dict.fromkeys(network.hosts))
    if len(before) != len(hosts):
        return network
    name = dict(zip(before, hosts, strict=True))

    def named(port: str) -> str:
        host, space, rest = port.partition(" ")
        return f"{name[host]} {rest}" if space and host in name else port

    ports = tuple(map(named, network.ports))
    return replace(network, hosts=tuple(name[host] for host in network.hosts), ports=ports)


def nics_of_a_host(network: Network) -> int:
    """Return how many NICs each host of a named machine has, by the names of their ports; 0 if unknown."""
    owners = Counter(found[1] for port in network.ports if (found := _NIC_EGRESS.fullmatch(port)))
    return next(iter(owners.values())) if len(set(owners.values())) == 1 else 0


def judged(
    report: Report, network: Network, progress: Callable[[int, str], object] | None = None
) -> list[JudgedRow]:
    """Return a judgement of each row of a known collective that has a time, in the order of the report.

    ``progress`` is called before each row, with the number of rows done and the name of the next: on a
    hundred ranks the bounds of a row take about a second. Raises UsageError if the network has another number
    of ranks, or cannot carry a collective.
    """
    if network.ranks != report.ranks:
        raise UsageError(f"{network.name} has {network.ranks} ranks, the report {report.ranks}")
    found = []
    for at, row in enumerate(report.rows):
        if progress is not None:
            progress(at, f"{row.collective} of {row.size_bytes} bytes")
        shown = row.shown
        if row.collective not in KINDS or shown is None or not shown.time_s or not row.size_bytes:
            continue
        # All bounds count sums and copies of switches, if the network has any.
        sums = network.multimem_s_per_byte > 0
        bounds = _bounds(network, row.collective, row.size_bytes, max(0, row.root))
        rates = library_rates(network, row.collective, max(0, row.root))
        found.append(
            JudgedRow(
                row=row,
                ranks=report.ranks,
                time_s=shown.time_s,
                bound=_largest(bounds),
                in_network=_largest(bounds if sums else crossing(bounds) or bounds),
                libraries=tuple(
                    LibraryTime(one.algorithm, one.s_per_byte * row.size_bytes, one.binding) for one in rates
                ),
            )
        )
    return found


def largest(rows: Sequence[JudgedRow]) -> list[JudgedRow]:
    """Return the rows of the largest size of each collective, type and operator."""
    most: dict[tuple[str, str, str], int] = {}
    for one in rows:
        most[_group(one)] = max(most.get(_group(one), 0), one.row.size_bytes)
    return [one for one in rows if one.row.size_bytes == most[_group(one)]]


def abnormal(rows: Sequence[JudgedRow]) -> dict[Verdict, list[JudgedRow]]:
    """Return the rows that are impossible, very low or low, by verdict in this order.

    Verdicts without rows are left out.
    """
    verdicts: tuple[Verdict, ...] = ("impossible", "very low", "low")
    found = {verdict: [one for one in rows if one.verdict == verdict] for verdict in verdicts}
    return {verdict: own for verdict, own in found.items() if own}


def synthesized_s(network: Network, row: Row, time_limit_s: float) -> float:
    """Return the seconds of the best schedule found for a row within a time limit, proven by the checker.

    Raises UsageError if no method serves it.
    """
    request = Request(
        network,
        row.collective,
        size_bytes=row.size_bytes,
        root=max(0, row.root),
        time_limit_s=time_limit_s,
        solving=False,
    )
    outcome = synthesize(request).schedule.outcome
    assert outcome is not None
    return outcome.time_s


def _group(one: JudgedRow) -> tuple[str, str, str]:
    return one.row.collective, one.row.dtype, one.row.redop


@lru_cache(maxsize=256)
def _bounds(network: Network, kind: Kind, size_bytes: int, root: int) -> tuple[Bound, ...]:
    """Return every bound at one size; some are not linear in the size."""
    return bounds_of(Request(network, kind, size_bytes=size_bytes, root=root))


def _largest(bounds: Sequence[Bound]) -> Bound:
    return max(bounds, key=lambda bound: bound.time_s)
