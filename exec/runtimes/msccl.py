"""MSCCL's interpreter: the threadblocks of an XML file on real buffers, by the rules of its kernel.

The rules are those of Azure/msccl-executor-nccl c6f6b36 (``msccl_kernel.cu``, ``msccl_parser.cc``,
``msccl_setup.cc``, and NCCL's primitives). RCCL's interpreter came from the same code.

- A call is cut into chunks. All steps run on one tile of every chunk, then on the next tile. A tile is the
  part of a chunk that fits into a connection's buffer as one message.
- A step that other threadblocks wait for sets its threadblock's flag to (tile, step). A wait is over as soon
  as the flag has reached that value.
- A message is cut into slices: two with Simple, one with LL and LL128. A connection has room for 8 steps of
  its buffer; a slice takes two of them with Simple, one with LL and LL128.
- Steps ``nop`` only add a wait to the step after them. Neighbouring ``re`` with one target become one step.
- Small chunks that lie side by side move as one message, as far as they fit into it.

Numbers are 64-bit integers, each for an element of 4 bytes, so that sums are exact.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np

from exec.program import Layout
from exec.runtimes.races import SharedCells, VectorClocks
from exec.runtimes.results import Numbers, RuntimeReport, expected_output
from probes.base import Ints, UsageError, first_of
from synth.program import (
    BUFFERS,
    INPUT,
    OPS,
    OUTPUT,
    READS_SRC,
    RECEIVES,
    SCRATCH,
    SENDS,
    WRITES_DST,
    Program,
)

__all__ = ["ELEMENT_BYTES", "MSCCL_BUFFERS", "ConnectionBuffer", "run_xml"]

# The bytes of a float; each number here stands for one element.
ELEMENT_BYTES = 4
# Eight bytes a number, kept twice for the comparison: 2 GB.
_MOST_NUMBERS = 1 << 27
# NCCL_STEPS of device.h: the steps of a connection's buffer.
_STEPS = 8
# MSCCL_MAX_COUNT - 1 of msccl_struct.h: most chunks that move as one message.
_MOST_CHUNKS_A_MESSAGE = 71
# MSCCL_MAX_REDUCE_FUSION of msccl_struct.h: most reductions of a threadblock that become one step.
_MOST_FUSED = 16
# Elements to which NCCL's Simple rounds the size of a slice (prims_simple.h, genericOp).
_SLICE_UNIT = 16
# Calls of a program, one after the other: the second call finds what the first has left in memory.
_LAUNCHES = 2
# The most findings of a report.
_ENOUGH = 20
# The content of memory that nobody has written.
_POISON = -(1 << 40)
_NOTHING = (-1, -1)
_NOP, _RE, _CPY = map(OPS.index, ("nop", "re", "cpy"))


@dataclass(frozen=True)
class ConnectionBuffer:
    """The buffer of a connection: payload of one message, slices of a message, slices that it holds."""

    message_bytes: int
    slices: int
    room: int

    def shrunk(self, divisor: int) -> ConnectionBuffer:
        """Return a buffer for messages of a fraction of the size, so that short calls have many tiles."""
        return replace(self, message_bytes=max(ELEMENT_BYTES, self.message_bytes // divisor))


# NCCL's default buffers (buffSizes of init.cc, device.h): Simple 4 MiB, of which a message is half; LL 512
# KiB, half of it flags; LL128 4,915,200 bytes, a sixteenth of it flags. LL and LL128 fill one step a message.
MSCCL_BUFFERS = {
    "Simple": ConnectionBuffer(2 << 20, 2, _STEPS // 2),
    "LL": ConnectionBuffer(32 << 10, 1, _STEPS),
    "LL128": ConnectionBuffer(576_000, 1, _STEPS),
}


def run_xml(
    program: Program,
    chunk_elements: int,
    seed: int = 0,
    *,
    in_place: bool | None = None,
    buffer: ConnectionBuffer | None = None,
) -> RuntimeReport:
    """Run calls of a program as MSCCL would, in one order of threadblocks that ``seed`` draws.

    Every chunk has ``chunk_elements`` elements. By default the program runs out of place if it can, or if its
    file does not say what the results must be. ``buffer`` is the protocol's own by default. Each call gets
    new inputs, drawn by ``seed``. Raises UsageError if the program cannot run in place, or needs too much
    memory. O(tiles · steps) actions.
    """
    inside = not (program.out_of_place or program.input_chunks) if in_place is None else in_place
    machine = _Machine(program, chunk_elements, seed, inside, buffer or MSCCL_BUFFERS[program.protocol])
    return machine.run()


@dataclass(frozen=True, slots=True)
class _Transmission:
    """A step as the kernel has it; ``tells`` is the number to which it sets the flag, -1 for none."""

    row: int
    op: int
    sources: tuple[int, ...]
    target: int
    count: int
    waits: tuple[tuple[int, int], ...]
    tells: int


@dataclass(slots=True)
class _Action:
    """One slice of one message, or one local copy; spans are (start, stop) in the rank's memory."""

    transmission: _Transmission
    tile: int
    reads: list[tuple[int, int]]
    write: tuple[int, int] | None
    waits: tuple[tuple[int, tuple[int, int]], ...]
    """The flags that must be set first, as (threadblock, (tile, step))."""
    tells: tuple[int, int] | None

    @property
    def copies_onto_itself(self) -> bool:
        """Whether this is a copy in place: it stores what is there, so others may read it meanwhile."""
        return self.transmission.op == _CPY and self.reads == [self.write]


