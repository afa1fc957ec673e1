"""The semantics of MSCCL++'s operations on real buffers, as atomic steps that a driver puts in an order.

An atom is a step of one thread, or of all threads for one chunk. It may wait for a condition, and it reads
before it writes. The machine is written from the executor's sources alone. It shares only the plan with the
judge in ``synth.mscclpp``, so that each can be checked against the other.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from probes.base import UsageError
from synth.mscclpp import ExecutionPlan, Operand, Operation, Threadblock

__all__ = ["Atom", "PlanMachine", "expected_output"]

_Array = NDArray[np.int64]
# Units of a pipeline in this model; the executor makes as many as the data needs.
_UNITS = 2
_OUT_OF_PLACE = {"allgather", "reducescatter"}
_POISON = -(1 << 40)


@dataclass(slots=True, eq=False)
class Atom:
    """``acts`` run one after the other once ``ready`` returns True; ``thread`` -1 is any thread."""

    thread: int
    acts: tuple[Callable[[], None], ...]
    ready: Callable[[], bool] | None = None


@dataclass(slots=True)
class _Packets:
    """Scratch memory as packets: data, and the number of the launch that wrote it."""

    data: _Array
    flag: _Array


@dataclass(slots=True)
class _Rank:
    input: _Array
    output: _Array
    scratch: list[_Array]
    packets: list[_Packets]
    semaphores: list[int] = field(default_factory=list)


class PlanMachine:
    """The buffers, counters and proxies of all ranks of a plan; a chunk has ``length`` numbers.

    Packets are modelled on memory channels only; ``atoms`` raises UsageError for packets on port channels.
    """

    def __init__(self, plan: ExecutionPlan, seed: int = 0, length: int = 0) -> None:
        slices = [one.slices for gpu in plan.gpus for block in gpu.threadblocks for one in block.operations]
        self.plan = plan
        self.length = length or _UNITS * math.lcm(*slices, 1) + (max(slices, default=1) > 1)
        self.random = np.random.default_rng(seed)
        self.ranks = [self._rank(rank) for rank in range(plan.ranks)]
        self.sent: dict[tuple[int, str, int, int], int] = {}
        self.received: dict[tuple[int, str, int, int], int] = {}
        self.proxies: dict[tuple[int, str, int, int], deque[Atom]] = {}
        self.inputs: dict[tuple[int, int], _Array] = {}
        self.outputs: dict[tuple[int, int], _Array] = {}

    def _rank(self, rank: int) -> _Rank:
        gpu, length = self.plan.gpus[rank], self.length
        halves = 2 if self.plan.double_scratch else 1
        shape = {"i": gpu.input_chunks, "o": gpu.output_chunks}
        own = np.full((max(shape.values()) if self.plan.in_place else shape["i"], length), _POISON)
        if not self.plan.in_place:
            first, second = own, np.full((shape["o"], length), _POISON)
        else:
            begin = {name: 0 for name in shape}
            if self.plan.collective in _OUT_OF_PLACE:
                smaller = min(shape, key=lambda name: shape[name])
                begin[smaller] = rank * shape[smaller]
            first, second = (own[begin[name] : begin[name] + shape[name]] for name in "io")
        return _Rank(
            first,
            second,
            [np.full((gpu.scratch_chunks, length), _POISON) for _ in range(halves)],
            [
                _Packets(
                    np.full((gpu.scratch_chunks, length), _POISON), np.full((gpu.scratch_chunks, length), -1)
                )
                for _ in range(halves)
            ],
            list(gpu.semaphores),
        )

    def begin(self, rank: int, launch: int) -> None:
        """Prepare a launch as the caller would: clear the output, and draw a new input."""
        here = self.ranks[rank]
        here.output[:] = _POISON
        here.input[:] = self.random.integers(0, 1 << 30, here.input.shape)
        self.inputs[launch, rank] = here.input.copy()

    def end(self, rank: int, launch: int) -> None:
        """Keep a rank's output until all ranks have begun the launch.

        With a wrong plan, a rank may end before others begin.
        """
        self.outputs[launch, rank] = self.ranks[rank].output.copy()

    def wrong(self) -> int:
        """Check and drop outputs of launches begun by all ranks; count the wrong numbers."""
        found = 0
        for launch, rank in list(self.outputs):
            keys = [(launch, source) for source in range(self.plan.ranks)]
            if all(key in self.inputs for key in keys):
                right = expected_output(self.plan.collective, [self.inputs[key] for key in keys], rank)
                found += int((self.outputs.pop((launch, rank)) != right).sum())
        return found

    def atoms(self, rank: int, block: int, operation: Operation, launch: int, unit: int = -1) -> list[Atom]:
        """Return the atoms of an operation, in the order in which its threads reach them."""
        return list(self._atoms(rank, self.plan.gpus[rank].threadblocks[block], operation, launch, unit))

    def _atoms(
        self, rank: int, block: Threadblock, operation: Operation, launch: int, unit: int
    ) -> Iterator[Atom]:
        name = operation.name.removeprefix("rlx")
        if name in ("signal", "wait"):
            for thread, channel in enumerate(operation.channels):
                mine = self._channel(rank, block, operation.channel_type, channel)
                if name == "wait":
                    yield self._wait(mine, thread)
                elif operation.channel_type == "port":
                    yield Atom(thread, (self._to_proxy(mine, Atom(-1, (self._signal(mine),))),))
                else:
                    yield Atom(thread, (self._signal(mine),))
        elif name in ("sem_acquire", "sem_release"):
            for thread, semaphore in enumerate(operation.semaphores):
                yield self._semaphore(rank, semaphore, thread, 1 if name == "sem_release" else -1)
        elif name in ("put", "pws", "pwsf", "get", "ppkt"):
            for thread, pair in enumerate(zip(operation.src, operation.dst, strict=True)):
                yield from self._transfer(rank, block, operation, thread, pair, launch, unit)
        elif name == "rppkt" and operation.channel_type == "port":
            raise _port_packets_error(operation)
        elif name not in ("nop", "barrier", "flush", "pipeline"):
            yield from self._elementwise(rank, block, operation, launch, unit)

    def _channel(self, rank: int, block: Threadblock, kind: str, at: int) -> tuple[int, str, int, int]:
        ids = block.memory if kind == "memory" else block.port
        peers = self.plan.gpus[rank].peers(kind)
        peer = peers[ids[at]]
        return rank, kind, peer, peers[: ids[at]].count(peer)

    def _signal(self, channel: tuple[int, str, int, int]) -> Callable[[], None]:
        def act() -> None:
            self.sent[channel] = self.sent.get(channel, 0) + 1

        return act

    def _wait(self, channel: tuple[int, str, int, int], thread: int) -> Atom:
        rank, kind, peer, number = channel
        source = (peer, kind, rank, number)

        def ready() -> bool:
            return self.sent.get(source, 0) > self.received.get(source, 0)

        def act() -> None:
            self.received[source] = self.received.get(source, 0) + 1

        return Atom(thread, (act,), ready)

    def _semaphore(self, rank: int, number: int, thread: int, step: int) -> Atom:
        values = self.ranks[rank].semaphores

        def act() -> None:
            values[number] += step

        return Atom(thread, (act,), (lambda: values[number] > 0) if step < 0 else None)

    def _to_proxy(self, channel: tuple[int, str, int, int], atom: Atom) -> Callable[[], None]:
        return lambda: self.proxies.setdefault(channel, deque()).append(atom)

    def _owner(self, rank: int, block: Threadblock, operand: Operand, kind: str) -> list[tuple[int, str]]:
        gpu = self.plan.gpus[rank]
        if operand.switch >= 0:
            group = gpu.switch[block.switch[operand.switch]]
            return [(peer, group.buffer) for peer in group.ranks]
        if operand.remote >= 0:
            ids = block.port_buffers if kind == "port" else block.memory_buffers
            remote = gpu.remote_buffers[ids[operand.remote]]
            return [(remote.rank, remote.buffer)]
        return [(rank, operand.buffer)]

    def _pieces(
        self, rank: int, block: Threadblock, operation: Operation, operand: Operand, launch: int, unit: int
    ) -> list[list[_Piece]]:
        """Return an operand's pieces: per chunk or part of one, one on each rank that has it."""
        size = operand.size * self.length
        if unit >= 0:
            low, high = size * unit // _UNITS, size * (unit + 1) // _UNITS
        else:
            low, high = (_offset(size, operation.slice + more, operation.slices) for more in (0, 1))
        first = operand.index * self.length
        edges = sorted({low, high, *range(-(-low // self.length) * self.length, high, self.length)})
        half = launch % 2 if self.plan.double_scratch else 0
        owners = self._owner(rank, block, operand, operation.channel_type)
        return [
            [_Piece(self, owner, buffer, half, first + begin, first + end) for owner, buffer in owners]
            for begin, end in pairwise(edges)
        ]

    def _transfer(
        self,
        rank: int,
        block: Threadblock,
        operation: Operation,
        thread: int,
        pair: tuple[Operand, Operand],
        launch: int,
        unit: int,
    ) -> Iterator[Atom]:
        packets = operation.name == "ppkt"
        source, target = (self._pieces(rank, block, operation, one, launch, unit) for one in pair)
        if operation.channel_type != "port":
            for one, two in zip(source, target, strict=True):
                yield _copy(one[0], two, launch if packets else -1)
            return
        if packets:
            raise _port_packets_error(operation)
        channel = self._channel(rank, block, "port", operation.channels[thread])
        # A put is one request to the proxy, which reads everything, then writes, then signals, without a
        # break.
        copies = [_copy(one[0], two, -1) for one, two in zip(source, target, strict=True)]
        acts = [atom.acts[step] for step in (0, 1) for atom in copies]
        if operation.name in ("pws", "pwsf"):
            acts.append(self._signal(channel))
        request = Atom(-1, tuple(acts))
        done: list[bool] = []
        if operation.name == "pwsf":
            request.acts += (lambda: done.append(True),)
        yield Atom(thread, (self._to_proxy(channel, request),))
        if operation.name == "pwsf":
            yield Atom(thread, (), lambda: bool(done))

    def _elementwise(
        self, rank: int, block: Threadblock, operation: Operation, launch: int, unit: int
    ) -> Iterator[Atom]:
        name = operation.name
        sources, targets = (
            [self._pieces(rank, block, operation, operand, launch, unit) for operand in operands]
            for operands in (operation.src, operation.dst)
        )
        reads_packets = {"rppkt": 0, "upkt": 0, "respkt": 1, "repkt": 1, "recpkt": 1, "recspkt": 1}
        makes_packets = {"rppkt": 0, "cpkt": 0, "respkt": 1, "recpkt": 1, "recspkt": 1}
        from_packet = reads_packets.get(name, len(sources))
        to_packet = makes_packets.get(name, len(targets))
        for at in range(len(sources[0])):
            plain = [piece for source in sources[:from_packet] for piece in source[at]]
            packets = [piece for source in sources[from_packet:] for piece in source[at]]
            into = [piece for target in targets[:to_packet] for piece in target[at]]
            packed = [piece for target in targets[to_packet:] for piece in target[at]]
            yield _sum(plain, packets, into, packed, launch)


@dataclass(slots=True)
class _Piece:
    """Numbers ``begin`` to ``end`` of a buffer of a rank."""

    machine: PlanMachine
    rank: int
    buffer: str
    half: int
    begin: int
    end: int

    def _of(self, array: _Array) -> _Array:
        length = self.machine.length
        found: _Array = array[self.begin // length : -(-self.end // length)].reshape(-1)
        shift = self.begin // length * length
        return found[self.begin - shift : self.end - shift]

    def plain(self) -> _Array:
        here = self.machine.ranks[self.rank]
        if self.buffer == "s":
            return self._of(here.scratch[self.half])
        return self._of(here.input if self.buffer == "i" else here.output)

    def packet(self) -> tuple[_Array, _Array]:
        packets = self.machine.ranks[self.rank].packets[self.half]
        return self._of(packets.data), self._of(packets.flag)


def _copy(source: _Piece, targets: list[_Piece], flag: int) -> Atom:
    return _sum([source], [], targets if flag < 0 else [], targets if flag >= 0 else [], flag)


def _sum(
    plain: list[_Piece], packets: list[_Piece], into: list[_Piece], packed: list[_Piece], launch: int
) -> Atom:
    """Return the atom that sums plain and packet sources into plain and packet targets."""
    held: list[_Array] = []

    def ready() -> bool:
        return all((piece.packet()[1] == launch).all() for piece in packets)

    def read() -> None:
        parts = [piece.plain() for piece in plain] + [piece.packet()[0] for piece in packets]
        held.append(np.sum(parts, axis=0) if len(parts) > 1 else parts[0].copy())

    def write() -> None:
        for piece in into:
            piece.plain()[:] = held[0]
        for piece in packed:
            data, flag = piece.packet()
            data[:] = held[0]
            flag[:] = launch

    return Atom(-1, (read, write), ready if packets else None)


def _port_packets_error(operation: Operation) -> UsageError:
    return UsageError(f"{operation.name}: packets over port channels cannot be run here")


def _offset(size: int, at: int, slices: int) -> int:
    """Return the start of slice ``at`` of ``size``, divided as in the executor."""
    least, remainder = divmod(size, slices)
    return at * least + min(at, remainder)


def expected_output(collective: str, inputs: list[_Array], rank: int) -> _Array:
    """Return the result of a collective on a rank."""
    ranks = len(inputs)
    match collective:
        case "allreduce":
            return sum(inputs[1:], inputs[0])
        case "allgather":
            return np.concatenate(inputs)
        case "reducescatter":
            share = len(inputs[0]) // ranks
            return sum(inputs[1:], inputs[0])[rank * share : (rank + 1) * share]
        case "alltoall":
            share = len(inputs[0]) // ranks
            return np.concatenate([one[rank * share : (rank + 1) * share] for one in inputs])
        case "broadcast":
            return inputs[0]
    raise ValueError(collective)
