"""Emits the operations of threadblocks, with a nop wherever their threads must synchronize.

A message is put straight into its receiver's slot, or into scratch, from where the receiver copies or reduces
it. A port sends from scratch only, and reads it asynchronously. Other data, and what the program may
overwrite before the message has arrived, is first copied to scratch. A block with more operations than the
executor takes is split into several, each of which waits for the one before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from functools import lru_cache

from probes.base import Bytes, Ints
from synth.mscclpp.messages import MatchedMessage, MatchedMessages
from synth.mscclpp.plan import Operand, Operation, PlanRank, RemoteBuffer, Threadblock
from synth.mscclpp.well_formed import MOST_OPERATIONS, MOST_SEMAPHORES
from synth.program import BUFFERS, OPS, READS_SRC, WRITES_DST

__all__ = ["Emission", "RankPlan", "Semaphores"]

_S, _R, _RRC, _RRS, _RCS, _RRCS = (OPS.index(name) for name in ("s", "r", "rrc", "rrs", "rcs", "rrcs"))
_COPY, _REDUCE = OPS.index("cpy"), OPS.index("re")
_SCRATCH = "s"
_NOP = Operation("nop")
# Chunks of a local buffer: (buffer, first chunk, number of chunks).
_Place = tuple[str, int, int]


@dataclass(slots=True)
class Semaphores:
    """The semaphores to acquire before a step and to release after it, by step."""

    acquired: dict[int, list[int]] = field(default_factory=dict)
    released: dict[int, list[int]] = field(default_factory=dict)


@dataclass(slots=True)
class RankPlan:
    """A rank's plan while it is built: peers of its channels, remote buffers, semaphores, threadblocks."""

    number: int
    peers: dict[str, list[int]] = field(default_factory=lambda: {"memory": [], "port": []})
    buffers: dict[tuple[int, str, str], int] = field(default_factory=dict)
    semaphores: int = 0
    blocks: list[Threadblock] = field(default_factory=list)

    def new_semaphore(self) -> int:
        """Add a semaphore and return its number."""
        self.semaphores += 1
        return self.semaphores - 1

    def gpu(self, input_chunks: int, output_chunks: int, scratch_chunks: int) -> PlanRank:
        """Return the rank as it stands in the plan."""
        return PlanRank(
            input_chunks=input_chunks,
            output_chunks=output_chunks,
            scratch_chunks=scratch_chunks,
            memory=tuple(self.peers["memory"]),
            port=tuple(self.peers["port"]),
            switch=(),
            remote_buffers=tuple(RemoteBuffer(rank, name, (kind,)) for rank, name, kind in self.buffers),
            semaphores=(0,) * self.semaphores,
            threadblocks=tuple(self.blocks),
        )


