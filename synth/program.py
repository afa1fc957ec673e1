"""GC3-EF: the program that each rank executes (GC3 Sec. 4).

Every rank has threadblocks. A threadblock runs its steps in order, sends to at most one peer and
receives from at most one, on one channel. A step may wait for one step of another threadblock of its
rank; ``nop`` steps before it carry further dependencies. A connection (rank, peer, channel) is a FIFO:
the k-th message sent is the k-th received.

| op   | meaning                                  | op   | meaning                                  |
|------|------------------------------------------|------|------------------------------------------|
| s    | send src                                 | rrc  | dst := received + src                    |
| r    | dst := received                          | rrs  | forward received + src                   |
| cpy  | dst := src                               | rcs  | dst := received, forward it              |
| re   | dst := dst + src                         | rrcs | dst := received + src, forward it        |
| nop  | only wait                                |      |                                          |

In rrc, rrs and rrcs, the runtime adds the content of the slot ``src``, not ``dst``, to what is received.

Where switches sum and copy (NVLink SHARP), a rank also has these, with the names of MSCCL++:

| op     | meaning                                                                            |
|--------|------------------------------------------------------------------------------------|
| glre   | dst := the sum of src at all ranks of the group (PTX: ``multimem.ld_reduce``)      |
| gstore | dst at all ranks of the group := src (PTX: ``multimem.st``)                        |
| signal | send a message without data: what happened before is done                          |
| wait   | receive a message without data                                                     |

A glre or gstore finds the same buffer and slot at each rank of its group. It waits for none of them: a signal
from each of the others must come before, and one to each of them after it.

The chunks of a step have no order. A step reads exactly the slots that it writes, or only others: executors
copy tile by tile, so a partial overlap would give different results.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import numpy as np

from probes.base import Bytes, Floats, Indices, Ints, bytes_of, floats, ints, offsets
from synth.collective import Collective

__all__ = [
    "BUFFERS",
    "FIFO_DEPTH",
    "GC3_OPS",
    "GLRE",
    "GSTORE",
    "INPUT",
    "OPS",
    "OUTPUT",
    "READS_SRC",
    "RECEIVES",
    "SCRATCH",
    "SENDS",
    "SIGNAL",
    "WAIT",
    "WRITES_DST",
    "Program",
    "Protocol",
    "in_chunks",
]

Protocol = Literal["Simple", "LL", "LL128"]
GC3_OPS = ("nop", "s", "r", "cpy", "re", "rrc", "rrs", "rcs", "rrcs")
OPS = (*GC3_OPS, "glre", "gstore", "signal", "wait")
GLRE, GSTORE, SIGNAL, WAIT = map(OPS.index, ("glre", "gstore", "signal", "wait"))
SENDS = tuple(op in ("s", "rrs", "rcs", "rrcs", "signal") for op in OPS)
RECEIVES = tuple(op in ("r", "rrc", "rrs", "rcs", "rrcs", "wait") for op in OPS)
READS_SRC = tuple(op in ("s", "cpy", "re", "rrc", "rrs", "rrcs", "glre", "gstore") for op in OPS)
WRITES_DST = tuple(op in ("r", "cpy", "re", "rrc", "rcs", "rrcs", "glre", "gstore") for op in OPS)
_WITHOUT_DATA = tuple(op in ("nop", "signal", "wait") for op in OPS)
BUFFERS = ("i", "o", "s")
INPUT, OUTPUT, SCRATCH = range(3)
# The number of messages that a connection holds unless a runtime sets another one. NCCL's protocol Simple has
# this number: 8 steps, 4 for a message. Some of MSCCL's programs deadlock with 1.
FIFO_DEPTH = 2
# MSCCL's runtimes refuse steps of more chunks, and cut a step into at most as many messages as it has chunks.
_MOST_MESSAGES = 71
# A larger number in a file could make the judge allocate more memory than the machine has.
_MOST_SCRATCH = 1 << 22


@dataclass(frozen=True, eq=False)
class Program:
    """Threadblocks and steps as columns.

    Threadblock t belongs to rank ``tb_rank[t]`` (rows sorted by rank), talks to ``tb_send[t]`` and
    ``tb_recv[t]`` (-1: none) on ``tb_channel[t]``, and runs steps ``tb_start[t] … tb_start[t+1]``. Step
    columns: ``op`` indexes OPS; ``src_buffer``/``dst_buffer`` index BUFFERS and ``src_slot``/ ``dst_slot``
    count chunks in that buffer (-1: unused); ``count`` is in chunks; ``wait_tb`` (the row number of a
    threadblock of the same rank, or -1) and ``wait_step`` (counted within that threadblock) name the step
    that must finish first. The program is valid with separate input and output (``out_of_place``), with
    output and input sharing memory as the collective defines it (``in_place``), or both. ``min_bytes`` and
    ``max_bytes`` limit the sizes for which a runtime should choose it (0: no limit). ``input_chunks`` and
    ``output_chunks`` are the sizes of the buffers if the collective is unknown, as in a file that only says
    "custom"; otherwise they are empty, and the collective gives the sizes. ``source`` and ``line`` (for each
    step) name the statement that made the step, if known. ``turn`` is the position of each step in the order
    of the schedule that was compiled, else empty. If several transfers could take a port at the same moment,
    the simulator gives it to the earliest turn. ``tb_bytes_per_s`` limits the rate of each threadblock on a
    network with queues, so that all end together with the schedule's busiest link or port (empty: no limit).
    ``group`` is the number of each rank's group, whose switch sums and copies (empty: there is none).
    """

    name: str
    collective: Collective
    protocol: Protocol
    scratch_chunks: tuple[int, ...]
    tb_rank: Ints
    tb_send: Ints
    tb_recv: Ints
    tb_channel: Ints
    tb_start: Ints
    op: Bytes
    src_buffer: Bytes
    src_slot: Ints
    dst_buffer: Bytes
    dst_slot: Ints
    count: Ints
    wait_tb: Ints
    wait_step: Ints
    out_of_place: bool = True
    in_place: bool = True
    min_bytes: int = 0
    max_bytes: int = 0
    input_chunks: tuple[int, ...] = ()
    output_chunks: tuple[int, ...] = ()
    source: str = ""
    line: Ints = field(default_factory=lambda: ints([]))
    turn: Ints = field(default_factory=lambda: ints([]))
    tb_bytes_per_s: Floats = field(default_factory=lambda: floats([]))
    group: Ints = field(default_factory=lambda: ints([]))

    @property
    def ranks(self) -> int:
        return self.collective.ranks

    @property
    def steps(self) -> int:
        return len(self.op)

    @property
    def threadblocks(self) -> int:
        return len(self.tb_rank)

    @property
    def channels(self) -> int:
        """The highest channel number, plus one."""
        return int(self.tb_channel.max(initial=-1)) + 1

    @property
    def threadblocks_max(self) -> int:
        """The largest number of threadblocks of any rank."""
        return int(np.bincount(self.tb_rank, minlength=1).max())

    @cached_property
    def tb_of(self) -> Ints:
        """The threadblock of each step."""
        return ints(np.repeat(np.arange(self.threadblocks), np.diff(self.tb_start)))

    @cached_property
    def in_group(self) -> Indices:
        """The steps that sum or copy at all ranks of a group."""
        return np.flatnonzero((self.op == GLRE) | (self.op == GSTORE))

    @property
    def uses_switches(self) -> bool:
        """Whether switches carry out some steps."""
        return len(self.in_group) > 0

    @cached_property
    def messages(self) -> Ints:
        """The number of chunks in each step's message; 0 for a message without data."""
        moves = (np.array(SENDS) | np.array(RECEIVES))[self.op]
        return ints(np.where(moves & ~np.array(_WITHOUT_DATA)[self.op], self.count, 0))

    def members(self, rank: int) -> Indices:
        """Return the ranks of a rank's group."""
        return np.flatnonzero(self.group == self.group[rank])

    def place(self, step: int) -> str:
        """Return the position of a step for people: its rank, threadblock, and number within it."""
        tb = int(self.tb_of[step])
        made = f", {self.source}:{self.line[step]}" if len(self.line) and self.line[step] > 0 else ""
        return f"{self.tb_name(tb)} step {step - self.tb_start[tb]} ({OPS[self.op[step]]}{made})"

    def tb_name(self, tb: int) -> str:
        """Return the rank of a threadblock and its number within that rank."""
        first = int(np.searchsorted(self.tb_rank, self.tb_rank[tb]))
        return f"rank {self.tb_rank[tb]} threadblock {tb - first}"

    def problems(self) -> list[str]:
        """Return every inconsistency between the columns, as ``path: what is wrong``.

        ``synth.check.program`` checks the steps themselves, including slots out of range.
        """
        found = [f"collective.{problem}" for problem in self.collective.problems()]
        found += self._lengths()
        if found:
            return found
        start = self.tb_start
        if start[0] != 0 or start[-1] != self.steps or (np.diff(start) < 0).any():
            return [f"tb_start: expected to rise from 0 to {self.steps}"]
        if (np.diff(self.tb_rank) < 0).any():
            found.append("tb_rank: expected the threadblocks sorted by rank")
        found += _outside("tb_rank", self.tb_rank, 0, self.ranks)
        for name in ("tb_send", "tb_recv"):
            found += _outside(name, getattr(self, name), -1, self.ranks)
        found += _outside("tb_channel", self.tb_channel, 0, 1 << 15)
        found += _outside("op", self.op, 0, len(OPS))
        for name in ("src_buffer", "dst_buffer"):
            found += _outside(name, getattr(self, name), 0, len(BUFFERS))
        for name in ("src_slot", "dst_slot"):
            found += _outside(name, getattr(self, name), -1, 1 << 31)
        found += _outside("count", self.count, 1, 1 << 31)
        known = np.minimum(self.op, len(OPS) - 1)
        moves_nothing = np.flatnonzero(np.array(_WITHOUT_DATA)[known] & (self.count != 1))
        found += [
            f"count[{row}]: expected 1, as a {OPS[known[row]]} moves nothing, found {self.count[row]}"
            for row in moves_nothing[:5]
        ]
        found += self._wrong_groups()
        # dtype=object compares Python's unbounded integers: a file may hold numbers too large for a column.
        for name in ("scratch_chunks", "input_chunks", "output_chunks"):
            found += _outside(name, np.array(getattr(self, name), dtype=object), 0, _MOST_SCRATCH)
        waits = _outside("wait_tb", self.wait_tb, -1, self.threadblocks)
        found += (waits or self._waits()) + self._contradictions()
        return found or self._overlaps()

    def _wrong_groups(self) -> list[str]:
        """Return a finding if a step needs a group of ranks and there is none, or one for the protocol."""
        if not self.uses_switches:
            return []
        found = []
        if not len(self.group):
            step = int(self.in_group[0])
            found.append(f"group: expected {self.ranks} values, op[{step}] is {OPS[self.op[step]]}")
        if self.protocol != "Simple":
            found.append(f"protocol: expected Simple beside steps of a group, found {self.protocol}")
        return found

    def _contradictions(self) -> list[str]:
        """Return contradictions between buffer sizes and the collective, and between the size limits."""
        found = []
        if self.min_bytes < 0 or self.max_bytes < 0 or 0 < self.max_bytes < self.min_bytes:
            found.append(
                f"min_bytes: expected 0 … max_bytes (0: no limit), found {self.min_bytes} … {self.max_bytes}"
            )
        may_share = bool(self.input_chunks) and not self.collective.keeps_apart
        if self.in_place and not self.collective.in_place and not may_share:
            found.append(
                f"in_place: expected false, {self.collective.label} cannot run in place: "
                "input and output slots hold different chunks"
            )
        if not self.input_chunks:
            return found
        # An unknown collective is written as a custom one in which each rank keeps its own input.
        collective = self.collective
        owner = collective.sources.only() if collective.kind == "custom" else ints([-1])
        unknown = (
            not collective.reduces and (owner >= 0).all() and np.array_equal(owner, collective.targets.only())
        )
        if not unknown:
            found.append(
                f"input_chunks: expected none beside collective {self.collective.label}, which says itself "
                "what the buffers hold; only a file whose collective is unknown has sizes of its own"
            )
        elif self.collective.sources.per_rank(self.ranks).tolist() != list(self.input_chunks):
            found.append("input_chunks: expected as many as the collective's chunks on each rank")
        return found

    def _overlaps(self) -> list[str]:
        """Return a finding for each step whose source and destination overlap partly."""
        both = np.array(READS_SRC)[self.op] & np.array(WRITES_DST)[self.op]
        distance = np.abs(self.src_slot.astype(np.int64) - self.dst_slot)
        rows = np.flatnonzero(
            both & (self.src_buffer == self.dst_buffer) & (distance > 0) & (distance < self.count)
        )
        return [f"dst_slot[{row}]: {self.overlap(int(row))}" for row in rows[:5]]

    def overlap(self, step: int) -> str:
        """Return the message for a step whose source and destination overlap partly."""
        count = int(self.count[step])
        source, into = (
            f"{BUFFERS[buffer[step]]}[{slot[step]}:{slot[step] + count}]"
            for buffer, slot in ((self.src_buffer, self.src_slot), (self.dst_buffer, self.dst_slot))
        )
        return (
            f"{self.place(step)} reads {source} and writes {into}, which overlap partly: expected the same "
            "slots or disjoint ones"
        )

    def _lengths(self) -> list[str]:
        steps, blocks = self.steps, self.threadblocks
        expected = {"scratch_chunks": self.ranks, "tb_start": blocks + 1}
        expected |= dict.fromkeys(("tb_send", "tb_recv", "tb_channel"), blocks)
        columns = ("src_buffer", "src_slot", "dst_buffer", "dst_slot", "count", "wait_tb", "wait_step")
        expected |= dict.fromkeys(columns, steps)
        for name in ("input_chunks", "output_chunks"):
            expected |= {name: self.ranks} if self.input_chunks or self.output_chunks else {}
        expected |= {name: steps for name in ("line", "turn") if len(getattr(self, name))}
        expected |= {"group": self.ranks} if len(self.group) else {}
        return [
            f"{name}: expected {length} values, found {len(getattr(self, name))}"
            for name, length in expected.items()
            if len(getattr(self, name)) != length
        ]

    def _waits(self) -> list[str]:
        rows = np.flatnonzero(self.wait_tb >= 0)
        tb, step = self.wait_tb[rows], self.wait_step[rows]
        foreign = self.tb_rank[tb] != self.tb_rank[self.tb_of[rows]]
        absent = (step < 0) | (step >= np.diff(self.tb_start)[tb])
        found = [
            f"wait_tb[{row}]: threadblock {self.wait_tb[row]} is another rank's" for row in rows[foreign][:5]
        ]
        return found + [
            f"wait_step[{row}]: threadblock {self.wait_tb[row]} has no step {self.wait_step[row]}"
            for row in rows[absent][:5]
        ]


