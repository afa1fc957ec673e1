"""Unfolds a plan into elements: steps of single threads, and steps of all threads on one cell.

Operations on data work cell by cell, on threads that do not synchronize before the next ``nop``. Single
threads signal, wait and hand puts to the proxy: thread k serves the k-th channel of an operation.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from synth.mscclpp.memory import PlanMemory
from synth.mscclpp.plan import ExecutionPlan, Operand, Operation, PlanRank, Threadblock

__all__ = ["End", "PlanElement", "ends", "unfold"]

# One end of a connection: (rank, "memory" or "port", peer, number of earlier channels to that peer).
End = tuple[int, str, int, int]
_SUMS = ("re", "res", "rre", "rres", "respkt", "repkt", "recpkt", "recspkt", "glres")


@dataclass(slots=True, eq=False)
class PlanElement:
    """One step of one thread (``thread`` ≥ 0), or of all threads on one cell (``thread`` -1).

    ``kind`` is nop, barrier, data, signal, wait, release, acquire or post. A post hands ``reads`` and
    ``writes`` to the proxy, which signals ``end`` afterwards if ``signals``. ``awaited`` are the cells of
    ``reads`` that are read as packets, once these arrive; ``packed`` are the cells of ``writes`` that are
    written as packets.
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
    reads: tuple[int, ...] = ()
    writes: tuple[int, ...] = ()
    awaited: frozenset[int] = field(default_factory=frozenset)
    packed: frozenset[int] = field(default_factory=frozenset)

    @property
    def where(self) -> str:
        """The position in the file, for messages."""
        inner = "".join(f".ops[{at}]" for at in self.place)
        return f"gpus[{self.rank}].threadblocks[{self.block}]{inner} ({self.name})"


def ends(gpu: PlanRank, rank: int, kind: str) -> list[End]:
    """Return the rank's end of the connection for each channel of type ``kind``."""
    counts: dict[int, int] = {}
    found = []
    for peer in gpu.peers(kind):
        found.append((rank, kind, peer, counts.get(peer, 0)))
        counts[peer] = counts.get(peer, 0) + 1
    return found


def other(end: End) -> End:
    """Return the other end of a connection."""
    rank, kind, peer, number = end
    return peer, kind, rank, number


def unfold(plan: ExecutionPlan, memory: PlanMemory, rank: int, at: int, launch: int) -> list[PlanElement]:
    """Return the elements of one threadblock in one launch, in program order."""
    return list(_Block(plan, memory, rank, at, launch).elements())


class _Block:
    def __init__(self, plan: ExecutionPlan, memory: PlanMemory, rank: int, at: int, launch: int) -> None:
        self.plan, self.memory, self.rank, self.at, self.launch = plan, memory, rank, at, launch
        self.gpu: PlanRank = plan.gpus[rank]
        self.block: Threadblock = self.gpu.threadblocks[at]
        self.ends = {kind: ends(self.gpu, rank, kind) for kind in ("memory", "port")}

    def elements(self) -> Iterator[PlanElement]:
        for number, operation in enumerate(self.block.operations):
            if operation.name != "pipeline":
                yield from self.operation(operation, (number,), -1)
                continue
            for unit in range(self.memory.units):
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

    def data(self, operation: Operation, place: tuple[int, ...], unit: int) -> Iterator[PlanElement]:
        name, packs = operation.name, operation.name.endswith("pkt")
        over_port = operation.channel_type == "port"
        if name in ("put", "get", "pws", "pwsf", "ppkt"):
            for thread, (source, target) in enumerate(zip(operation.src, operation.dst, strict=True)):
                reads = self.cells(operation, source, unit, packets=packs and over_port)
                writes = self.cells(operation, target, unit, packets=packs)
                if not over_port:
                    for one, two in zip(reads, writes, strict=True):
                        yield self.element(
                            operation,
                            place,
                            "data",
                            reads=one,
                            writes=two,
                            packed=frozenset(two) if packs else frozenset(),
                        )
                else:
                    yield self.post(operation, place, thread, reads, writes, packs)
            return
        # All other operations use the same range of cells in each of their operands.
        waits = name in ("rppkt", "upkt", "respkt", "repkt", "recpkt", "recspkt")
        sources = [
            self.cells(operation, operand, unit, packets=waits and (at > 0 or name in ("rppkt", "upkt")))
            for at, operand in enumerate(operation.src)
        ]
        local = 0 if name in ("rppkt", "cpkt") else 1
        targets = [
            self.cells(operation, operand, unit, packets=packs and at >= local)
            for at, operand in enumerate(operation.dst)
        ]
        awaits = [waits and (at > 0 or name in ("rppkt", "upkt")) for at in range(len(sources))]
        makes = [packs and at >= local for at in range(len(targets))]
        if name == "rppkt" and over_port:
            yield from self.forward(operation, place, sources[0], targets)
            return
        for cell in range(len(sources[0])):
            every = tuple(one for source in sources for one in source[cell])
            into = tuple(one for target in targets for one in target[cell])
            yield self.element(
                operation,
                place,
                "data",
                reads=every,
                writes=into,
                adds=name in _SUMS,
                awaited=frozenset(
                    one for source, on in zip(sources, awaits, strict=True) if on for one in source[cell]
                ),
                packed=frozenset(
                    one for target, on in zip(targets, makes, strict=True) if on for one in target[cell]
                ),
            )

    def forward(
        self,
        operation: Operation,
        place: tuple[int, ...],
        source: list[tuple[int, ...]],
        targets: list[list[tuple[int, ...]]],
    ) -> Iterator[PlanElement]:
        """Yield the elements that forward packets through the proxy: all threads wait, meet, then post."""
        for reads in source:
            yield self.element(operation, place, "data", reads=reads, awaited=frozenset(reads))
        yield self.element(operation, place, "nop")
        for thread, writes in enumerate(targets):
            yield self.post(operation, place, thread, source, writes, True)

    def post(
        self,
        operation: Operation,
        place: tuple[int, ...],
        thread: int,
        reads: list[tuple[int, ...]],
        writes: list[tuple[int, ...]],
        packs: bool,
    ) -> PlanElement:
        flat = tuple(cell for cells in writes for cell in cells)
        return self.element(
            operation,
            place,
            "post",
            thread=thread,
            end=self.end("port", operation.channels[thread]),
            reads=tuple(cell for cells in reads for cell in cells),
            writes=flat,
            packed=frozenset(flat) if packs else frozenset(),
            signals=operation.name in ("pws", "pwsf"),
            flushes=operation.name == "pwsf",
        )

    def end(self, kind: str, channel: int) -> End:
        ids = self.block.memory if kind == "memory" else self.block.port
        return self.ends[kind][ids[channel]]

    def cells(
        self, operation: Operation, operand: Operand, unit: int, *, packets: bool
    ) -> list[tuple[int, ...]]:
        """Return the numbers of each cell: one, or one for each rank of a switch group."""
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
        firsts = [self.memory.of(rank, buffer, self.launch, packets=packets) for rank, buffer in owners]
        return [tuple(first + at for first in firsts) for at in range(low, high)]

    def element(self, operation: Operation, place: tuple[int, ...], kind: str, **of: Any) -> PlanElement:
        return PlanElement(kind, self.rank, self.at, place, operation.name, **of)
