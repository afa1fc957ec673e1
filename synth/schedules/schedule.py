"""A schedule: a table of sends in the order they start.

Only the order is stored. ``synth.simulation.schedule`` derives the times by replaying the table on a network,
where each send starts as soon as its chunk, its link and its ports allow. So a file cannot contradict itself,
and the same schedule can be timed on another profile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import ClassVar

import numpy as np

from probes.base import Bytes, Floats, Ints, ints
from synth.collective import Collective
from synth.network import Network
from synth.schedules.protocol import RIGHT, Obligation, Workload

__all__ = ["COPY", "REDUCE", "Bound", "Outcome", "Race", "Raced", "Schedule", "Timing", "claims"]

# 1 PiB, as for the sizes that users write (MOST_BYTES of probes.base.units).
MOST_CHUNK_BYTES = 1 << 50
# Values of ``Schedule.op``.
COPY = 0
REDUCE = 1
# Rounding and tolerances of solvers may put a time below a proven bound by this fraction.
_ROUNDING = 1e-4
# A broken file may have a problem in each operation; the first ones show what is wrong.
_MOST_FINDINGS = 5


@dataclass(frozen=True)
class Bound:
    """A proven lower bound on the time of a collective; ``detail`` is its bottleneck: "ingress of rank 3"."""

    name: str
    time_s: float
    detail: str = ""

    @property
    def told(self) -> str:
        """The name and the detail."""
        return f"{self.name}: {self.detail}" if self.detail else self.name


@dataclass(frozen=True)
class Outcome:
    """The quality of a schedule: simulated time, every proven bound, the solver's status.

    ``gap`` is the relative optimality gap of its method's integer programs: 0 if solved to optimality, None
    if there were none.
    """

    time_s: float
    bounds: tuple[Bound, ...]
    status: str = "heuristic"
    gap: float | None = None

    @property
    def binding(self) -> Bound:
        """The largest bound."""
        return max(self.bounds, key=lambda bound: bound.time_s)

    @property
    def percent_of_optimal(self) -> float:
        """100 · bound / time; 100 means proven optimal."""
        return 100.0 * min(1.0, self.binding.time_s / self.time_s) if self.time_s else 100.0

    def problems(self) -> list[str]:
        """Return a finding for each time that is no finite number ≥ 0, and for each bound above the time."""
        found = claims("time_s", self.time_s, float("inf"))
        for at, bound in enumerate(self.bounds):
            found += claims(f"bounds[{at}].time_s", bound.time_s, self.time_s)
        return found


def claims(name: str, time_s: float, most_s: float) -> list[str]:
    """Return a finding if a file's time is no finite number ≥ 0 or exceeds ``most_s``; else an empty list."""
    if 0.0 <= time_s < float("inf") and not time_s > most_s * (1 + _ROUNDING):
        return []
    most = f" and at most the time, {most_s}" if most_s < float("inf") else ""
    return [f"{name}: expected a number ≥ 0{most}, found {time_s}"]


@dataclass(frozen=True)
class Raced:
    """One schedule of a race: its measured seconds (median and quartiles) and its predicted seconds.

    An entry may be a library's own collective: ``method`` then names it, and chunks, sends and prediction are
    None.
    """

    method: str
    chunks: int | None
    sends: int | None
    predicted_s: float | None
    time_s: float
    low_s: float
    high_s: float


@dataclass(frozen=True)
class Race:
    """Schedules that ran in turn with real data; the first schedule of ``entries`` was kept.

    An iteration runs all entries. They are sorted by the median of their share in its time, so their medians
    in seconds may be in another order. The winner of the size before is favoured a little. The seconds of an
    iteration are the slowest rank's. ``hosts`` and ``library`` (MPI's) say where the race ran.
    """

    size_bytes: int
    hosts: tuple[str, ...]
    library: str
    iterations: int
    entries: tuple[Raced, ...]

    def problems(self) -> list[str]:
        """Return a finding for each time that cannot have been measured."""
        found = [] if self.entries else ["entries: expected at least 1, found none"]
        for at, entry in enumerate(self.entries):
            for name in ("predicted_s", "time_s", "low_s", "high_s"):
                if (value := getattr(entry, name)) is not None:
                    found += claims(f"entries[{at}].{name}", value, float("inf"))
        return found


@dataclass(frozen=True, eq=False)
class Timing:
    """Start and arrival of each send, infinite if its source never holds the chunk, and the total time."""

    start_s: Floats
    arrival_s: Floats
    time_s: float