def _outside(name: str, column: np.ndarray, low: int, high: int) -> list[str]:
    rows = np.flatnonzero((column < low) | (column >= high))[:5]
    return [f"{name}[{row}]: expected {low} … {high - 1}, found {column[row]}" for row in rows]


def in_chunks(program: Program) -> tuple[Program, Indices]:
    """Return (the program with each message cut into its chunks, the row of each new step).

    A runtime cuts a step that sends or receives into several messages if its chunks do not fit into one. The
    first waits for what the step waits for, and the last is what others wait for.
    """
    moves = (np.array(SENDS) | np.array(RECEIVES))[program.op]
    messages = np.where(moves, np.minimum(program.count, _MOST_MESSAGES), 1)
    behind = offsets(messages)
    row: Indices = np.repeat(np.arange(program.steps), messages)
    number = np.arange(len(row)) - behind[row]
    shift = np.where(moves[row], number, 0)
    waits = (program.wait_tb[row] >= 0) & (number == 0)
    awaited = np.where(waits, program.tb_start[program.wait_tb[row]] + program.wait_step[row], 0)
    start = behind[program.tb_start]
    last = behind[awaited + 1] - 1 - start[program.wait_tb[row]] if len(row) else row

    def shifted(slots: Ints) -> Ints:
        return ints(np.where(slots[row] >= 0, slots[row] + shift, -1))

    def of_row(column: Ints) -> Ints:
        return ints(column[row]) if len(column) else column

    cut = replace(
        program,
        tb_start=ints(start),
        op=bytes_of(program.op[row]),
        src_buffer=bytes_of(program.src_buffer[row]),
        dst_buffer=bytes_of(program.dst_buffer[row]),
        count=ints(np.where(moves[row], 1, program.count[row])),
        wait_tb=ints(np.where(waits, program.wait_tb[row], -1)),
        wait_step=ints(np.where(waits, last, -1)),
        src_slot=shifted(program.src_slot),
        dst_slot=shifted(program.dst_slot),
        line=of_row(program.line),
        turn=of_row(program.turn),
    )
    return cut, row
