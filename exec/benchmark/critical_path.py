"""The critical path of a measured run: what the slowest rank waited for last, back to its start.

It goes back in time from the end of the slowest rank: through the step that ended last, then to what that
step had waited for, the end of another rank's step or a message on its way, and so on. No moment counts
twice, so the parts are the whole time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from exec.benchmark.breakdown import Busy, Part, PartKind, RankTimes, link_name, parts_of
from exec.program import Connection, RankTrace, connection_of
from probes.base import Floats, Indices
from synth.network import Network, fastest_links

__all__ = ["RankRun", "busiest", "critical_path", "on_one_clock", "rank_times", "slowest"]

# The size by which the fastest of parallel links is taken.
_TYPICAL_BYTES = 1 << 20
_S_PER_NS = 1e-9


@dataclass(frozen=True, eq=False)
class RankRun:
    """One rank's run: when its timing began and ended, and its log; nanoseconds."""

    begin_ns: int
    end_ns: int
    trace: RankTrace


class _Cause(NamedTuple):
    """Until when a row waited, and for what: a row of another rank, or a message that had to leave.

    ``over`` are the ends of the wire, where there is one; ``row`` -1: this rank's own row before.
    """

    there_ns: int
    rank: int
    row: int
    over: Connection | None


def on_one_clock(runs: Sequence[RankRun], ahead_ns: Sequence[int]) -> list[RankRun]:
    """Return the same runs by rank 0's clock; ``ahead_ns`` is how far each rank's is ahead of it."""
    return [_moved(run, ahead) if ahead else run for run, ahead in zip(runs, ahead_ns, strict=True)]


def slowest(runs: Sequence[RankRun]) -> int:
    """Return the rank whose run took longest."""
    return int(np.argmax([run.end_ns - run.begin_ns for run in runs]))


def critical_path(runs: Sequence[RankRun], network: Network | None) -> tuple[Part, ...]:
    """Return what the time of the slowest rank's run went to; the parts are all of it.

    ``network`` tells which ports links share, and what they take for bytes: without it, all that a message is
    on its way for is its link's.
    """
    walk = _Walk(runs, network)
    walk.back()
    return parts_of({key: spent_ns * _S_PER_NS for key, spent_ns in walk.spent.items()})


def rank_times(runs: Sequence[RankRun]) -> tuple[RankTimes, ...]:
    """Return what each rank did from when the first one began until it was through itself."""
    walk = _Walk(runs, None)
    first_ns = min(run.trace.start_ns for run in runs)
    return tuple(walk.times(rank, first_ns) for rank in range(len(runs)))


def busiest(runs: Sequence[RankRun], network: Network | None) -> tuple[Busy, ...]:
    """Return what each link between hosts and each of their ports carried, the busiest first."""
    return () if network is None else _Wires(runs, _givers(runs), network).busy(network)