@dataclass(slots=True)
class _Connection:
    """A FIFO between two ranks on a channel; ``freed`` has the clocks of the slots that are empty again."""

    ends: tuple[int, int, int]
    room: int
    messages: deque[tuple[Numbers, Ints]] = field(default_factory=deque)
    freed: deque[Ints | None] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self.freed.extend([None] * self.room)


@dataclass(slots=True)
class _Threadblock:
    """A threadblock's place in a launch.

    ``flag`` is the last (tile, step) that it has set its flag to. ``told`` maps a value of the flag to (what
    the threadblock knew when it set this value, the number of waiters still to come).
    """

    number: int
    rank: int
    send: _Connection | None
    receive: _Connection | None
    actions: list[_Action] = field(default_factory=list)
    at: int = 0
    flag: tuple[int, int] = _NOTHING
    told: dict[tuple[int, int], tuple[Ints, int]] = field(default_factory=dict)

    def knew_at(self, goal: tuple[int, int]) -> Ints | None:
        """Return what the threadblock knew when its flag reached ``goal``; drop it after the last waiter."""
        key = goal if goal in self.told else min((step for step in self.told if step > goal), default=goal)
        if key not in self.told:
            return None
        known, waiters = self.told.pop(key)
        if waiters > 1 or key != goal:
            self.told[key] = known, waiters - (key == goal)
        return known


class _Memory:
    """A rank's input, output and scratch as one array; in place, input and output share it."""

    def __init__(self, layout: Layout, rank: int, chunk: int, in_place: bool) -> None:
        program = layout.program
        if in_place:
            user, self.input, self.output = layout.in_place(rank)
        else:
            given, wanted = program.input_chunks, program.output_chunks
            inputs = given[rank] * chunk if given else layout.elements(rank, INPUT)
            user = inputs + (wanted[rank] * chunk if given else layout.elements(rank, OUTPUT))
            self.input, self.output = slice(0, inputs), slice(inputs, user)
        self.scratch = slice(user, user + program.scratch_chunks[rank] * chunk)
        self.whole: Numbers = np.full(self.scratch.stop, _POISON, dtype=np.int64)

    def of(self, buffer: int) -> slice:
        return (self.input, self.output, self.scratch)[buffer]


# The event that wakes a threadblock: another's flag, or a message or room in a connection.
_Key = int | tuple[tuple[int, int, int], str]