class Emission:
    """One threadblock of a program.

    ``_reads`` and ``_writes`` are the cells accessed since the last nop; some threads may still be accessing
    them. ``_dirty`` is true if there was any operation on data since that nop. ``_waited`` is true if one
    thread has waited since: the other threads need a nop before they use the awaited data.
    """

    def __init__(
        self,
        messages: MatchedMessages,
        rank: RankPlan,
        channels: dict[tuple[int, int, int], tuple[str, int]],
        semaphores: Semaphores,
        idle: Set[int],
        tb: int,
    ) -> None:
        self._messages, self._program, self._tb = messages, messages.program, tb
        self._idle = idle
        self._rank, self._channels, self._semaphores = rank, channels, semaphores
        self._operations: list[Operation] = []
        self._lists: dict[str, list[int]] = {"memory": [], "port": []}
        self._buffers: dict[str, list[int]] = {"memory": [], "port": []}
        self._reads: set[int] = set()
        self._writes: set[int] = set()
        self._dirty = self._waited = False

    def threadblocks(self, acknowledged: Set[tuple[int, int]]) -> Iterator[Threadblock]:
        """Yield the block, in as many pieces as the executor's limit requires.

        At its end the block signals or awaits an acknowledgement on each of its connections in
        ``acknowledged``.
        """
        program, messages = self._program, self._messages
        steps = range(int(program.tb_start[self._tb]), int(program.tb_start[self._tb + 1]))
        into = next((messages.into[step] for step in steps if step in messages.into), None)
        out = next((messages.out[step] for step in steps if step in messages.out), None)
        # Peers must not put into a rank's memory before the rank has entered the kernel.
        if into is not None:
            self._sync("rlxsignal", into)
        if out is not None:
            self._sync("rlxwait", out)
        for step in steps:
            for acquired in _batched(self._semaphores.acquired.get(step, ()), MOST_SEMAPHORES):
                self._operations.append(_counting("sem_acquire", acquired))
                self._waited = True
            self._step(step)
            for released in _batched(self._semaphores.released.get(step, ()), MOST_SEMAPHORES):
                self._settle()
                self._operations.append(_counting("sem_release", released))
        if into is not None and self._connection(into) in acknowledged:
            self._sync("signal", into)
        if out is not None and self._connection(out) in acknowledged:
            self._sync("wait", out)
        while self._operations and self._operations[-1].name == "nop":
            self._operations.pop()
        if self._operations:
            yield from self._pieces()

    def _pieces(self) -> Iterator[Threadblock]:
        left = self._operations
        acquired: tuple[int, ...] = ()
        while left:
            piece = [Operation("sem_acquire", semaphores=acquired), _NOP] if acquired else []
            if len(piece) + len(left) <= MOST_OPERATIONS:
                piece, left = piece + left, []
            else:
                room = MOST_OPERATIONS - len(piece) - 2
                acquired = (self._rank.new_semaphore(),)
                released = Operation("sem_release", semaphores=acquired)
                piece, left = [*piece, *left[:room], _NOP, released], left[room:]
            yield Threadblock(
                operations=tuple(piece),
                memory=tuple(self._lists["memory"]),
                port=tuple(self._lists["port"]),
                memory_buffers=tuple(self._buffers["memory"]),
                port_buffers=tuple(self._buffers["port"]),
            )

    def _step(self, step: int) -> None:
        program, messages = self._program, self._messages
        message, out = messages.into.get(step), messages.out.get(step)
        op = int(program.op[step])
        src = self._place(step, program.src_buffer, program.src_slot) if READS_SRC[op] else None
        dst = self._place(step, program.dst_buffer, program.dst_slot) if WRITES_DST[op] else None
        arrived = dst
        if message is not None:
            self._sync("wait", message)
            if message.slot >= 0:
                arrived = (_SCRATCH, message.slot, int(program.count[step]))
        if step in self._idle:
            return
        if op == _COPY and src and dst:
            self._copy(src, dst)
        elif op == _R and arrived and dst:
            self._copy(arrived, dst)
        elif op in (_REDUCE, _RRC) and dst:
            self._add(self._operands(step), dst, None)
        elif op == _S and src and out:
            self._send(src, out, step)
        elif op == _RCS and arrived and dst and out:
            # Forward from the place of arrival: if that is scratch, nothing overwrites it.
            self._send(arrived, out, step)
            self._copy(arrived, dst)
        elif op == _RRS and arrived and out:
            self._add(self._operands(step), arrived, out)
        elif op == _RRCS and arrived and dst and out:
            if out.port and not messages.safe_source(step):
                self._add(self._operands(step), arrived, out)
                self._copy(arrived, dst)
            else:
                self._add(self._operands(step), dst, out)

    def _operands(self, last: int) -> list[_Place]:
        """Return what an addition adds up, in order: the sum so far, then what each addition adds to it."""
        program = self._program
        found: list[_Place] = []
        for step in self._messages.sums.get(last, [last]):
            src = self._place(step, program.src_buffer, program.src_slot)
            message = self._messages.into.get(step)
            if message is None:
                old, new = self._place(step, program.dst_buffer, program.dst_slot), src
            else:
                old, new = src, (_SCRATCH, message.slot, int(program.count[step]))
            found += [new] if found else [old, new]
        return found

    def _place(self, step: int, buffer: Bytes, slot: Ints) -> _Place:
        return BUFFERS[buffer[step]], int(slot[step]), int(self._program.count[step])

    def _is_private(self, place: _Place) -> bool:
        """Return whether a place is scratch of one message only, behind the program's own scratch."""
        return place[0] == _SCRATCH and place[1] >= self._program.scratch_chunks[self._rank.number]

    def _cells(self, place: _Place) -> Iterable[int]:
        """Return the cells of a place; cells of private scratch have negative numbers."""
        name, index, size = place
        if self._is_private(place):
            return range(-index - size, -index)
        return self._messages.cells.touched(self._rank.number, BUFFERS.index(name), index, size)

    def _copy(self, source: _Place, target: _Place) -> None:
        if list(self._cells(source)) != list(self._cells(target)):
            self._data(Operation("copy", (_local(source),), (_local(target),)), (source,), target)

    def _add(self, operands: Sequence[_Place], target: _Place, out: MatchedMessage | None) -> None:
        """Reduce places into another one; send the sum as ``out``, if given.

        Over memory, one operation does both.
        """
        sources = tuple(map(_local, operands))
        if out is None or out.port:
            self._data(Operation("re", sources, (_local(target),), reduce_op="sum"), operands, target)
            if out is not None:
                self._put(target, out)
            return
        kind, _ = self._end(out)
        targets = (_local(target), self._remote(out, target[2]))
        self._data(Operation("res", sources, targets, kind, reduce_op="sum"), operands, target)
        self._sync("signal", out)

    def _send(self, source: _Place, out: MatchedMessage, step: int) -> None:
        if out.port and not self._is_private(source) and not self._messages.safe_source(step):
            slot = self._messages.new_scratch(self._rank.number, source[2])
            staged = (_SCRATCH, slot, source[2])
            self._copy(source, staged)
            source = staged
        self._put(source, out)

    def _put(self, source: _Place, out: MatchedMessage) -> None:
        kind, channel = self._end(out)
        operands = (_local(source),), (self._remote(out, source[2]),)
        if kind == "port":
            self._settle()
            self._operations.append(Operation("pws", *operands, kind, (channel,)))
            return
        self._data(Operation("put", *operands, kind), (source,), None)
        self._sync("signal", out)

    def _data(self, operation: Operation, sources: Iterable[_Place], target: _Place | None) -> None:
        """Emit an operation of all threads, after a nop if some threads may still be using its data."""
        reads = {cell for place in sources for cell in self._cells(place)}
        writes = set(self._cells(target)) if target else set()
        if self._waited or reads & self._writes or writes & (self._reads | self._writes):
            self._nop()
        self._operations.append(operation)
        self._reads |= reads
        self._writes |= writes
        self._dirty = True

    def _settle(self) -> None:
        """Emit a nop before one thread signals, if other threads may still work or one has waited."""
        if self._dirty or self._waited:
            self._nop()

    def _nop(self) -> None:
        self._operations.append(_NOP)
        self._reads, self._writes = set(), set()
        self._dirty = self._waited = False

    def _sync(self, name: str, message: MatchedMessage) -> None:
        kind, channel = self._end(message)
        if name.endswith("signal"):
            self._settle()
        else:
            self._waited = True
        # Port channels have no relaxed signals.
        plain = name.removeprefix("rlx") if kind == "port" else name
        self._operations.append(_signalling(plain, kind, channel))

    def _connection(self, message: MatchedMessage) -> tuple[int, int]:
        tbs = self._messages.tb
        return tbs[message.send], tbs[message.receive]

    def _end(self, message: MatchedMessage) -> tuple[str, int]:
        """Return (type, place in the block's list) of this rank's end of a message's connection."""
        kind, channel = self._channels[*self._connection(message), self._rank.number]
        return kind, _number_in(self._lists[kind], channel)

    def _remote(self, message: MatchedMessage, size: int) -> Operand:
        """Return the remote operand that a message is put to."""
        kind, _ = self._end(message)
        receive = message.receive
        name, index = _SCRATCH, message.slot
        if message.slot < 0:
            name, index = self._messages.home(receive)
        peer = self._messages.rank[receive]
        number = self._rank.buffers.setdefault((peer, name, kind), len(self._rank.buffers))
        return Operand(index, size, remote=_number_in(self._buffers[kind], number))


# Blocks share most of these operations.
@lru_cache(maxsize=1 << 12)
def _counting(name: str, semaphores: tuple[int, ...]) -> Operation:
    return Operation(name, semaphores=semaphores)


@lru_cache(maxsize=1 << 12)
def _signalling(name: str, channel_type: str, channel: int) -> Operation:
    return Operation(name, channel_type=channel_type, channels=(channel,))


def _number_in(values: list[int], value: int) -> int:
    """Return the index of a value in a list; append the value if the list lacks it."""
    if value not in values:
        values.append(value)
    return values.index(value)


def _batched(values: Sequence[int], most: int) -> Iterable[tuple[int, ...]]:
    return (tuple(values[at : at + most]) for at in range(0, len(values), most))


def _local(place: _Place) -> Operand:
    name, index, size = place
    return Operand(index, size, name)