class _Walk:
    """Goes back through the logs of all ranks; ``spent`` are nanoseconds by kind and place."""

    def __init__(self, runs: Sequence[RankRun], network: Network | None) -> None:
        self.runs = runs
        self.spent: defaultdict[tuple[PartKind, str], float] = defaultdict(float)
        self._giver = _givers(runs)
        self._taker = _by_message(runs, [run.trace.takes for run in runs])
        self._readers = [_by_row(run.trace) for run in runs]
        self._wires = _Wires(runs, self._giver, network)
        rank = slowest(runs)
        self._now_ns, self._stop_ns = runs[rank].end_ns, runs[rank].begin_ns

    def back(self) -> None:
        """Spend the time of the slowest rank."""
        rank = slowest(self.runs)
        rank, row = self._from(rank, len(self.runs[rank].trace.begin_ns))
        while row >= 0 and self._now_ns > self._stop_ns:
            trace = self.runs[rank].trace
            kind: PartKind = "add" if trace.adds[row] else "copy"
            self._spend(kind, rank, int(trace.begin_ns[row]), int(trace.off_ns[row]))
            rank, row = self._from(rank, row)
        if self._now_ns > self._stop_ns:
            self._begin(rank)

    def times(self, rank: int, first_ns: int) -> RankTimes:
        """Return what one rank did with its time."""
        run = self.runs[rank]
        trace, rows = run.trace, len(run.trace.begin_ns)
        before_ns = np.concatenate(([trace.start_ns], trace.end_ns))
        until_ns = np.concatenate((trace.begin_ns, [run.end_ns]))
        off_ns = np.concatenate((trace.off_before_ns, [trace.off_after_ns]))
        causes = [self._cause(rank, row) for row in range(rows + 1)]
        there_ns = np.array([cause.there_ns for cause in causes], dtype=np.int64)
        gap_ns = np.maximum(0, until_ns - before_ns)
        waiting_ns = np.clip(there_ns - before_ns, 0, gap_ns)
        idle_ns = np.minimum(off_ns, gap_ns - waiting_ns)
        during_ns = trace.end_ns - trace.begin_ns
        lost_ns = np.minimum(trace.off_ns, during_ns)
        worked_ns = during_ns - lost_ns
        seconds = (
            max(0, trace.start_ns - first_ns),
            waiting_ns.sum(),
            worked_ns[~trace.adds].sum(),
            worked_ns[trace.adds].sum(),
            idle_ns.sum() + lost_ns.sum(),
            (gap_ns - waiting_ns - idle_ns).sum(),
        )
        return RankTimes(rank, *(float(each) * _S_PER_NS for each in seconds))

    def _from(self, rank: int, row: int) -> tuple[int, int]:
        """Spend what lies before a row (one after the last: the end) and where to go on."""
        trace = self.runs[rank].trace
        last = row == len(trace.begin_ns)
        off_ns = trace.off_after_ns if last else int(trace.off_before_ns[row])
        before_ns = int(trace.end_ns[row - 1]) if row else trace.start_ns
        cause = self._cause(rank, row)
        if cause.there_ns <= before_ns:
            self._spend("step", rank, before_ns, off_ns)
            return rank, row - 1
        self._spend("step", rank, cause.there_ns, off_ns)
        if cause.over is None:
            return (rank, row - 1) if cause.row < 0 else (cause.rank, cause.row)
        given_ns = before_ns if cause.row < 0 else int(self.runs[cause.rank].trace.end_ns[cause.row])
        # Nobody took the message in before its receiver began: until then the receiver is late, not the link.
        read_ns = self.runs[cause.over.receiver].trace.start_ns
        self._carry(cause.over, max(given_ns, min(read_ns, cause.there_ns)))
        if read_ns > given_ns:
            return cause.over.receiver, -1
        return (rank, row - 1) if cause.row < 0 else (cause.rank, cause.row)

    def _cause(self, rank: int, row: int) -> _Cause:
        """Return what a row (one after the last: the end) waited for longest."""
        trace = self.runs[rank].trace
        if row == len(trace.begin_ns):
            found = self._settling(trace)
        else:
            found = [self._read(trace, *each) for each in self._readers[rank].get(row, ())]
            if (message := int(trace.takes[row])) in self._giver:
                found.append(self._taken(trace, row, message))
        own = _Cause(trace.start_ns, rank, -1, None)
        return max(found, key=lambda cause: cause.there_ns, default=own)

    def _taken(self, trace: RankTrace, row: int, message: int) -> _Cause:
        sender, given = self._giver[message]
        ends = trace.ends[connection_of(message)]
        if ends.wired:
            return _Cause(int(trace.there_ns[row]), sender, given, ends)
        return _Cause(int(self.runs[sender].trace.end_ns[given]), sender, given, None)

    def _read(self, trace: RankTrace, message: int, left_ns: int) -> _Cause:
        """Return when a message had been read, or had left this rank."""
        ends = trace.ends[connection_of(message)]
        if ends.wired or message not in self._taker:
            return _Cause(left_ns, ends.sender, -1, ends)
        reader, taken = self._taker[message]
        return _Cause(int(self.runs[reader].trace.end_ns[taken]), reader, taken, None)

    def _settling(self, trace: RankTrace) -> list[_Cause]:
        given = np.flatnonzero(trace.gives >= 0).tolist()
        messages = [(int(trace.gives[row]), int(trace.left_ns[row])) for row in given]
        return [
            self._read(trace, message, left_ns)
            for message, left_ns in messages
            if trace.ends[connection_of(message)].settles
        ]

    def _spend(self, kind: PartKind, rank: int, until_ns: int, off_ns: int) -> None:
        """Go back to ``until_ns``; so long of that the rank had no core."""
        passed_ns = self._passed_ns(until_ns)
        without_ns = min(off_ns, passed_ns)
        where = f"rank {rank}"
        self.spent["core", where] += without_ns
        self.spent[kind, where] += passed_ns - without_ns

    def _carry(self, over: Connection, until_ns: int) -> None:
        """Go back to ``until_ns``, since when a message had been on its way."""
        here_ns = self._now_ns
        passed_ns = self._passed_ns(until_ns)
        if not passed_ns:
            return
        port, shared_ns = self._wires.shared_ns(over, here_ns - passed_ns, here_ns)
        if shared_ns:
            self.spent["port", port] += shared_ns
        self.spent["link", link_name(over.sender, over.receiver)] += passed_ns - shared_ns

    def _begin(self, rank: int) -> None:
        """Spend what lies before the first step: what each rank takes to begin, and how late this one was."""
        left_ns = self._now_ns - self._stop_ns
        least_ns = max(0, min(run.trace.start_ns - run.begin_ns for run in self.runs))
        self.spent["rest", "before the first step"] += min(left_ns, least_ns)
        self.spent["late", f"rank {rank}"] += max(0, left_ns - least_ns)

    def _passed_ns(self, until_ns: int) -> int:
        now_ns, self._now_ns = self._now_ns, max(self._stop_ns, min(self._now_ns, until_ns))
        return now_ns - self._now_ns


