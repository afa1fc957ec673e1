"""A second opinion on programs: they are run element by element, in several orders drawn at random.

Every chunk is two tiles, and all threadblocks run the whole program once for each of them. A slot holds a
sum of contributions. A step works on one slot after the other, so that a copy whose ends overlap reads what
it has just written; between any two slots another threadblock may run. Beyond what those runs show, two
accesses to one slot of which one writes must be ordered by the threadblock, by waits or by messages, and no
step may read and write ranges that overlap partly.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from oracles import ACCEPTED, Verdict, refused
from oracles.collectives import Malformed, Wanted, total, wanted

__all__ = ["judge"]

OPS = ("nop", "s", "r", "cpy", "re", "rrc", "rrs", "rcs", "rrcs")
SENDING = ("s", "rrs", "rcs", "rrcs")
RECEIVING = ("r", "rrc", "rrs", "rcs", "rrcs")
READING = ("s", "cpy", "re", "rrc", "rrs", "rrcs")
WRITING = ("r", "cpy", "re", "rrc", "rcs", "rrcs")
INPUT, OUTPUT, SCRATCH = 0, 1, 2
_TILES = 2
_MOST_CHUNKS = 1 << 16

Sum = dict[tuple[int, int], int]
Cell = tuple[int, int, int]


@dataclass(frozen=True)
class _Step:
    op: str
    src: tuple[int, int]
    dst: tuple[int, int]
    count: int
    wait: tuple[int, int] | None

    @property
    def reads(self) -> bool:
        return self.op in READING

    @property
    def writes(self) -> bool:
        return self.op in WRITING


@dataclass(frozen=True)
class _Block:
    rank: int
    send: int
    recv: int
    channel: int
    steps: list[_Step]

    @property
    def outgoing(self) -> tuple[int, int, int]:
        return self.rank, self.send, self.channel

    @property
    def incoming(self) -> tuple[int, int, int]:
        return self.recv, self.rank, self.channel


class _Wrong(Exception):  # noqa: N818 - it is a verdict
    """The result of running a program."""


def judge(program: Any, *, depth: int = 2, runs: int = 6, seed: int = 0) -> Verdict:
    """Whether the program does what it says in each placement it claims, with ``depth`` messages a FIFO."""
    try:
        asked, inputs = _asked(program)
        blocks = _blocks(program)
        sizes = _sizes(program, asked, inputs)
        _fits(blocks, sizes, program.ranks)
    except Malformed as error:
        return refused(str(error))
    placements = [at for at, claimed in ((False, program.out_of_place), (True, program.in_place)) if claimed]
    if not placements:
        return refused("it claims no placement")
    for in_place in placements:
        memory = _memory(asked, inputs, sizes, in_place)
        try:
            if not in_place and asked is not None:
                _keeps_inputs(blocks)
            _no_overlaps(blocks, memory)
            for run in range(runs):
                _Run(blocks, memory, asked, inputs, depth, random.Random(seed + run)).finish()
            _no_races(blocks, memory)
        except _Wrong as error:
            return refused(f"{'in place: ' if in_place else ''}{error}")
    return ACCEPTED


def _asked(program: Any) -> tuple[Wanted | None, list[list[tuple[int, int]]]]:
    """(what the collective wants, None where the file says custom; for each rank what its input holds)."""
    ranks = program.collective.ranks
    asked = wanted(program.collective)
    if bool(program.input_chunks) != bool(program.output_chunks):
        raise Malformed("sizes of the inputs without those of the outputs, or the reverse")
    if program.min_bytes < 0 or program.max_bytes < 0 or 0 < program.max_bytes < program.min_bytes:
        raise Malformed("limits of the size that leave no size")
    if program.input_chunks:
        if program.collective.kind != "custom" or any(asked.reduced) or asked.sources != asked.targets:
            raise Malformed("sizes of buffers beside a collective that is known")
        if len(program.input_chunks) != ranks or len(program.output_chunks) != ranks:
            raise Malformed("sizes of buffers for other ranks")
        if min(*program.input_chunks, *program.output_chunks) < 0 or sum(program.input_chunks) > _MOST_CHUNKS:
            raise Malformed("sizes of buffers out of range")
        first, inputs = 0, []
        for rank, size in enumerate(program.input_chunks):
            inputs.append([(first + at, rank) for at in range(size)])
            first += size
            if sum(rank in sources for sources in asked.sources) != size:
                raise Malformed("sizes of buffers that are not those of the collective")
        return None, inputs
    inputs = [
        [
            (chunk, rank if asked.reduced[chunk] else -1)
            for chunk in range(asked.chunks)
            if rank in asked.sources[chunk]
        ]
        for rank in range(ranks)
    ]
    return asked, inputs


def _blocks(program: Any) -> list[_Block]:
    ranks, steps, count = program.collective.ranks, len(program.op), len(program.tb_rank)
    per_block = (program.tb_send, program.tb_recv, program.tb_channel)
    per_step = [getattr(program, f"{side}_{what}") for side in ("src", "dst") for what in ("buffer", "slot")]
    per_step += [program.count, program.wait_tb, program.wait_step]
    start = [int(at) for at in program.tb_start]
    if any(len(one) != count for one in per_block) or any(len(one) != steps for one in per_step):
        raise Malformed("columns have other lengths")
    if any(len(one) not in (0, steps) for one in (program.line, program.turn)):
        raise Malformed("columns have other lengths")
    if len(start) != count + 1 or start[0] != 0 or start[-1] != steps or start != sorted(start):
        raise Malformed("threadblocks do not cover the steps")
    rank_of = [int(rank) for rank in program.tb_rank]
    if rank_of != sorted(rank_of) or any(not 0 <= rank < ranks for rank in rank_of):
        raise Malformed("threadblocks are not sorted by ranks that exist")
    found = []
    for tb in range(count):
        send, recv, channel = (int(column[tb]) for column in per_block)
        if not (-1 <= send < ranks and -1 <= recv < ranks and 0 <= channel < 1 << 15):
            raise Malformed(f"threadblock {tb} has peers {send} and {recv} on channel {channel}")
        if rank_of[tb] in (send, recv):
            raise Malformed(f"threadblock {tb} is its own peer")
        rows = range(start[tb], start[tb + 1])
        found.append(
            _Block(rank_of[tb], send, recv, channel, [_step(program, tb, row, start) for row in rows])
        )
    for ends in ([b.outgoing for b in found if b.send >= 0], [b.incoming for b in found if b.recv >= 0]):
        if len(set(ends)) != len(ends):
            raise Malformed("two threadblocks share an end of a connection")
    return found


def _step(program: Any, tb: int, row: int, start: list[int]) -> _Step:
    op, count, other, goal = (
        int(column[row]) for column in (program.op, program.count, program.wait_tb, program.wait_step)
    )
    buffers = int(program.src_buffer[row]), int(program.dst_buffer[row])
    slots = int(program.src_slot[row]), int(program.dst_slot[row])
    if not 0 <= op < len(OPS) or count < 1 or any(not 0 <= buffer <= SCRATCH for buffer in buffers):
        raise Malformed(f"step {row} is op {op} of {count} chunks")
    if any(slot < -1 for slot in slots):
        raise Malformed(f"step {row} uses slots {slots}")
    wait = None
    if other != -1:
        if not 0 <= other < len(start) - 1 or program.tb_rank[other] != program.tb_rank[tb]:
            raise Malformed(f"step {row} waits for a threadblock that its rank lacks")
        if not 0 <= goal < start[other + 1] - start[other]:
            raise Malformed(f"step {row} waits for a step that does not exist")
        wait = other, goal
    return _Step(OPS[op], (buffers[0], slots[0]), (buffers[1], slots[1]), count, wait)


def _sizes(program: Any, asked: Wanted | None, inputs: list[list[tuple[int, int]]]) -> list[tuple[int, ...]]:
    ranks = program.collective.ranks
    scratch = [int(size) for size in program.scratch_chunks]
    if len(scratch) != ranks or any(not 0 <= size < 1 << 22 for size in scratch):
        raise Malformed("scratch out of range")
    if asked is None:
        outputs = [int(size) for size in program.output_chunks]
    else:
        outputs = [sum(rank in targets for targets in asked.targets) for rank in range(ranks)]
    return [(len(inputs[rank]), outputs[rank], scratch[rank]) for rank in range(ranks)]


def _fits(blocks: list[_Block], sizes: list[tuple[int, ...]], ranks: int) -> None:
    """Raise Malformed where a step lacks its peer, or leaves its buffer."""
    for block in blocks:
        for step in block.steps:
            if step.op in SENDING and block.send < 0:
                raise Malformed("a step sends without a peer")
            if step.op in RECEIVING and block.recv < 0:
                raise Malformed("a step receives without a peer")
            for used, (buffer, slot) in ((step.reads, step.src), (step.writes, step.dst)):
                if used and not 0 <= slot <= slot + step.count <= sizes[block.rank][buffer]:
                    raise Malformed(f"{step.op} of slots {slot} … {slot + step.count} leaves its buffer")


def _memory(
    asked: Wanted | None, inputs: list[list[tuple[int, int]]], sizes: list[tuple[int, ...]], in_place: bool
) -> dict[Cell, Cell]:
    """(rank, buffer, slot) → the cell that it is: in place, slots of the output are cells of the input."""
    same = {
        (rank, buffer, slot): (rank, buffer, slot)
        for rank, counts in enumerate(sizes)
        for buffer, count in enumerate(counts)
        for slot in range(count)
    }
    if not in_place or asked is None:
        return same
    for rank in range(len(sizes)):
        held = [chunk for chunk, _ in inputs[rank]]
        ends = [chunk for chunk in range(asked.chunks) if rank in asked.targets[chunk]]
        for slot, chunk in enumerate(ends):
            if not asked.shared and slot < len(held):
                same[rank, OUTPUT, slot] = (rank, INPUT, slot)
            elif asked.shared and chunk in held:
                same[rank, OUTPUT, slot] = (rank, INPUT, held.index(chunk))
    return same


def _cells(memory: dict[Cell, Cell], rank: int, first: tuple[int, int], count: int) -> list[Cell]:
    return [memory[rank, first[0], first[1] + at] for at in range(count)]


def _keeps_inputs(blocks: list[_Block]) -> None:
    for block in blocks:
        for step in block.steps:
            if step.writes and step.dst[0] == INPUT:
                raise _Wrong("it writes to the input, which belongs to the caller")


def _no_overlaps(blocks: list[_Block], memory: dict[Cell, Cell]) -> None:
    for block in blocks:
        for step in block.steps:
            if step.reads and step.writes:
                src = _cells(memory, block.rank, step.src, step.count)
                dst = _cells(memory, block.rank, step.dst, step.count)
                if src != dst and set(src) & set(dst):
                    raise _Wrong(f"{step.op} {step.src} → {step.dst} of {step.count} chunks overlaps partly")


class _Run:
    """One interleaving of all threadblocks."""

    def __init__(
        self,
        blocks: list[_Block],
        memory: dict[Cell, Cell],
        asked: Wanted | None,
        inputs: list[list[tuple[int, int]]],
        depth: int,
        rng: random.Random,
    ) -> None:
        self.blocks, self.memory, self.asked, self.depth, self.rng = blocks, memory, asked, depth, rng
        self.value: dict[tuple[Cell, int], Sum] = {
            (memory[rank, INPUT, slot], tile): {atom: 1}
            for rank, held in enumerate(inputs)
            for slot, atom in enumerate(held)
            for tile in range(_TILES)
        }
        # A message takes its place when its step starts and can be read when that step is done.
        self.messages: dict[tuple[int, int, int], deque[list[Sum] | None]] = {}
        self.done = [0] * len(blocks)

    def finish(self) -> None:
        """Run to the end; raises _Wrong where that cannot be, or the results are not those wanted."""
        running = {at: self._actions(at) for at in range(len(self.blocks))}
        # Some threadblocks are ten times as fast as others.
        pool = [at for at in running for _ in range(self.rng.choice((1, 1, 10)))]
        stuck: set[int] = set()
        while running:
            if len(stuck) == len(running):
                raise _Wrong(f"a deadlock: threadblocks {sorted(stuck)} wait for ever")
            at = pool[int(self.rng.random() * len(pool))]
            if at in stuck:
                continue
            try:
                if next(running[at]):
                    stuck.clear()
                else:
                    stuck.add(at)
            except StopIteration:
                del running[at]
                pool = [one for one in pool if one != at]
                stuck.clear()
        if any(self.messages.values()):
            raise _Wrong("messages are left that nobody receives")
        self._complete()

    def _actions(self, at: int) -> Iterator[bool]:
        """Run one threadblock; yields whether it got on, at every point where others may come between."""
        block = self.blocks[at]
        for tile in range(_TILES):
            for step in block.steps:
                yield True
                while not self._can_start(block, step, tile):
                    yield False
                yield from self._carry_out(block, step, tile)
                self.done[at] += 1

    def _can_start(self, block: _Block, step: _Step, tile: int) -> bool:
        if step.wait is not None:
            other, goal = step.wait
            if self.done[other] < tile * len(self.blocks[other].steps) + goal + 1:
                return False
        if step.op in RECEIVING and not (self._queue(block.incoming) and self._queue(block.incoming)[0]):
            return False
        return not (step.op in SENDING and len(self._queue(block.outgoing)) >= self.depth)

    def _queue(self, name: tuple[int, int, int]) -> deque[list[Sum] | None]:
        return self.messages.setdefault(name, deque())

    def _carry_out(self, block: _Block, step: _Step, tile: int) -> Iterator[bool]:
        received: list[Sum] = []
        if step.op in RECEIVING:
            received = self._queue(block.incoming)[0] or []
            if len(received) != step.count:
                raise _Wrong(f"{step.op} of {step.count} chunks receives {len(received)}")
        if step.op in SENDING:
            self._queue(block.outgoing).append(None)
        src = _cells(self.memory, block.rank, step.src, step.count) if step.reads else []
        dst = _cells(self.memory, block.rank, step.dst, step.count) if step.writes else []
        made: list[Sum] = []
        # A copy onto itself is not done: it neither reads nor writes.
        if step.op == "cpy" and src == dst:
            return
        for k in range(step.count if step.op != "nop" else 0):
            terms = [received[k]] if received else []
            if step.reads:
                terms.append(self._read(src[k], tile, step))
            if step.op == "re":
                terms.append(self._read(dst[k], tile, step))
            made.append(_sum(terms))
            if step.writes:
                yield True
                self.value[dst[k], tile] = made[k]
            yield True
        if step.op in RECEIVING:
            self._queue(block.incoming).popleft()
        if step.op in SENDING:
            queue = self._queue(block.outgoing)
            queue[len(queue) - 1] = made

    def _read(self, cell: Cell, tile: int, step: _Step) -> Sum:
        if (cell, tile) not in self.value:
            raise _Wrong(f"{step.op} reads {cell}, which nothing has written")
        return self.value[cell, tile]

    def _complete(self) -> None:
        if self.asked is None:
            return
        slots: dict[int, int] = {}
        for chunk, (sources, targets) in enumerate(zip(self.asked.sources, self.asked.targets, strict=True)):
            complete = total(sources, chunk, self.asked.reduced[chunk])
            for rank in targets:
                slot = slots.get(rank, 0)
                slots[rank] = slot + 1
                for tile in range(_TILES):
                    held = self.value.get((self.memory[rank, OUTPUT, slot], tile))
                    if held != complete:
                        raise _Wrong(f"rank {rank} ends with {held} in o[{slot}], expected {complete}")


def _sum(terms: list[Sum]) -> Sum:
    if len(terms) == 1:
        return terms[0]
    found: Sum = {}
    for term in terms:
        for atom, times in term.items():
            found[atom] = found.get(atom, 0) + times
    return found


def _no_races(blocks: list[_Block], memory: dict[Cell, Cell]) -> None:
    """Raise _Wrong for two accesses to a cell, one a write, that no path of orders connects."""
    before = _before(blocks)
    accesses: dict[Cell, list[tuple[tuple[int, int], bool]]] = {}
    for tb, block in enumerate(blocks):
        for at, step in enumerate(block.steps):
            src = _cells(memory, block.rank, step.src, step.count) if step.reads else []
            dst = _cells(memory, block.rank, step.dst, step.count) if step.writes else []
            # A copy onto itself does nothing.
            if step.op == "cpy" and src == dst:
                continue
            for cell in src:
                accesses.setdefault(cell, []).append(((tb, at), False))
            for cell in dst:
                accesses.setdefault(cell, []).append(((tb, at), True))
    for cell, found in accesses.items():
        for number, (one, writes) in enumerate(found):
            for other, also in found[:number]:
                ordered = one == other or one in before[other] or other in before[one]
                if (writes or also) and not ordered:
                    raise _Wrong(f"steps {other} and {one} race for {cell}")


def _before(blocks: list[_Block]) -> dict[tuple[int, int], set[tuple[int, int]]]:
    """For each step those that have finished when it starts: closed over program order, waits, messages."""
    direct: dict[tuple[int, int], set[tuple[int, int]]] = {}
    sends: dict[tuple[int, int, int], list[tuple[int, int]]] = {}
    for tb, block in enumerate(blocks):
        for at, step in enumerate(block.steps):
            direct[tb, at] = {(tb, at - 1)} if at else set()
            if step.wait is not None:
                direct[tb, at].add(step.wait)
            if step.op in SENDING:
                sends.setdefault(block.outgoing, []).append((tb, at))
    for tb, block in enumerate(blocks):
        receiving = [at for at, step in enumerate(block.steps) if step.op in RECEIVING]
        for number, at in enumerate(receiving):
            direct[tb, at].add(sends[block.incoming][number])
    closed: dict[tuple[int, int], set[tuple[int, int]]] = {}
    for step in direct:
        seen: set[tuple[int, int]] = set()
        rest = list(direct[step])
        while rest:
            one = rest.pop()
            if one not in seen:
                seen.add(one)
                rest += direct[one]
        closed[step] = seen
    return closed
