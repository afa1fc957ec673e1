"""The log that the interpreter and the wires of one rank write while a program runs."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial

import numpy as np

from exec.mpi import interpreter
from exec.mpi.connections import Connections
from exec.mpi.encode import Tables
from exec.program import CONNECTION_BITS, Connection, KeptRun, RankTrace
from probes.base import Indices, offsets

__all__ = ["RunLog"]

_ADDING = np.array([interpreter.RE, interpreter.RRC, interpreter.RRS, interpreter.RRCS])


class RunLog:
    """The log that the interpreter and the wires of one rank write; it holds one run.

    ``clock`` are the interpreter's four words for reading clocks.
    """

    def __init__(self, tables: Tables, links: Indices, connections: Connections, clock: Indices) -> None:
        self._tables, self._links, self._connections, self._clock = tables, links, connections, clock
        size = len(tables.steps) * connections.tiling.tiles, interpreter.LOG_WORDS
        self._rows = np.zeros(size, dtype=np.int64)

    def open(self, header: Indices) -> None:
        """Point the interpreter to this log."""
        header[interpreter.LOG] = self._rows.ctypes.data

    def begin(self, header: Indices) -> None:
        """Clear the log and start the clock of the next run, on this thread."""
        header[interpreter.LOGGED] = 0
        self._clock[2:] = time.perf_counter_ns(), time.thread_time_ns()
        self._start_ns = int(self._clock[2])

    def end(self) -> None:
        """Record the end of the run, on the same thread."""
        off_ns = time.perf_counter_ns() - time.thread_time_ns() - int(self._clock[2] - self._clock[3])
        self._off_after_ns = max(0, off_ns)

    def kept(self, header: Indices) -> KeptRun:
        """Return a copy of the last run's log, which the next run overwrites."""
        through_ns = {number: times_ns.copy() for number, times_ns in self._connections.through_ns.items()}
        rows = self._rows[: header[interpreter.LOGGED]].copy()
        nbytes = rows.nbytes + sum(times_ns.nbytes for times_ns in through_ns.values())
        return KeptRun(nbytes, partial(self._trace, rows, through_ns, self._start_ns, self._off_after_ns))

    def _trace(
        self, rows: Indices, through_ns: Mapping[int, Indices], start_ns: int, off_after_ns: int
    ) -> RankTrace:
        step, tile, begin_ns, end_ns, off_before_ns, off_ns = rows.T
        steps, ends = self._tables.steps, self._connections
        op = steps[step, interpreter.OP]
        takes = self._messages(steps[step, interpreter.IN], tile, steps[step, interpreter.IN_NUMBER])
        gives = self._messages(steps[step, interpreter.OUT], tile, steps[step, interpreter.OUT_NUMBER])
        moved = self._moved_elements(step, tile) * ends.dtype.itemsize
        reader_step, reader_message = self._readers(step, tile)
        return RankTrace(
            start_ns=start_ns,
            begin_ns=begin_ns,
            end_ns=end_ns,
            off_before_ns=off_before_ns,
            off_ns=off_ns,
            adds=np.isin(op, _ADDING) | (op >= interpreter.OPTIONAL),
            takes=takes,
            there_ns=_passed_ns(takes, through_ns),
            gives=gives,
            left_ns=_passed_ns(gives, through_ns),
            given_bytes=np.where(gives >= 0, moved, 0),
            reader_step=reader_step,
            reader_message=reader_message,
            reader_ns=_passed_ns(reader_message, through_ns),
            off_after_ns=off_after_ns,
            ends={
                number: Connection(
                    *ends.ends[number][:2], ends.wired(number), bool(self._links[row, interpreter.SETTLE])
                )
                for number, row in ends.rows.items()
            },
        )

    def _messages(self, link: Indices, tile: Indices, number: Indices) -> Indices:
        """Return message identifiers from rows of the links table, tiles and numbers; -1: none."""
        if not len(self._links):
            return np.full(len(link), -1, dtype=np.int64)
        # Row i of the table of links belongs to the i-th key of ``connections.rows``.
        connection = np.array(list(self._connections.rows), dtype=np.int64)[link]
        before = tile * self._links[link, interpreter.PER_TILE] + number
        return np.where(link >= 0, (connection << CONNECTION_BITS) + before, -1)

    def _moved_elements(self, step: Indices, tile: Indices) -> Indices:
        """Return the number of elements that each row of the log moved in its tile."""
        steps, tiling = self._tables.steps, self._connections.tiling
        first, end = steps[:, interpreter.PIECE_FIRST], steps[:, interpreter.PIECE_END]
        lengths = self._tables.pieces[:, interpreter.LENGTH]
        found = np.zeros(len(step), dtype=np.int64)
        for number in np.unique(tile).tolist():
            upto = offsets(np.clip(lengths - number * tiling.tile, 0, tiling.tile))
            rows = tile == number
            found[rows] = (upto[end] - upto[first])[step[rows]]
        return found

    def _readers(self, step: Indices, tile: Indices) -> tuple[Indices, Indices]:
        """Return pairs (row, message): the message must be read before the row overwrites its memory."""
        steps, links, waits = self._tables.steps, self._links, self._tables.waits
        found = []
        out = steps[step, interpreter.OUT]
        for row in np.flatnonzero((out >= 0) & (steps[step, interpreter.OUT_SLOT] > 0)).tolist():
            link = int(out[row])
            before = tile[row] * links[link, interpreter.PER_TILE] + steps[step[row], interpreter.OUT_NUMBER]
            if before >= links[link, interpreter.DEPTH]:
                found.append((row, link, 0, before - links[link, interpreter.DEPTH]))
        last = step + steps[step, interpreter.FUSED] - 1
        first, end = steps[step, interpreter.WAIT_FIRST], steps[last, interpreter.WAIT_END]
        for row in np.flatnonzero(end > first).tolist():
            for link, number in waits[first[row] : end[row]].tolist():
                found.append((row, link, tile[row], number))
        rows, link_of, tile_of, number_of = np.array(found, dtype=np.int64).reshape(-1, 4).T
        return rows, self._messages(link_of, tile_of, number_of)


def _passed_ns(messages: Indices, through_ns: Mapping[int, Indices]) -> Indices:
    """Return the time at which each message had passed its wire; 0 for messages that use no wire."""
    found = np.zeros(len(messages), dtype=np.int64)
    for number, times_ns in through_ns.items():
        rows = messages >> CONNECTION_BITS == number
        found[rows] = times_ns[messages[rows] & ((1 << CONNECTION_BITS) - 1)]
    return found