class _Wires:
    """What came over each wire, when; and what links and ports take for it."""

    def __init__(
        self, runs: Sequence[RankRun], giver: dict[int, tuple[int, int]], network: Network | None
    ) -> None:
        self._network = network
        self._rows = fastest_links(network, _TYPICAL_BYTES) if network is not None else {}
        came: defaultdict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
        for run in runs:
            trace = run.trace
            for row in np.flatnonzero(trace.there_ns).tolist():
                message = int(trace.takes[row])
                ends = trace.ends[connection_of(message)]
                sender, given = giver[message]
                size = int(runs[sender].trace.given_bytes[given])
                came[ends.sender, ends.receiver].append((int(trace.there_ns[row]), size))
        self._came: dict[tuple[int, int], tuple[Indices, Floats]] = {}
        for pair, found in came.items():
            times_ns, sizes = np.array(sorted(found), dtype=np.int64).T
            self._came[pair] = times_ns, np.concatenate(([0.0], np.cumsum(sizes)))

    def shared_ns(self, over: Connection, from_ns: int, to_ns: int) -> tuple[str, float]:
        """Return (a port of the link, how long others used it meanwhile).

        Of what the link alone does not take.
        """
        row = self._rows.get((over.sender, over.receiver))
        if self._network is None or row is None:
            return "", 0.0
        network = self._network
        own_ns = self._taken_ns((over.sender, over.receiver), from_ns, to_ns)
        alone_ns = own_ns + float(network.alpha_s[row]) / _S_PER_NS
        best = "", 0.0
        start, users = network.port_links
        for port in network.ports_of(row).tolist():
            others = users[start[port] : start[port + 1]]
            pairs = {(int(network.src[one]), int(network.dst[one])) for one in others.tolist()}
            used_ns = sum(
                self._taken_ns(pair, from_ns, to_ns) * self._part(pair, port)
                for pair in pairs - {(over.sender, over.receiver)}
            )
            shared_ns = max(0.0, min(used_ns, to_ns - from_ns - alone_ns))
            if shared_ns > best[1]:
                best = network.ports[port], shared_ns
        return best

    def busy(self, network: Network) -> tuple[Busy, ...]:
        """Return what each link and port carried, and the time that takes."""
        found = []
        ports: defaultdict[int, list[tuple[int, float]]] = defaultdict(list)
        for pair, (_, upto) in self._came.items():
            row = self._rows.get(pair)
            if row is None:
                continue
            load = int(upto[-1]), float(upto[-1] * network.beta_s_per_byte[row])
            found.append(Busy("link", link_name(*pair), *load))
            for port in network.ports_of(row).tolist():
                ports[port].append((load[0], load[1] * self._part(pair, port)))
        for port, loads in ports.items():
            carried_bytes, needed_s = map(sum, zip(*loads, strict=True))
            found.append(Busy("port", network.ports[port], int(carried_bytes), float(needed_s)))
        return tuple(sorted(found, key=lambda one: (-one.needed_s, one.kind, one.where)))

    def _part(self, pair: tuple[int, int], port: int) -> float:
        """For which part of the time that a link takes for its bytes they keep one of its ports busy."""
        if pair not in self._rows or self._network is None:
            return 0.0
        entries = self._network.port_entries(np.array([self._rows[pair]]))
        return float(self._network.port_part[entries][self._network.link_port[entries] == port].sum())

    def _taken_ns(self, pair: tuple[int, int], from_ns: int, to_ns: int) -> float:
        """Return what a link takes for the bytes that came over it meanwhile."""
        if pair not in self._came or pair not in self._rows or self._network is None:
            return 0.0
        times_ns, upto = self._came[pair]
        first, end = np.searchsorted(times_ns, (from_ns, to_ns), side="right")
        beta = float(self._network.beta_s_per_byte[self._rows[pair]])
        return float(upto[end] - upto[first]) * beta / _S_PER_NS


