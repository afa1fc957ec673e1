"""The profile artifact: the cost of every link of a cluster.

Alpha is the time in flight (s), beta the time a byte holds the link (s/byte). The minimum of many samples is
the link's capability and feeds the model; the median is its current performance.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np

from probes.base import LEAST_BETA_S_PER_BYTE, Floats, Ints, Mask

__all__ = [
    "FAULT_FLAGS",
    "TRUNK",
    "ConcurrentFlows",
    "FindingKind",
    "HostCopies",
    "HostMemory",
    "Links",
    "Profile",
    "ProfiledRank",
    "SentSegments",
    "SharedPort",
]

# Prefix of the names of trunk ports.
TRUNK = "trunk "

# Flags of faulty links: they are worse than normal links, or than the rate that was paid for. The first four
# are about rates.
FAULT_FLAGS = (
    "outlier",
    "slow_sender",
    "slow_receiver",
    "slow_trunk",
    "late",
    "lossy",
    "flapping",
    "slow_cpu",
)
# The reciprocal of LEAST_BETA_S_PER_BYTE; products of two costs stay finite.
_MOST = 1e30
# A host loses packets if it retransmits at least 10 segments and more than 0.2 % of those it sends. Packets
# that only arrive late cause a smaller share.
_FEWEST_RETRANSMITTED, _LOSSY = 10, 0.002


@dataclass(frozen=True)
class ProfiledRank:
    """One worker: its host, its device ("process", "cuda:0") and the NIC it sends through ("" if unknown).

    ``cores`` is the number of cores that the ranks of its host may use; 0 if unknown.
    """

    rank: int
    host: str
    device: str = "process"
    nic: str = ""
    cores: int = 0


@dataclass(frozen=True, eq=False)
class Links:
    """Directed links as columns of equal length, one row per link.

    ``beta_s_per_byte`` is the cost in the model (capability). ``beta_median_s_per_byte`` and
    ``beta_p90_s_per_byte`` are the median and the 90th percentile of the samples; alpha has the same columns.
    ``beta_low/high_s_per_byte`` is a 95 % bootstrap interval, ``residual`` the relative misfit of alpha +
    beta·bytes, ``samples`` the number of timed messages or trains.

    ``flags`` holds words joined by commas ("" if none): slow_sender, slow_receiver, slow_trunk, outlier
    (slow, between normal parts), late (its latency), lossy, flapping, slow_cpu, asymmetric, nonlinear (a knee
    between sizes), noisy, unsound (no valid fit), retested (measured again, alone), contended (faster alone),
    preempted (an end waited for a core in every latency measurement, so alpha is an upper limit), starved (an
    end waited for a core in every bandwidth measurement, so beta may be an upper limit), inferred (not
    measured: it has the values of a link that the topology declares equal).
    """

    src: Ints
    dst: Ints
    alpha_s: Floats
    alpha_median_s: Floats
    alpha_p90_s: Floats
    beta_s_per_byte: Floats
    beta_median_s_per_byte: Floats
    beta_p90_s_per_byte: Floats
    beta_low_s_per_byte: Floats
    beta_high_s_per_byte: Floats
    residual: Floats
    samples: Ints
    flags: tuple[str, ...]

    def flagged(self, word: str) -> Mask:
        """Return the mask of the rows that have this flag."""
        return np.array([word in words.split(",") for words in self.flags], dtype=np.bool_)


@dataclass(frozen=True)
class SharedPort:
    """A resource that several links share and one transfer uses at a time; ``links`` are row numbers.

    ``s_per_byte`` is the port's own time per byte if that is less than its fastest link's, else 0.
    """

    name: str
    links: tuple[int, ...]
    method: str
    s_per_byte: float = 0.0

    @property
    def trunk_sides(self) -> list[list[str]]:
        """The hosts on each side of a trunk; empty for other ports."""
        if not self.name.startswith(TRUNK):
            return []
        return [side.split(",") for side in self.name.removeprefix(TRUNK).split(" → ")]


@dataclass(frozen=True)
class HostCopies:
    """Copies between the GPU of a rank and pinned memory of its CPU: alpha (s) and beta (s/byte) each way."""

    rank: int
    to_device_alpha_s: float
    to_device_beta_s_per_byte: float
    to_host_alpha_s: float
    to_host_beta_s_per_byte: float


@dataclass(frozen=True)
class HostMemory:
    """Costs of copies and sums in memory for the ranks of a host while all of them work.

    Each cost has one value for each of ``sizes_bytes``, in processor seconds per byte of an operand. The
    sizes rise: the first fit the caches, the last do not. A fetch copies from another rank's private memory.
    A written fetch copies data that the other rank has just written and still has in its caches. The costs of
    both fetches are empty if the system forbids reading another process's memory. ``cores`` counts the cores
    that the ranks may use, 0 if unknown.
    """

    host: str
    sizes_bytes: tuple[int, ...]
    copy_s_per_byte: tuple[float, ...]
    add_s_per_byte: tuple[float, ...]
    fetch_s_per_byte: tuple[float, ...] = ()
    written_fetch_s_per_byte: tuple[float, ...] = ()
    cores: int = 0

    def problems(self) -> Iterator[str]:
        """Yield every problem of the sizes and the costs."""
        sizes = self.sizes_bytes
        if not sizes or sizes[0] < 1 or any(a >= b for a, b in pairwise(sizes)):
            yield "sizes_bytes: expected sizes that rise, from 1 byte on"
        if self.cores < 0:
            yield f"cores: expected at least 0, found {self.cores}"
        fetches = ("fetch_s_per_byte", "written_fetch_s_per_byte")
        for name in ("copy_s_per_byte", "add_s_per_byte", *fetches):
            values = getattr(self, name)
            if name in fetches and not any(getattr(self, other) for other in fetches):
                continue
            if len(values) != len(sizes):
                yield f"{name}: expected {len(sizes)} values, as many as sizes_bytes, found {len(values)}"
            for at, value in enumerate(values):
                if not LEAST_BETA_S_PER_BYTE <= value <= _MOST:
                    yield f"{name}[{at}]: expected a number > 0, at most {_MOST:g}, found {value}"


@dataclass(frozen=True)
class SentSegments:
    """TCP segments that a host sent during the measurement, and how many of them were retransmissions.

    Both numbers include the segments of all programs on the host.
    """

    host: str
    sent: int
    retransmitted: int

    @property
    def share(self) -> float:
        """The share of segments that were retransmissions."""
        return self.retransmitted / self.sent if self.sent else 0.0

    @property
    def lossy(self) -> bool:
        """Whether there are more retransmissions than late packets explain."""
        return self.retransmitted >= _FEWEST_RETRANSMITTED and self.share > _LOSSY

    @property
    def finding(self) -> str:
        """The finding about a host that is ``lossy``."""
        which = f"{self.share:.1%} of its TCP segments ({self.retransmitted} of {self.sent})"
        return f"host {self.host} retransmitted {which}: packets get lost on their way from it"


@dataclass(frozen=True, eq=False)
class ConcurrentFlows:
    """One round in which all flows from ``src`` to ``dst`` were sent at once, ``size_bytes`` each.

    ``seconds`` is the time until each had arrived, and ``waited`` the greatest share of the round in which a
    rank was ready but had no core.
    """

    name: str
    src: Ints
    dst: Ints
    size_bytes: int
    seconds: Floats
    waited: float = 0.0

    def problems(self, ranks: int) -> Iterator[str]:
        """Yield every problem of the columns, and each rank that is not one of ``ranks``."""
        if len({len(self.src), len(self.dst), len(self.seconds)}) > 1:
            yield "expected src, dst and seconds of equal length"
            return
        if self.size_bytes < 1 or not (np.isfinite(self.seconds) & (self.seconds > 0)).all():
            yield "expected at least 1 byte, and seconds > 0"
        if any(((ends < 0) | (ends >= ranks)).any() for ends in (self.src, self.dst)):
            yield f"expected ranks from 0 to {ranks - 1}"


FindingKind = Literal["dead", "slow", "incomplete", "doubtful"]


@dataclass(frozen=True, eq=False)
class Profile:
    """Ranks, their directed links, the ports that links share, and how they were measured.

    ``finding_kinds`` has one word for each of ``findings``: dead (a host could not be reached), slow (a host,
    rank or link is slower than its peers), incomplete (something was not measured) or doubtful. Older
    profiles have none. ``topology`` names the topology that declared hosts and NICs, "" if none was given.
    """

    ranks: tuple[ProfiledRank, ...]
    links: Links
    ports: tuple[SharedPort, ...]
    transport: Literal["mpi", "cuda"]
    library: str
    seconds: float
    rounds: int
    findings: tuple[str, ...] = ()
    host_copies: tuple[HostCopies, ...] = ()
    memory: tuple[HostMemory, ...] = ()
    topology: str = ""
    finding_kinds: tuple[FindingKind, ...] = ()
    segments: tuple[SentSegments, ...] = ()
    concurrent: tuple[ConcurrentFlows, ...] = ()

    @property
    def crowded_hosts(self) -> dict[str, int]:
        """The cores of each host whose ranks are processes that outnumber them."""
        if self.transport != "mpi":
            return {}
        ranks = Counter(entry.host for entry in self.ranks)
        return {entry.host: entry.cores for entry in self.ranks if 0 < entry.cores < ranks[entry.host]}

    def problems(self) -> list[str]:
        """Return every inconsistency between the columns, as ``path: what is wrong``."""
        found = list(self._rank_problems())
        if self.finding_kinds and len(self.finding_kinds) != len(self.findings):
            found.append(
                f"finding_kinds: expected {len(self.findings)} values, as many as findings, "
                f"found {len(self.finding_kinds)}"
            )
        length = len(self.links.src)
        unequal = [
            f"links.{name}: expected {length} values, as many as links.src, found {found_length}"
            for name in Links.__dataclass_fields__
            if (found_length := len(getattr(self.links, name))) != length
        ]
        if unequal:
            return found + unequal
        found += self._link_problems()
        for index, port in enumerate(self.ports):
            place = f"ports[{index}].links"
            found += [f"{place}: there is no link {row}" for row in port.links if not 0 <= row < length]
            if not 0.0 <= port.s_per_byte <= _MOST:
                found.append(f"ports[{index}].s_per_byte: expected a number ≥ 0, found {port.s_per_byte}")
            if len(set(port.links)) != len(port.links):
                found.append(f"{place}: expected each link once")
        return found

    def _rank_problems(self) -> Iterator[str]:
        """Yield the problems of ranks, time, rounds, segments, memory and host copies."""
        if not self.ranks:
            yield "ranks: expected at least 1 rank, found none"
        if [entry.rank for entry in self.ranks] != list(range(len(self.ranks))):
            yield "ranks: expected rank numbers 0, 1, 2, … in order"
        if not 0 <= self.seconds < math.inf:
            yield f"seconds: expected a number ≥ 0, found {self.seconds}"
        if self.rounds < 0:
            yield f"rounds: expected an integer ≥ 0, found {self.rounds}"
        for index, segment in enumerate(self.segments):
            if not 0 <= segment.retransmitted <= segment.sent:
                sent, lost = segment.sent, segment.retransmitted
                yield f"segments[{index}]: expected 0 to {sent} retransmitted, found {lost}"
        for index, flows in enumerate(self.concurrent):
            yield from (f"concurrent[{index}]: {problem}" for problem in flows.problems(len(self.ranks)))
        for index, memory in enumerate(self.memory):
            yield from (f"memory[{index}].{problem}" for problem in memory.problems())
        for index, copies in enumerate(self.host_copies):
            if not 0 <= copies.rank < len(self.ranks):
                yield f"host_copies[{index}].rank: there is no rank {copies.rank}"
            for name in HostCopies.__dataclass_fields__:
                if name != "rank" and (wrong := _wrong(name, getattr(copies, name))):
                    yield f"host_copies[{index}].{name}: {wrong}"

    def _link_problems(self) -> Iterator[str]:
        """Yield the problems of the links' rows; the columns must have equal length."""
        columns = self.links
        if not len(columns.src):
            yield "links.src: expected at least 1 link, found none"
        first: dict[tuple[int, int], int] = {}
        for row, (src, dst) in enumerate(zip(columns.src.tolist(), columns.dst.tolist(), strict=True)):
            ends = {"src": src, "dst": dst}
            lost = [name for name, rank in ends.items() if not 0 <= rank < len(self.ranks)]
            yield from (f"links.{name}[{row}]: there is no rank {ends[name]}" for name in lost)
            if not lost and src == dst:
                yield f"links.dst[{row}]: link {row} leads from rank {src} to itself"
            elif not lost and (before := first.setdefault((src, dst), row)) != row:
                yield f"links.dst[{row}]: {src} → {dst} is link {before} already"
        for name in Links.__dataclass_fields__:
            if name not in ("src", "dst", "flags"):
                for row, value in enumerate(getattr(columns, name).tolist()):
                    if wrong := _wrong(name, value):
                        yield f"links.{name}[{row}]: {wrong}"


def _wrong(name: str, value: float) -> str:
    """Return the problem of a value of this name, or ""; costs per byte must be above 0, others may be 0."""
    if "beta" not in name:
        return "" if 0 <= value <= _MOST else f"expected a number ≥ 0, at most {_MOST:g}, found {value}"
    fits = LEAST_BETA_S_PER_BYTE <= value <= _MOST
    return (
        "" if fits else f"expected a number > 0, from {LEAST_BETA_S_PER_BYTE:g} to {_MOST:g}, found {value}"
    )