@dataclass(frozen=True, eq=False)
class Schedule:
    """Sends as columns: ``chunk`` over ``link`` (a row of the network's links), ``op`` COPY or REDUCE.

    A REDUCE adds the source's value to the destination's and leaves the source's slot unchanged; a COPY
    overwrites the destination's slot. ``race`` is the measurement by which the schedule was chosen.

    ``stream`` holds the stream of each send if sends share links and ports by rates (``synth.streams``); it
    is empty if they take turns.

    ``addend`` lets a send carry a part of the sum at its source. Send n carries the sum of
    ``addend[addend_start[n]:addend_start[n + 1]]``: each is an earlier send that brought a partial sum there,
    or -1 for the source's own contribution. An empty range stands for everything brought there earlier in the
    table. So two ranks can exchange their sums at the same time, and then add the received sum to their own.
    If the collective fixes the order of sums, each part is the sum below a node of its tree, ranks add parts
    up in the tree's order, and a part replaces those that it contains.

    ``multimem`` is the number of the switch's operation that a send belongs to, -1 for none; it is empty if
    there are none. The rows of an operation follow each other and happen at once, between ranks of a host,
    which are the same for all operations there: a sum (``multimem.ld_reduce``) is a REDUCE from every other
    rank to the one that reads, a copy (``multimem.st``) a COPY from the one that writes to every other.
    `synth.multimem` has their times.
    """

    network: Network
    collective: Collective
    chunk_bytes: int
    method: str
    seed: int
    chunk: Ints
    link: Ints
    op: Bytes
    outcome: Outcome | None = None
    race: Race | None = None
    stream: Ints = field(default_factory=lambda: ints([]))
    addend_start: Ints = field(default_factory=lambda: ints([]))
    addend: Ints = field(default_factory=lambda: ints([]))
    multimem: Ints = field(default_factory=lambda: ints([]))

    kind: ClassVar[str] = "schedule"
    noun: ClassVar[str] = "schedule"
    is_listed: ClassVar[bool] = True
    is_sized: ClassVar[bool] = True

    @property
    def sends(self) -> int:
        return len(self.chunk)

    def listed_network(self) -> Network:
        return self.network

    @property
    def whole(self) -> Collective:
        return self.collective

    @property
    def busy_s(self) -> Floats:
        """Seconds for which all sends hold each link.

        What an operation of a switch costs the ports of k ranks, k + 1 times its bytes, is shared evenly by
        its k − 1 sends, which have two ports each.
        """
        links = self.network.links
        if not self.uses_switches:
            return np.asarray(np.bincount(self.link, minlength=links) * self.network.hold_s(self.chunk_bytes))
        inside = self.multimem >= 0
        sends = np.bincount(self.multimem[inside])[self.multimem[inside]]
        held_s = self.network.hold_s(self.chunk_bytes)[self.link]
        held_s[inside] = (sends + 2) / (2 * sends) * self.network.multimem_s_per_byte * self.chunk_bytes
        return np.asarray(np.bincount(self.link, held_s, links))

    @property
    def facts(self) -> Mapping[str, float]:
        """Empty: a table of all sends has no numbers that only its kind has."""
        return {}

    def remark(self, seconds: Callable[[float], str]) -> str:
        """Return "": a table lists all sends and implies no others."""
        return ""

    @property
    def proof(self) -> str:
        does = f"{self.collective.label} on {self.collective.ranks_in_words}"
        order = "" if self.collective.sum_order == "any" else ", each sum in the order of the aligned tree"
        return f"{self.sends} sends do {does}: {RIGHT}{order}"

    def obligations(self, timing: Timing | None = None) -> Sequence[Obligation]:
        return [Obligation(self, timing)]

    @property
    def workload(self) -> Workload:
        """The collective, in the chunks of the table."""
        return Workload(self.collective, self.chunk_bytes, fluid=False)

    def of_size(self, size_bytes: int) -> Schedule:
        """Return the same sends, without an outcome, with chunks for ``size_bytes``, rounded up."""
        chunk_bytes = max(1, -(-size_bytes // self.collective.total_bytes(1)))
        return replace(self, chunk_bytes=chunk_bytes, outcome=None, race=None)

    def expanded(self) -> Schedule:
        return self

    @property
    def excerpt(self) -> Schedule | None:
        return self

    def timing(self, excerpt: Timing | None) -> Timing:
        assert excerpt is not None
        return excerpt

    @property
    def exchanges(self) -> bool:
        """Whether some sends carry only a part of the sum at their source."""
        return len(self.addend) > 0

    @property
    def uses_switches(self) -> bool:
        """Whether switches carry out some sends."""
        return len(self.multimem) > 0

    def problems(self) -> list[str]:
        """Return every inconsistency, as ``path: what is wrong``; ``synth.check`` judges feasibility."""
        found = [f"network.{problem}" for problem in self.network.problems()]
        found += [f"collective.{problem}" for problem in self.collective.problems()]
        if self.collective.ranks != self.network.ranks:
            found.append(
                f"collective.ranks: the network has {self.network.ranks}, "
                f"the collective {self.collective.ranks}"
            )
        if not 1 <= self.chunk_bytes <= MOST_CHUNK_BYTES:
            found.append(f"chunk_bytes: expected 1 to {MOST_CHUNK_BYTES}, found {self.chunk_bytes}")
        for name in ("link", "op"):
            if len(getattr(self, name)) != self.sends:
                found.append(f"{name}: expected {self.sends} values, as many as chunk")
        found += [f"outcome.{problem}" for problem in (self.outcome.problems() if self.outcome else ())]
        found += [f"race.{problem}" for problem in (self.race.problems() if self.race else ())]
        limits = (("chunk", self.collective.chunks), ("link", self.network.links), ("op", 2))
        for name, limit in limits:
            column = getattr(self, name)
            bad = ((column < 0) | (column >= limit)).nonzero()[0][:5]
            found += [f"{name}[{row}]: expected 0 … {limit - 1}, found {column[row]}" for row in bad]
        return found or self._stream_problems() or self._wrong_addends() or self._wrong_multimem()

    def _wrong_multimem(self) -> list[str]:
        """Return a finding for each operation that no switch of the network can do."""
        number = self.multimem
        if not len(number):
            return []
        if len(number) != self.sends or len(self.stream) or self.exchanges:
            wanted = f"no values, or {self.sends}, as many as chunk, beside neither streams nor addends"
            return [f"multimem: expected {wanted}, found {len(number)}"]
        if self.network.multimem_s_per_byte == 0:
            return [f"multimem: expected none, as no switch of {self.network.name} sums or copies"]
        runs = np.flatnonzero(np.diff(number, prepend=-1, append=-1)).tolist()
        found, seen, teams = [], set[int](), dict[int, list[int]]()
        for first, end in pairwise(runs):
            one = int(number[first])
            if one < 0:
                continue
            if one in seen:
                found.append(f"multimem[{first}]: operation {one} has other sends before it")
            elif flaw := self._wrong_operation(slice(first, end), teams):
                found.append(f"multimem[{first}]: operation {one} {flaw}")
            seen.add(one)
        low = np.flatnonzero(number < -1)[:5]
        found += [f"multimem[{row}]: expected -1 or more, found {number[row]}" for row in low]
        return found[:_MOST_FINDINGS]

    def _wrong_operation(self, rows: slice, teams: dict[int, list[int]]) -> str:
        """Return what makes the sends ``rows`` no operation of a switch; "" if nothing does.

        ``teams`` has the ranks that the operations before it are between, by host.
        """
        network, link = self.network, self.link[rows]
        if len(set(self.chunk[rows].tolist())) > 1 or len(set(self.op[rows].tolist())) > 1:
            return "has sends of several chunks, or both copies and sums"
        ends = network.src[link], network.dst[link]
        others, one = ends if self.op[rows][0] == REDUCE else ends[::-1]
        if len(set(one.tolist())) > 1:
            return "has several ranks that read or write"
        ranks = sorted([*others.tolist(), int(one[0])])
        host = int(network.host_of[one[0]])
        if (network.host_of[ranks] != host).any() or len(set(ranks)) < len(ranks):
            return "is not between different ranks of one host"
        if teams.setdefault(host, ranks) != ranks:
            return f"is between other ranks than those before it on host {network.hosts[one[0]]}"
        return ""

    def _stream_problems(self) -> list[str]:
        stream = self.stream
        if not len(stream):
            return []
        if len(stream) != self.sends or len(self.link) != self.sends:
            return [f"stream: expected {self.sends} values, as many as chunk, or none"]
        bad = ((stream < 0) | (stream >= self.sends)).nonzero()[0][:5]
        if len(bad):
            return [f"stream[{row}]: expected 0 … {self.sends - 1}, found {stream[row]}" for row in bad]
        link = np.full(self.sends, -1, dtype=np.int64)
        link[stream] = self.link
        apart = (link[stream] != self.link).nonzero()[0][:5]
        return [f"stream[{row}]: stream {stream[row]} is on another link as well" for row in apart]

    def _wrong_addends(self) -> list[str]:
        """Return a finding for each addend that is no earlier reduction of the chunk at the send's source."""
        start, addend = self.addend_start, self.addend
        if not len(start) and not len(addend):
            return []
        rises = len(start) == self.sends + 1 and start[0] == 0 and start[-1] == len(addend)
        if not rises or (np.diff(start) < 0).any():
            return [f"addend_start: expected {self.sends + 1} values that rise from 0 to {len(addend)}"]
        row = np.repeat(np.arange(self.sends), np.diff(start))
        bad = np.flatnonzero((addend < -1) | (addend >= row))
        if len(bad):
            at = bad[0]
            return [f"addend[{at}]: expected -1 … {row[at] - 1}, found {addend[at]}"]
        sent = addend >= 0
        one, other = row[sent], addend[sent]
        fits = (self.op[other] == REDUCE) & (self.chunk[other] == self.chunk[one])
        fits &= self.network.dst[self.link[other]] == self.network.src[self.link[one]]
        fits &= np.asarray(self.collective.reduced, bool)[self.chunk[one]]
        return [
            f"addend[{at}]: send {addend[at]} reduces no part of chunk {self.chunk[row[at]]} at the source "
            f"of send {row[at]}"
            for at in np.flatnonzero(sent)[~fits][:5]
        ]