def _givers(runs: Sequence[RankRun]) -> dict[int, tuple[int, int]]:
    """Return (rank, row) that gives each message."""
    return _by_message(runs, [run.trace.gives for run in runs])


def _by_message(runs: Sequence[RankRun], columns: Sequence[Indices]) -> dict[int, tuple[int, int]]:
    """Return (rank, row) of each message named in a column."""
    return {
        message: (rank, row)
        for rank in range(len(runs))
        for row, message in enumerate(columns[rank].tolist())
        if message >= 0
    }


def _by_row(trace: RankTrace) -> dict[int, list[tuple[int, int]]]:
    """For each row what must have been read before: (message, when it had left)."""
    found: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    columns = trace.reader_step, trace.reader_message, trace.reader_ns
    for row, message, left_ns in zip(*(column.tolist() for column in columns), strict=True):
        found[row].append((message, left_ns))
    return dict(found)


def _moved(run: RankRun, ahead_ns: int) -> RankRun:
    """Return a run by a clock that is so far behind."""
    trace = run.trace
    there_ns, left_ns, reader_ns = (
        np.where(times_ns > 0, times_ns - ahead_ns, 0)
        for times_ns in (trace.there_ns, trace.left_ns, trace.reader_ns)
    )
    moved = replace(
        trace,
        start_ns=trace.start_ns - ahead_ns,
        begin_ns=trace.begin_ns - ahead_ns,
        end_ns=trace.end_ns - ahead_ns,
        there_ns=there_ns,
        left_ns=left_ns,
        reader_ns=reader_ns,
    )
    return RankRun(run.begin_ns - ahead_ns, run.end_ns - ahead_ns, moved)
