"""A report of a job's timed collectives without waiting time, and the ranks waited for.

A profiler times each call's kernel on each rank. A kernel that starts early waits within itself for the ranks
that come later. In an all_reduce and its like no rank can end before all have begun, so the rank that began
last has the shortest kernel of a call. That time is the time of the transfer; the excess of the other kernels
is waiting.
"""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from exec.benchmark import Report, Row
from exec.benchmark.foreign.nccl_rows import row_of_time
from probes.base import DataError
from synth.collective import Kind

__all__ = ["Inspected", "TimedCall", "WaitTime", "of_calls"]

Executor = Literal["nccl-inspector", "flight-recorder"]
# The collectives in which no rank can end before all have begun: each rank needs data of every other rank.
_JOINT = frozenset({"all_reduce", "all_gather", "reduce_scatter", "all_to_all"})


@dataclass(frozen=True)
class TimedCall:
    """One rank's part in one call of a collective: the seconds of its kernel.

    ``source`` is its file, ``host`` is "?" if unknown, ``number`` is the call's number in its communicator,
    ``size_bytes`` is the buffer as nccl-tests counts it.
    """

    source: str
    communicator: str
    ranks: int
    rank: int
    host: str
    kind: Kind
    number: int
    size_bytes: int
    seconds: float


@dataclass(frozen=True)
class WaitTime:
    """Seconds that the first rank waited for the last, median over the calls of one collective and size.

    ``last``: (rank, host, share of the calls in which it began last), most often first.
    """

    collective: Kind
    size_bytes: int
    calls: int
    transfer_s: float
    waited_s: float
    last: tuple[tuple[int, str, float], ...]

    @property
    def share(self) -> float:
        """The share of the longest kernel's time that is waiting."""
        whole_s = self.transfer_s + self.waited_s
        return self.waited_s / whole_s if whole_s else 0.0


@dataclass(frozen=True)
class Inspected:
    """The report of the busiest of the largest communicators, and the waiting in it.

    Times in the report exclude waiting. ``recorded`` is the number of ranks that were recorded, ``others``
    the number of communicators left out.
    """

    report: Report
    waiting: tuple[WaitTime, ...]
    recorded: int
    others: int


@dataclass(frozen=True)
class _Communicator:
    """Hosts by rank; seconds by (collective, size), number of the call and rank."""

    ranks: int
    hosts: dict[int, str]
    times_s: dict[tuple[Kind, int], dict[int, dict[int, float]]]

    @property
    def spent_s(self) -> float:
        return sum(sum(ranks.values()) for calls in self.times_s.values() for ranks in calls.values())


def of_calls(calls: Iterable[TimedCall], executor: Executor = "nccl-inspector") -> Inspected | None:
    """Return the report and the waiting of a job's calls; None without a call of at least two ranks.

    ``executor`` names the recorder in the report. Raises DataError if calls of one communicator differ in
    their number of ranks.
    """
    found: dict[str, _Communicator] = {}
    for call in calls:
        _add(found, call)
    if not found:
        return None
    most = max(one.ranks for one in found.values())
    chosen = max((one for one in found.values() if one.ranks == most), key=lambda one: one.spent_s)
    return Inspected(_report(chosen, executor), tuple(_waits(chosen)), len(chosen.hosts), len(found) - 1)


def _add(found: dict[str, _Communicator], call: TimedCall) -> None:
    if call.ranks < 2:
        return
    own = found.setdefault(
        call.communicator, _Communicator(call.ranks, {}, defaultdict(lambda: defaultdict(dict)))
    )
    if own.ranks != call.ranks:
        raise DataError(
            call.source, [f"communicator {call.communicator} has {own.ranks} ranks, found {call.ranks}"]
        )
    own.hosts[call.rank] = call.host
    own.times_s[call.kind, call.size_bytes][call.number][call.rank] = call.seconds


def _report(one: _Communicator, executor: Executor) -> Report:
    rows = [_row(kind, size, calls, one.ranks) for (kind, size), calls in sorted(one.times_s.items())]
    return Report(
        ranks=one.ranks,
        hosts=tuple(dict.fromkeys(one.hosts[rank] for rank in sorted(one.hosts))),
        executor=executor,
        library="NCCL",
        warmup=0,
        iterations=max(len(calls) for calls in one.times_s.values()),
        rows=tuple(rows),
        average="fastest",
    )


def _row(kind: Kind, size_bytes: int, calls: Mapping[int, Mapping[int, float]], ranks: int) -> Row:
    """Return a row: the median transfer time over the calls recorded by the most ranks."""
    recorded = max(len(times_s) for times_s in calls.values())
    of_call = min if kind in _JOINT else max
    time_s = statistics.median(of_call(one.values()) for one in calls.values() if len(one) == recorded)
    by_rank: dict[int, list[float]] = defaultdict(list)
    for times_s in calls.values():
        for rank, seconds in times_s.items():
            by_rank[rank].append(seconds)
    own_s = tuple(statistics.median(by_rank[rank]) for rank in range(ranks)) if len(by_rank) == ranks else ()
    return row_of_time(kind, size_bytes, time_s, ranks, "uint8", "nccl", own_s)


def _waits(one: _Communicator) -> Iterable[WaitTime]:
    """Yield the waiting in each collective and size; only calls that every rank has recorded count."""
    for (kind, size_bytes), calls in sorted(one.times_s.items()):
        whole = [times_s for times_s in calls.values() if len(times_s) == one.ranks]
        if not whole or kind not in _JOINT:
            continue
        last = Counter(min(times_s, key=lambda rank: times_s[rank]) for times_s in whole)
        yield WaitTime(
            kind,
            size_bytes,
            len(whole),
            statistics.median(min(times_s.values()) for times_s in whole),
            statistics.median(max(times_s.values()) - min(times_s.values()) for times_s in whole),
            tuple((rank, one.hosts[rank], count / len(whole)) for rank, count in last.most_common()),
        )
