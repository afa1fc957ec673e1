"""The steps of a program as rows of integers, a row for each chunk moved."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from exec.program import Layout, Move, Span
from probes.base import Indices
from synth.program import INPUT, OUTPUT, READS_SRC, RECEIVES, SENDS, WRITES_DST

__all__ = ["BY_SWITCH", "DOES", "STEP", "Rows"]

# Columns of the table; exec.cuda.kernel.source turns them into an enumeration of the kernel.
STEP = (
    "does",
    "src_buffer",
    "src_start",
    "dst_buffer",
    "dst_start",
    "length",
    "wait_block",
    "wait_step",
    "signals",
    "more",
    "more_count",
    "origin",
)
# Actions of a row, as bits of its column "does".
DOES = {"receives": 1, "accumulates": 2, "reads": 4, "writes": 8, "sends": 16}
# Further bits: through a switch a row reads the sum of all members' memory, or writes into all of it.
BY_SWITCH = {"sums": 32, "spreads": 64}
# The most sources of one row; further reductions into the same place go into the next row.
_MOST_SOURCES = 16
_FEATURES = {"receives": RECEIVES, "reads": READS_SRC, "writes": WRITES_DST, "sends": SENDS}


class Rows:
    """The rows of a program's steps, built threadblock by threadblock."""

    def __init__(self, layout: Layout) -> None:
        self.layout, self.program = layout, layout.program
        self.steps: list[dict[str, int]] = []
        self.more: list[tuple[int, int]] = []
        self.first: list[int] = []
        self.sends, self.receives = ([0] * self.program.threadblocks for _ in range(2))
        self.largest_message: dict[int, int] = {}
        # The last row of each step, numbered within its threadblock.
        self._last = np.zeros(self.program.steps, dtype=np.int64)
        # The steps of the program that the last row implements.
        self._tail: list[int] = []
        self._awaited = np.zeros(self.program.steps, dtype=bool)
        rows = np.flatnonzero(self.program.wait_tb >= 0)
        self._awaited[self.program.tb_start[self.program.wait_tb[rows]] + self.program.wait_step[rows]] = True

    def fill(self, every: list[Move]) -> None:
        start = self.program.tb_start.tolist()
        in_order = sorted(every, key=lambda move: move.step)
        for tb, (begin, end) in enumerate(pairwise(start)):
            self.first.append(len(self.steps))
            for move in in_order[begin:end]:
                self._add(tb, move)
        self._resolve_waits()

    def table(self) -> Indices:
        return np.array([[row[name] for name in STEP] for row in self.steps], dtype=np.int64).reshape(
            -1, len(STEP)
        )

    def _add(self, tb: int, move: Move) -> None:
        pieces = list(self._pieces(move))
        does = self._action_bits(move) if pieces else 0
        for fifo, counts in ((move.to, self.sends), (move.from_, self.receives)):
            if fifo >= 0:
                counts[tb] += len(pieces)
                self.largest_message[fifo] = max(self.largest_message.get(fifo, 1), len(pieces))
        for at, (src, dst, length) in enumerate(pieces or [(None, None, 0)]):
            row = self._row(move, does, src, dst, length)
            if at == 0:
                row["wait_step"] = move.step
            if self._can_join(tb, row):
                self._join(row)
            else:
                self.steps.append(row)
                self._tail = []
        self._tail.append(move.step)
        self.steps[-1]["signals"] |= int(self._awaited[move.step])
        self._last[self._tail] = len(self.steps) - 1 - self.first[tb]

    def _row(self, move: Move, does: int, src: Span | None, dst: Span | None, length: int) -> dict[str, int]:
        return {
            "does": does,
            "src_buffer": src.buffer if src else -1,
            "src_start": src.start if src else 0,
            "dst_buffer": dst.buffer if dst else -1,
            "dst_start": dst.start if dst else 0,
            "length": length,
            "wait_block": -1,
            "wait_step": -1,
            "signals": 0,
            "more": len(self.more),
            "more_count": 0,
            "origin": move.step - int(self.program.tb_start[self.program.tb_of[move.step]]),
        }

    def _can_join(self, tb: int, row: dict[str, int]) -> bool:
        """Return whether a local reduction can become one more source of the previous row.

        Joining makes the previous row also wait for what ``row`` waits for. If another threadblock waits for
        the previous row, this could deadlock; then the rows stay apart.
        """
        local = DOES["accumulates"] | DOES["reads"] | DOES["writes"]
        if len(self.steps) == self.first[tb] or row["does"] != local or not _cannot_overlap(row):
            return False
        before = self.steps[-1]
        alike = all(before[name] == row[name] for name in ("does", "dst_buffer", "dst_start", "length"))
        free = not (self._waits(row) and before["signals"])
        return alike and free and before["more_count"] + 2 < _MOST_SOURCES

    def _join(self, row: dict[str, int]) -> None:
        self.more.append((row["src_buffer"], row["src_start"]))
        self.steps[-1]["more_count"] += 1
        if self._waits(row):
            only = dict.fromkeys(STEP, 0) | {
                name: row[name] for name in ("wait_block", "wait_step", "origin")
            }
            self.steps.insert(-1, only)

    def _waits(self, row: dict[str, int]) -> bool:
        step = row["wait_step"]
        return step >= 0 and bool(self.program.wait_tb[step] >= 0)

    def _action_bits(self, move: Move) -> int:
        code = int(self.program.op[move.step])
        does = sum(DOES[name] for name, has in _FEATURES.items() if has[code])
        does |= {"glre": BY_SWITCH["sums"], "gstore": BY_SWITCH["spreads"]}.get(move.op, 0)
        return does | (DOES["accumulates"] if move.op == "re" else 0)

    def _pieces(self, move: Move) -> Iterator[tuple[Span | None, Span | None, int]]:
        """Yield a piece for each chunk of a step, and an empty one for a message without data."""
        if move.op in ("signal", "wait"):
            yield None, None, 0
        for part in move.parts:
            if not self.layout.even:
                yield part.src, part.dst, part.length
                continue
            each = self.layout.largest
            for at in range(part.length // each):
                yield _shifted(part.src, at, each), _shifted(part.dst, at, each), each

    def _resolve_waits(self) -> None:
        """Set each row's ``wait_block`` and ``wait_step`` to the threadblock and row it awaits."""
        program = self.program
        for row in self.steps:
            step = row["wait_step"]
            awaited = int(program.wait_tb[step]) if step >= 0 else -1
            row["wait_block"], row["wait_step"] = awaited, -1
            if awaited >= 0:
                row["wait_step"] = int(self._last[program.tb_start[awaited] + int(program.wait_step[step])])


def _cannot_overlap(row: dict[str, int]) -> bool:
    """Return whether source and destination cannot overlap; in place, input and output share memory."""
    if row["src_buffer"] == row["dst_buffer"]:
        return row["src_start"] != row["dst_start"]
    return {row["src_buffer"], row["dst_buffer"]} != {INPUT, OUTPUT}


def _shifted(span: Span | None, at: int, each: int) -> Span | None:
    if span is None:
        return None
    return Span(span.buffer, span.slot + at, 1, span.start + at * each, span.start + (at + 1) * each)