class _Machine:
    """All ranks: memory, connections, threadblocks, and the clocks that order their accesses."""

    def __init__(
        self, program: Program, chunk: int, seed: int, in_place: bool, buffer: ConnectionBuffer
    ) -> None:
        self.program, self.chunk, self.buffer = program, chunk, buffer
        layout = Layout(program, chunk * program.collective.share)
        numbers = sum(
            sum(layout.elements(rank, kind) for kind in (INPUT, OUTPUT, SCRATCH))
            for rank in range(program.ranks)
        )
        if numbers > _MOST_NUMBERS:
            raise UsageError(
                f"{numbers} elements on {program.ranks} ranks are too many to run", hint="Use a smaller size."
            )
        self.memory = [_Memory(layout, rank, chunk, in_place) for rank in range(program.ranks)]
        self.draw, self.numbers = random.Random(seed), np.random.default_rng(seed)
        self.waiters = self._waiters()
        self.connections: dict[tuple[int, int, int], _Connection] = {}
        self.blocks = [self._threadblock(tb) for tb in range(program.threadblocks)]
        self.first = np.searchsorted(program.tb_rank, np.arange(program.ranks + 1)).tolist()
        # A rank's caller, who reads outputs and writes inputs between launches, is a thread, too.
        self.clocks = VectorClocks(program.threadblocks + program.ranks)
        self.findings = list(self._unpaired())
        self.done = 0
        for block in self.blocks:
            block.actions = list(self._actions(block))
        self.edges = [self._edges(rank) for rank in range(program.ranks)]
        self.cells = [SharedCells(self.clocks) for _ in range(program.ranks)]
        self.inputs: dict[tuple[int, int], Numbers] = {}
        self.outputs: dict[tuple[int, int], Numbers] = {}
        self.left = [0] * program.ranks
        self.launch = [0] * program.ranks
        self.ready: list[_Threadblock] = []
        self.asleep: dict[_Key, list[tuple[_Threadblock, str]]] = {}

    def _threadblock(self, tb: int) -> _Threadblock:
        program = self.program
        rank, channel = int(program.tb_rank[tb]), int(program.tb_channel[tb])
        send, receive = int(program.tb_send[tb]), int(program.tb_recv[tb])
        return _Threadblock(
            tb,
            rank,
            self._connection((rank, send, channel)) if send >= 0 else None,
            self._connection((receive, rank, channel)) if receive >= 0 else None,
        )

    def _unpaired(self) -> Iterator[str]:
        """Yield a finding for each connection that does not have exactly one sender and one receiver."""
        program = self.program
        channels = program.tb_channel.tolist()
        rows = list(zip(program.tb_rank.tolist(), program.tb_send.tolist(), channels, strict=True))
        sends = Counter(row for row in rows if row[1] >= 0)
        rows = list(zip(program.tb_recv.tolist(), program.tb_rank.tolist(), channels, strict=True))
        receives = Counter(row for row in rows if row[0] >= 0)
        for ends in sorted({*sends, *receives}):
            if (sends[ends], receives[ends]) != (1, 1):
                yield (
                    f"rank {ends[0]} to rank {ends[1]} on channel {ends[2]}: {sends[ends]} threadblocks send "
                    f"and {receives[ends]} receive, the runtime connects one with one"
                )

    def _connection(self, ends: tuple[int, int, int]) -> _Connection:
        return self.connections.setdefault(ends, _Connection(ends, self.buffer.room))

    def _transmissions(self, tb: int) -> Iterator[_Transmission]:
        """Yield the steps of a threadblock as MSCCL's parser keeps them."""
        program = self.program
        awaited = self.waiters
        waits: list[tuple[int, int]] = []
        kept: list[_Transmission] = []
        chain_open, fused = False, 0
        for row in range(int(program.tb_start[tb]), int(program.tb_start[tb + 1])):
            op = int(program.op[row])
            wait = (int(program.wait_tb[row]), int(program.wait_step[row]))
            if wait[0] >= 0:
                waits.append(wait)
            if op == _NOP:
                continue
            source = self._start(tb, row, program.src_buffer, program.src_slot) if READS_SRC[op] else -1
            target = self._start(tb, row, program.dst_buffer, program.dst_slot) if WRITES_DST[op] else -1
            count, is_awaited = int(program.count[row]), row in awaited
            if op == _RE and chain_open and wait[0] < 0 and self._one_target(kept[-1].row, row):
                sources = (*kept[-1].sources, source)
                kept[-1] = replace(kept[-1], row=row, sources=sources, count=count, tells=int(is_awaited))
            else:
                sources = (source,) if source >= 0 else ()
                kept.append(_Transmission(row, op, sources, target, count, tuple(waits), int(is_awaited)))
                if waits and wait[0] < 0:
                    self.findings.append(
                        f"{program.place(row)} follows nops that wait, and waits for nothing itself: "
                        "the parser refuses the file"
                    )
                waits = []
            fused += op == _RE
            chain_open = op == _RE and not is_awaited and fused != _MOST_FUSED
            if len(kept[-1].sources) > _MOST_FUSED:
                self.findings.append(
                    f"{program.place(row)}: more than {_MOST_FUSED} reductions become one step"
                )
        # The kernel counts steps itself: one for each wait, and for each reduction that was fused.
        step = 0
        for one in kept:
            step += max(len(one.waits) - 1, 0) + len(one.sources[1:])
            yield replace(one, tells=step if one.tells else -1)
            step += 1

    def _one_target(self, row: int, other: int) -> bool:
        program = self.program
        return all(
            column[row] == column[other]
            for column in (program.dst_buffer, program.dst_slot, program.src_buffer)
        )

    def _waiters(self) -> Counter[int]:
        """Return by row how many steps wait for that step."""
        program = self.program
        waits = program.wait_tb >= 0
        return Counter((program.tb_start[program.wait_tb[waits]] + program.wait_step[waits]).tolist())

    def _start(self, tb: int, row: int, buffers: object, slots: object) -> int:
        """Return where in the rank's memory a step's slot begins; note a slot that the buffer lacks."""
        program = self.program
        buffer = int(buffers[row])  # type: ignore[index] # a column of the program
        slot = int(slots[row])  # type: ignore[index] # a column of the program
        place = self.memory[int(program.tb_rank[tb])].of(buffer)
        start, count = place.start + slot * self.chunk, int(program.count[row])
        if slot < 0 or start + count * self.chunk > place.stop:
            have = (place.stop - place.start) // max(self.chunk, 1)
            self.findings.append(
                f"{program.place(row)} uses {BUFFERS[buffer]}[{slot}:{slot + count}], "
                f"the buffer has {have} chunks"
            )
        return int(start)

    def _actions(self, block: _Threadblock) -> Iterator[_Action]:
        """Yield all that a threadblock does in a launch, in order."""
        message = self.buffer.message_bytes // ELEMENT_BYTES
        together = min(max(1, message // self.chunk), _MOST_CHUNKS_A_MESSAGE)
        kept = list(self._transmissions(block.number))
        for tile, offset in enumerate(range(0, self.chunk, message)):
            elements = min(message, self.chunk - offset)
            for one in kept:
                first = True
                for begun in range(0, one.count, together):
                    size = elements * min(together, one.count - begun)
                    shift = offset + begun * self.chunk
                    last = begun + together >= one.count
                    slices = list(self._slices(one, size))
                    for number, (low, high) in enumerate(slices):
                        reads = [(at + shift + low, at + shift + high) for at in one.sources]
                        write = None
                        if one.target >= 0:
                            write = (one.target + shift + low, one.target + shift + high)
                        if one.op == _RE and write is not None:
                            reads = [write, *reads]
                        tells = last and number == len(slices) - 1 and one.tells >= 0
                        waits = tuple((tb, (tile, step)) for tb, step in one.waits) if first else ()
                        yield _Action(one, tile, reads, write, waits, (tile, one.tells) if tells else None)
                        first = False

    def _slices(self, one: _Transmission, size: int) -> Iterator[tuple[int, int]]:
        """Yield the slices of a message; later ones may be empty, and local copies have one slice."""
        slices = self.buffer.slices if SENDS[one.op] or RECEIVES[one.op] else 1
        least = self.buffer.message_bytes // ELEMENT_BYTES // slices // 32
        unit = -(-size // (_SLICE_UNIT * slices)) * _SLICE_UNIT
        each = max(unit, least) if slices > 1 else size
        for number in range(slices):
            yield min(number * each, size), min((number + 1) * each, size)

    def _edges(self, rank: int) -> dict[int, int]:
        """Return the places where spans of a rank's memory begin or end, numbered; cells lie between them."""
        memory = self.memory[rank]
        found = {0, len(memory.whole)}
        found |= {edge for span in (memory.input, memory.output) for edge in (span.start, span.stop)}
        for block in self.blocks[self.first[rank] : self.first[rank + 1]]:
            for action in block.actions:
                spans = (*action.reads, action.write) if action.write else action.reads
                found.update(chain.from_iterable(spans))
        return {edge: number for number, edge in enumerate(sorted(found))}

    def _cells(self, rank: int, span: tuple[int, int]) -> range:
        edges = self.edges[rank]
        return range(edges[span[0]], edges[span[1]])

    def run(self) -> RuntimeReport:
        """Run all launches; each rank begins its next as soon as its threadblocks have ended."""
        program = self.program
        if self.findings:
            return RuntimeReport(0, 0, 0, 0, tuple(first_of(self.findings, _ENOUGH, "finding")))
        for rank in range(program.ranks):
            self._begin(rank)
        while self.ready:
            at = self.draw.randrange(len(self.ready))
            self.ready[at], self.ready[-1] = self.ready[-1], self.ready[at]
            self._go(self.ready.pop())
        self.findings += [f"{self._place(block)} waits for ever: {why}" for block, why in self._stuck()]
        if not self.asleep:
            self.findings += self._left_over()
        self.findings += self._races()
        wrong, elements = self._compared()
        return RuntimeReport(
            _LAUNCHES, self.done, elements, wrong, tuple(first_of(self.findings, _ENOUGH, "finding"))
        )

    def _begin(self, rank: int) -> None:
        """Let the caller read the output and write new input; make the next launch's threadblocks ready."""
        launch, memory = self.launch[rank], self.memory[rank]
        caller = self.program.threadblocks + rank
        span = (min(memory.input.start, memory.output.start), max(memory.input.stop, memory.output.stop))
        self.cells[rank].write(self._cells(rank, span), caller, "the caller")
        if launch:
            self.outputs[launch - 1, rank] = memory.whole[memory.output].copy()
        if launch == _LAUNCHES:
            return
        self.launch[rank] += 1
        memory.whole[memory.output] = _POISON
        size = memory.input.stop - memory.input.start
        memory.whole[memory.input] = self.numbers.integers(0, 1 << 30, size)
        self.inputs[launch, rank] = memory.whole[memory.input].copy()
        begun = self.clocks.release(caller)
        blocks = self.blocks[self.first[rank] : self.first[rank + 1]]
        self.left[rank] = len(blocks)
        for block in blocks:
            block.at, block.flag, block.told = 0, _NOTHING, {}
            self.clocks.acquire(block.number, begun)
            self.ready.append(block)
        if not blocks:
            self._begin(rank)

    def _go(self, block: _Threadblock) -> None:
        """Run a threadblock for a random number of actions, or until it must wait or has ended."""
        for _ in range(self.draw.choice((1, 2, 8, 64))):
            if block.at == len(block.actions):
                rank, caller = block.rank, self.program.threadblocks + block.rank
                self.clocks.acquire(caller, self.clocks.release(block.number))
                self.left[rank] -= 1
                if not self.left[rank]:
                    self._begin(rank)
                return
            if (obstacle := self._obstacle(block)) is not None:
                key, why = obstacle
                self.asleep.setdefault(key, []).append((block, why))
                return
            self._act(block)
        self.ready.append(block)

    def _obstacle(self, block: _Threadblock) -> tuple[_Key, str] | None:
        """Return what the next action of a threadblock must wait for: a key to be woken by, and words."""
        action, op = block.actions[block.at], block.actions[block.at].transmission.op
        program = self.program
        for tb, goal in action.waits:
            if self.blocks[tb].flag < goal:
                return tb, f"{program.tb_name(tb)} has not announced step {goal[1]} of tile {goal[0]}"
        if RECEIVES[op]:
            if block.receive is None:
                return block.number, "its threadblock has no peer to receive from"
            if not block.receive.messages:
                src, _, channel = block.receive.ends
                return (block.receive.ends, "in"), f"no message from rank {src} on channel {channel}"
        if SENDS[op]:
            if block.send is None:
                return block.number, "its threadblock has no peer to send to"
            if not block.send.freed:
                _, dst, channel = block.send.ends
                return (block.send.ends, "out"), f"no room in the buffer to rank {dst} on channel {channel}"
        return None

    def _act(self, block: _Threadblock) -> None:
        action, rank, thread = block.actions[block.at], block.rank, block.number
        op, row = action.transmission.op, action.transmission.row
        whole, clocks, cells = self.memory[rank].whole, self.clocks, self.cells[rank]
        for tb, goal in action.waits:
            # Only writes before the other threadblock set its flag to this value are surely visible.
            if (known := self.blocks[tb].knew_at(goal)) is not None:
                clocks.acquire(thread, known)
        value: Numbers | None = None
        if RECEIVES[op] and block.receive is not None:
            value, sent = block.receive.messages.popleft()
            clocks.acquire(thread, sent)
        if SENDS[op] and block.send is not None and (freed := block.send.freed.popleft()) is not None:
            clocks.acquire(thread, freed)
        for span in action.reads:
            cells.read(self._cells(rank, span), thread, row)
            operand = whole[span[0] : span[1]]
            value = operand if value is None else _added(value, operand)
        if action.write is not None and value is not None and not action.copies_onto_itself:
            cells.write(self._cells(rank, action.write), thread, row)
            _store(whole[action.write[0] : action.write[1]], value)
        if SENDS[op] and block.send is not None and value is not None:
            block.send.messages.append((value.copy(), clocks.release(thread)))
            self._wake((block.send.ends, "in"))
        if RECEIVES[op] and block.receive is not None:
            block.receive.freed.append(clocks.release(thread))
            self._wake((block.receive.ends, "out"))
        if action.tells is not None:
            block.flag = action.tells
            block.told[action.tells] = clocks.release(thread), self.waiters[row]
            self._wake(thread)
        block.at += 1
        self.done += 1

    def _wake(self, key: _Key) -> None:
        """Make the threadblocks ready that wait for a connection, or for the flag of a threadblock."""
        self.ready.extend(block for block, _ in self.asleep.pop(key, ()))

    def _stuck(self) -> list[tuple[_Threadblock, str]]:
        stuck = [block for blocks in self.asleep.values() for block in blocks]
        return sorted(stuck, key=lambda block: block[0].number)

    def _place(self, block: _Threadblock) -> str:
        return self.program.place(block.actions[block.at].transmission.row)

    def _left_over(self) -> list[str]:
        return [
            f"{len(connection.messages)} slices from rank {src} to rank {dst} on channel {channel} "
            "that nobody receives"
            for (src, dst, channel), connection in self.connections.items()
            if connection.messages
        ]

    def _races(self) -> list[str]:
        found: dict[str, None] = {}
        for rank, cells in enumerate(self.cells):
            names = sorted(self.edges[rank])
            for cell, one, wrote, two, writes in cells.racing:
                place = self._name(rank, names[cell])
                verbs = ["writes" if does else "reads" for does in (wrote, writes)]
                found[
                    f"race on {place} of rank {rank}: {self._who(one, rank)} {verbs[0]} it, "
                    f"{self._who(two, rank)} {verbs[1]} it, and nothing orders the two"
                ] = None
        return list(found)

    def _who(self, place: object, rank: int) -> str:
        return self.program.place(place) if isinstance(place, int) else f"the caller of rank {rank}"

    def _name(self, rank: int, at: int) -> str:
        memory = self.memory[rank]
        for buffer in (SCRATCH, OUTPUT, INPUT):
            place = memory.of(buffer)
            if place.start <= at < place.stop:
                return f"{BUFFERS[buffer]}[{(at - place.start) // self.chunk}]"
        return "nothing"

    def _compared(self) -> tuple[int, int]:
        """Return (wrong, all) elements of outputs; add a finding for the first wrong one of each rank."""
        program, wrong, elements = self.program, 0, 0
        if program.input_chunks:
            return 0, 0
        kind, root = program.collective.kind, program.collective.root
        for launch in range(_LAUNCHES):
            given = [self.inputs.get((launch, rank)) for rank in range(program.ranks)]
            inputs = [array for array in given if array is not None]
            if len(inputs) < program.ranks:
                break
            for rank in range(program.ranks):
                output = self.outputs.get((launch, rank))
                if output is None:
                    continue
                differs = np.flatnonzero(output != expected_output(kind, inputs, rank, root))
                elements += len(output)
                wrong += len(differs)
                if len(differs):
                    self.findings.append(
                        f"rank {rank} ends launch {launch} with {len(differs)} wrong elements, the first in "
                        f"o[{differs[0] // self.chunk}]"
                    )
        return wrong, elements


def _added(one: Numbers, two: Numbers) -> Numbers:
    """Add the elements that both arrays have, as the kernel does with different lengths."""
    if len(one) == len(two):
        return one + two
    short = min(len(one), len(two))
    return one[:short] + two[:short]


def _store(place: Numbers, value: Numbers) -> None:
    """Store the elements of a message for which there is room."""
    short = min(len(place), len(value))
    place[:short] = value[:short]
