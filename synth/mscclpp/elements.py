"""Unfolds a plan into elements: steps of single threads, and steps of all threads on data.

Operations on data work cell by cell, on threads that do not synchronize before the next ``nop``. Single
threads signal, wait and hand puts to the proxy, a thread of the host that serves port channels: thread k does
so for the k-th channel of an operation.

An *atom* is a range of cells that every operation treats alike: an operation uses all of them or none, and
moves them to one atom of equal length. So one cell, the first, stands for its atom.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import compress
from typing import Any

import numpy as np

from probes.base import Indices, Mask
from synth.mscclpp.memory import UNITS, PlanMemory
from synth.mscclpp.plan import BUFFERS, ExecutionPlan, Operand, Operation, PlanRank, Threadblock

__all__ = ["End", "PlanElement", "atoms_of", "opposite_end", "unfold"]

# One end of a connection: (rank, "memory" or "port", peer, number of earlier channels to that peer).
End = tuple[int, str, int, int]
_PUTS = ("put", "get", "pws", "pwsf", "ppkt")
_SUMS = ("re", "res", "rre", "rres", "respkt", "repkt", "recpkt", "recspkt", "glres")


@dataclass(slots=True, eq=False)
class PlanElement:
    """One step of one thread (``thread`` ≥ 0), or of all threads on atoms (``thread`` -1).

    ``kind`` is nop, barrier, data, signal, wait, release, acquire or post. ``reads`` and ``writes`` have a
    row of atoms for each operand, all of one length: a thread that reads the k-th atom of each row also
    writes the k-th of each row. A post hands the copy to the proxy, which signals ``end`` afterwards if
    ``signals``. ``awaited`` are the cells of ``reads`` that are read as packets, once these arrive;
    ``packed`` are the cells of ``writes`` that are written as packets. An element with packets has one atom,
    except a post.
    """

    kind: str
    rank: int
    block: int
    place: tuple[int, ...]
    name: str
    thread: int = -1
    end: End | None = None
    counter: int = -1
    relaxed: bool = False
    adds: bool = False
    signals: bool = False
    flushes: bool = False
    reads: tuple[Indices, ...] = ()
    writes: tuple[Indices, ...] = ()
    awaited: frozenset[int] = frozenset()
    packed: frozenset[int] = frozenset()

    @property
    def where(self) -> str:
        """The position in the file, for messages."""
        inner = "".join(f".ops[{at}]" for at in self.place)
        return f"gpus[{self.rank}].threadblocks[{self.block}]{inner} ({self.name})"


def opposite_end(end: End) -> End:
    """Return the other end of a connection."""
    rank, kind, peer, number = end
    return peer, kind, rank, number


def unfold(
    plan: ExecutionPlan, memory: PlanMemory, atoms: Mask, rank: int, at: int, launch: int
) -> list[PlanElement]:
    """Return the elements of one threadblock in one launch, in program order."""
    return list(_Block(plan, memory, atoms, rank, at, launch).elements())


def atoms_of(plan: ExecutionPlan, memory: PlanMemory, launches: int) -> Mask:
    """Return for each cell whether it is the first of an atom; O(cells that operations touch).

    Operands begin and end with atoms, and so do the parts of buffers that the collective tells apart. A
    boundary within one operand of an operation is a boundary in its other operands, too.
    """
    heads = np.zeros(memory.total() + 1, dtype=bool)
    for rank, gpu in enumerate(plan.gpus):
        for buffer in BUFFERS:
            chunks = gpu.chunks(buffer)
            first = memory.first_cell(rank, buffer, 0)
            parts = memory.part(gpu) if buffer != "s" else max(1, chunks)
            heads[first : first + chunks * memory.cells + 1 : parts * memory.cells] = True
    one, two = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
    for launch in range(launches if plan.double_scratch else 1):
        for rank, gpu in enumerate(plan.gpus):
            for at in range(len(gpu.threadblocks)):
                for first, firsts, length in _Block(plan, memory, heads, rank, at, launch).alignments():
                    for each in (first, *firsts):
                        heads[each] = heads[each + length] = True
                    if length > 1:
                        inside = np.arange(1, length)
                        one += [first + inside] * len(firsts)
                        two += [each + inside for each in firsts]
    starts, aligned_starts = np.concatenate(one), np.concatenate(two)
    while len(apart := np.flatnonzero(heads[starts] != heads[aligned_starts])):
        heads[starts[apart]] = heads[aligned_starts[apart]] = True
    return heads


@dataclass(frozen=True, slots=True)
class _Span:
    """``length`` cells from each of ``firsts`` on, used as packets or as plain chunks."""

    firsts: tuple[int, ...]
    length: int
    packets: bool


class _Block:
    """The unfolding of one threadblock in one launch."""

    def __init__(
        self, plan: ExecutionPlan, memory: PlanMemory, atoms: Mask, rank: int, at: int, launch: int
    ) -> None:
        self.plan, self.memory, self.rank, self.at, self.launch = plan, memory, rank, at, launch
        self.atoms = atoms
        self.gpu: PlanRank = plan.gpus[rank]
        self.block: Threadblock = self.gpu.threadblocks[at]

    def elements(self) -> Iterator[PlanElement]:
        for number, operation in enumerate(self.block.operations):
            if operation.name != "pipeline":
                yield from self.operation(operation, (number,), -1)
                continue
            for unit in range(UNITS):
                for inside, inner in enumerate(operation.inner):
                    yield from self.operation(inner, (number, inside), unit)

    def operation(self, operation: Operation, place: tuple[int, ...], unit: int) -> Iterator[PlanElement]:
        name = operation.name
        if name in ("nop", "barrier"):
            yield self.element(operation, place, name, counter=operation.barrier)
        elif name in ("signal", "rlxsignal", "wait", "rlxwait"):
            kind = "signal" if name.endswith("signal") else "wait"
            # Over ports there is no relaxed kind: the executor does the same for both.
            relaxed = name.startswith("rlx") and operation.channel_type == "memory"
            for thread, channel in enumerate(operation.channels):
                end = self.end(operation.channel_type, channel)
                yield self.element(operation, place, kind, thread=thread, end=end, relaxed=relaxed)
        elif name in ("sem_acquire", "sem_release"):
            for thread, semaphore in enumerate(operation.semaphores):
                kind = name.removeprefix("sem_")
                yield self.element(operation, place, kind, thread=thread, counter=semaphore)
        elif name != "flush":
            # The executor's parser gives a flush no channels, so that it does nothing.
            yield from self.data(operation, place, unit)

    def alignments(self) -> Iterator[tuple[int, list[int], int]]:
        """Yield (first cell of an operand, first cells of the operands aligned with it, cells of each)."""
        for operation in self.block.operations:
            units = range(UNITS) if operation.name == "pipeline" else (-1,)
            for unit in units:
                for one in operation.inner if operation.name == "pipeline" else (operation,):
                    if not one.src and not one.dst:
                        continue
                    for sources, targets in self.aligned(one, unit):
                        firsts = [first for span in (*sources, *targets) for first in span.firsts]
                        if firsts:
                            yield firsts[0], firsts[1:], (*sources, *targets)[0].length

    def aligned(self, operation: Operation, unit: int) -> list[tuple[list[_Span], list[_Span]]]:
        """Return (sources, targets) of each part of an operation; all spans of a part have one length."""
        name, packs = operation.name, operation.name.endswith("pkt")
        if name in _PUTS:
            over_port = operation.channel_type == "port"
            return [
                (
                    [self.span(operation, source, unit, packets=packs and over_port)],
                    [self.span(operation, target, unit, packets=packs)],
                )
                for source, target in zip(operation.src, operation.dst, strict=True)
            ]
        waits, local = self.awaits(operation), 0 if name in ("rppkt", "cpkt") else 1
        sources = [
            self.span(operation, operand, unit, packets=waits[at]) for at, operand in enumerate(operation.src)
        ]
        targets = [
            self.span(operation, operand, unit, packets=packs and at >= local)
            for at, operand in enumerate(operation.dst)
        ]
        return [(sources, targets)]

    def awaits(self, operation: Operation) -> list[bool]:
        """Return for each source whether it is read as packets, once these arrive."""
        name = operation.name
        waits = name in ("rppkt", "upkt", "respkt", "repkt", "recpkt", "recspkt")
        return [waits and (at > 0 or name in ("rppkt", "upkt")) for at in range(len(operation.src))]

    def data(self, operation: Operation, place: tuple[int, ...], unit: int) -> Iterator[PlanElement]:
        name, packs = operation.name, operation.name.endswith("pkt")
        over_port = operation.channel_type == "port"
        parts = self.aligned(operation, unit)
        if name in _PUTS:
            for thread, ((source,), (target,)) in enumerate(parts):
                reads, writes = self.cells(source), self.cells(target)
                if over_port:
                    yield self.post(operation, place, thread, reads, writes, packs)
                elif packs:
                    for one, two in zip(_apart(reads), _apart(writes), strict=True):
                        cells = frozenset(_numbers(two))
                        yield self.element(operation, place, "data", reads=one, writes=two, packed=cells)
                else:
                    yield self.element(operation, place, "data", reads=reads, writes=writes)
            return
        # All other operations use the same range of cells in each of their operands.
        [(spans, into_spans)] = parts
        sources, targets = [self.cells(span) for span in spans], [self.cells(span) for span in into_spans]
        if name == "rppkt" and over_port:
            yield from self.forward(operation, place, sources[0], targets)
            return
        every = tuple(row for source in sources for row in source)
        into = tuple(row for target in targets for row in target)
        adds = name in _SUMS
        if not any(span.packets for span in (*spans, *into_spans)):
            yield self.element(operation, place, "data", reads=every, writes=into, adds=adds)
            return
        awaited = [span.packets for span in spans for _ in span.firsts]
        packed = [span.packets for span in into_spans for _ in span.firsts]
        for one, two in zip(_apart(every), _apart(into, len(every[0])), strict=True):
            yield self.element(
                operation,
                place,
                "data",
                reads=one,
                writes=two,
                adds=adds,
                awaited=frozenset(compress(_numbers(one), awaited)),
                packed=frozenset(compress(_numbers(two), packed)),
            )

    def forward(
        self,
        operation: Operation,
        place: tuple[int, ...],
        source: tuple[Indices, ...],
        targets: list[tuple[Indices, ...]],
    ) -> Iterator[PlanElement]:
        """Yield the elements that forward packets through the proxy: all threads wait, meet, then post."""
        for reads in _apart(source):
            yield self.element(operation, place, "data", reads=reads, awaited=frozenset(_numbers(reads)))
        yield self.element(operation, place, "nop")
        for thread, writes in enumerate(targets):
            yield self.post(operation, place, thread, source, writes, True)

    def post(
        self,
        operation: Operation,
        place: tuple[int, ...],
        thread: int,
        reads: tuple[Indices, ...],
        writes: tuple[Indices, ...],
        packs: bool,
    ) -> PlanElement:
        return self.element(
            operation,
            place,
            "post",
            thread=thread,
            end=self.end("port", operation.channels[thread]),
            reads=reads,
            writes=writes,
            packed=frozenset(np.concatenate(writes).tolist()) if packs else frozenset(),
            signals=operation.name in ("pws", "pwsf"),
            flushes=operation.name == "pwsf",
        )

    def end(self, kind: str, channel: int) -> End:
        """Return the rank's end of a channel; channels to one peer are counted from 0."""
        at = (self.block.memory if kind == "memory" else self.block.port)[channel]
        peers = self.gpu.peers(kind)
        return (self.rank, kind, peers[at], peers[:at].count(peers[at]))

    def span(self, operation: Operation, operand: Operand, unit: int, *, packets: bool) -> _Span:
        """Return the cells of an operand: at one rank, or at each rank of a switch group."""
        low, high = self.memory.range(operation, operand, unit)
        if operand.switch >= 0:
            group = self.gpu.switch[self.block.switch[operand.switch]]
            owners = [(rank, group.buffer) for rank in group.ranks]
        elif operand.remote >= 0:
            port = operation.channel_type == "port"
            ids = self.block.port_buffers if port else self.block.memory_buffers
            remote = self.gpu.remote_buffers[ids[operand.remote]]
            owners = [(remote.rank, remote.buffer)]
        else:
            owners = [(self.rank, operand.buffer)]
        firsts = [
            self.memory.first_cell(rank, buffer, self.launch, packets=packets) for rank, buffer in owners
        ]
        return _Span(tuple(first + low for first in firsts), high - low, packets)

    def cells(self, span: _Span) -> tuple[Indices, ...]:
        """Return the first cells of all atoms: one row, or one for each rank of a switch group."""
        begin = span.firsts[0]
        heads = np.flatnonzero(self.atoms[begin : begin + span.length])
        return tuple([heads + first for first in span.firsts])

    def element(self, operation: Operation, place: tuple[int, ...], kind: str, **fields: Any) -> PlanElement:
        return PlanElement(kind, self.rank, self.at, place, operation.name, **fields)


def _apart(rows: tuple[Indices, ...], atoms: int = 0) -> Iterator[tuple[Indices, ...]]:
    """Yield the rows of each single atom; without rows, yield ``atoms`` empty tuples."""
    for at in range(len(rows[0]) if rows else atoms):
        yield tuple(row[at : at + 1] for row in rows)


def _numbers(rows: tuple[Indices, ...]) -> list[int]:
    """Return the cell of each row of one atom."""
    return [int(row[0]) for row in rows]
