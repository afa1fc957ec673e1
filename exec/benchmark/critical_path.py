"""The critical path of a measured run: the waits that delayed the slowest rank, from its end to its start.

The walk goes back in time from the end of the slowest rank. From each step it goes to the event that the step
waited for: the end of another rank's step, or the arrival of a message. No moment counts twice, so the parts
add up to the whole time.
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

# The size at which parallel links are compared.
_TYPICAL_BYTES = 1 << 20
_S_PER_NS = 1e-9


@dataclass(frozen=True, eq=False)
class RankRun:
    """One rank's run: the nanoseconds at which its timing began and ended, and its log."""

    begin_ns: int
    end_ns: int
    trace: RankTrace


class _Cause(NamedTuple):
    """The event that a row of a log waited for, and its time.

    It is the end of another rank's row, or the arrival or departure of a message.

    ``over`` is the connection of the message, if it went over a wire. If ``row`` is -1, the walk goes on to
    the row before, on the same rank.
    """

    there_ns: int
    rank: int
    row: int
    over: Connection | None


def on_one_clock(runs: Sequence[RankRun], ahead_ns: Sequence[int]) -> list[RankRun]:
    """Return the runs in rank 0's time; each rank's clock is ``ahead_ns`` ahead of rank 0's."""
    return [_moved(run, ahead) if ahead else run for run, ahead in zip(runs, ahead_ns, strict=True)]


def slowest(runs: Sequence[RankRun]) -> int:
    """Return the rank whose run took longest."""
    return int(np.argmax([run.end_ns - run.begin_ns for run in runs]))


def critical_path(runs: Sequence[RankRun], network: Network | None) -> tuple[Part, ...]:
    """Return the parts of the slowest rank's time; they add up to it.

    ``network`` gives the ports that links share, and the time that links take for bytes. Without it, the
    whole time of a message on its way counts for its link.
    """
    walk = _Walk(runs, network)
    walk.back()
    return parts_of({key: spent_ns * _S_PER_NS for key, spent_ns in walk.spent.items()})


def rank_times(runs: Sequence[RankRun]) -> tuple[RankTimes, ...]:
    """Return the time of each rank by activity, from the start of the first rank to its own end."""
    walk = _Walk(runs, None)
    first_ns = min(run.trace.start_ns for run in runs)
    return tuple(walk.times(rank, first_ns) for rank in range(len(runs)))


def busiest(runs: Sequence[RankRun], network: Network | None) -> tuple[Busy, ...]:
    """Return the load of each link between hosts and of each port, the busiest first."""
    return () if network is None else _Wires(runs, _givers(runs), network).busy(network)


class _Walk:
    """Walks back through the logs of all ranks; ``spent`` holds nanoseconds by kind and place."""

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
        """Attribute the time of the slowest rank to its parts."""
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
        """Attribute the time before a row, or before the end; return the (rank, row) to go on from."""
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
        # A receiver that had not begun could not take the message in: that time counts as its lateness, not
        # for the link.
        read_ns = self.runs[cause.over.receiver].trace.start_ns
        self._carry(cause.over, max(given_ns, min(read_ns, cause.there_ns)))
        if read_ns > given_ns:
            return cause.over.receiver, -1
        return (rank, row - 1) if cause.row < 0 else (cause.rank, cause.row)

    def _cause(self, rank: int, row: int) -> _Cause:
        """Return what a row waited for longest; the row after the last stands for the end."""
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
        """Go back to ``until_ns``; the rank had no core for ``off_ns`` of that time."""
        passed_ns = self._passed_ns(until_ns)
        without_ns = min(off_ns, passed_ns)
        where = f"rank {rank}"
        self.spent["core", where] += without_ns
        self.spent[kind, where] += passed_ns - without_ns

    def _carry(self, over: Connection, until_ns: int) -> None:
        """Go back to ``until_ns``, when the message left its sender."""
        here_ns = self._now_ns
        passed_ns = self._passed_ns(until_ns)
        if not passed_ns:
            return
        port, shared_ns = self._wires.shared_ns(over, here_ns - passed_ns, here_ns)
        if shared_ns:
            self.spent["port", port] += shared_ns
        self.spent["link", link_name(over.sender, over.receiver)] += passed_ns - shared_ns

    def _begin(self, rank: int) -> None:
        """Attribute the time before the first step to all ranks' start-up and to this rank's lateness."""
        left_ns = self._now_ns - self._stop_ns
        least_ns = max(0, min(run.trace.start_ns - run.begin_ns for run in self.runs))
        self.spent["rest", "before the first step"] += min(left_ns, least_ns)
        self.spent["late", f"rank {rank}"] += max(0, left_ns - least_ns)

    def _passed_ns(self, until_ns: int) -> int:
        now_ns, self._now_ns = self._now_ns, max(self._stop_ns, min(self._now_ns, until_ns))
        return now_ns - self._now_ns


class _Wires:
    """The arrivals at each wire, and the times that links and ports take for the bytes."""

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
        """Return (a port of the link, the time that other links delayed this link there in the interval).

        The link's own time for its bytes does not count.
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
        """Return the bytes of each link and port, and their time at the network's rates."""
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
        """Return the share of a link's transfer time in which it keeps the port busy."""
        if pair not in self._rows or self._network is None:
            return 0.0
        entries = self._network.port_entries(np.array([self._rows[pair]]))
        return float(self._network.port_part[entries][self._network.link_port[entries] == port].sum())

    def _taken_ns(self, pair: tuple[int, int], from_ns: int, to_ns: int) -> float:
        """Return the time that a link takes for the bytes that arrived over it in the interval."""
        if pair not in self._came or pair not in self._rows or self._network is None:
            return 0.0
        times_ns, upto = self._came[pair]
        first, end = np.searchsorted(times_ns, (from_ns, to_ns), side="right")
        beta = float(self._network.beta_s_per_byte[self._rows[pair]])
        return float(upto[end] - upto[first]) * beta / _S_PER_NS


def _givers(runs: Sequence[RankRun]) -> dict[int, tuple[int, int]]:
    """Return the (rank, row) that hands over each message."""
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
    """Return for each row the messages that must have been read before it: (message, when it left)."""
    found: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    columns = trace.reader_step, trace.reader_message, trace.reader_ns
    for row, message, left_ns in zip(*(column.tolist() for column in columns), strict=True):
        found[row].append((message, left_ns))
    return dict(found)


def _moved(run: RankRun, ahead_ns: int) -> RankRun:
    """Return a run with the times of a clock that is ``ahead_ns`` behind the rank's own."""
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
