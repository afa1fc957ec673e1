"""The effect of each operation of a plan, as atoms that a driver puts in an order.

An atom is a step of one thread, or of all threads for one chunk. An atom may wait for a condition, and reads
before it writes. The effects follow the executor's sources alone (``execution_kernel.hpp``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from exec.runtimes import Numbers
from exec.runtimes.mscclpp.machine import UNITS, Atom, BufferSpan, Channel, PlanMachine, cells_of
from exec.runtimes.mscclpp.ordering import BlockPlace
from probes.base import Ints
from synth.mscclpp import Operand, Operation

__all__ = ["atoms_of"]

# The number of leading operands that are plain data; the others are packets.
_PLAIN_SOURCES = {"rppkt": 0, "upkt": 0, "respkt": 1, "repkt": 1, "recpkt": 1, "recspkt": 1}
_PLAIN_TARGETS = {"ppkt": 0, "rppkt": 0, "cpkt": 0, "respkt": 1, "recpkt": 1, "recspkt": 1}


def atoms_of(machine: PlanMachine, where: BlockPlace, operation: Operation, launch: int) -> list[Atom]:
    """Return the atoms of an operation, in the order in which each thread comes to them."""
    return list(_Effects(machine, where, operation, launch).atoms())


class _Effects:
    """One operation of a threadblock in a launch."""

    def __init__(self, machine: PlanMachine, where: BlockPlace, operation: Operation, launch: int) -> None:
        self.machine, self.where, self.operation, self.launch = machine, where, operation, launch
        self.rank = where.rank
        self.gpu = machine.plan.gpus[self.rank]
        self.block = self.gpu.threadblocks[where.block]
        self.ordering = machine.ordering
        self.number = self.ordering.thread("block", self.rank, where.block)

    def atoms(self) -> Iterator[Atom]:
        operation = self.operation
        name, over_port = operation.name.removeprefix("rlx"), operation.channel_type == "port"
        if name in ("signal", "wait"):
            for thread, channel in enumerate(operation.channels):
                end = self._channel(channel)
                yield self._wait(end, thread) if name == "wait" else self._signal(end, thread)
        elif name in ("sem_acquire", "sem_release"):
            for thread, semaphore in enumerate(operation.semaphores):
                yield self._semaphore(semaphore, thread)
        elif over_port and name in ("put", "pws", "pwsf", "ppkt", "rppkt"):
            for thread, target in enumerate(operation.dst):
                source = operation.src[0 if name == "rppkt" else thread]
                yield from self._by_proxy(source, target, thread)
        elif name in ("put", "get", "ppkt"):
            for one, two in zip(operation.src, operation.dst, strict=True):
                yield from self._together((one,), (two,))
        elif name not in ("nop", "barrier", "flush", "pipeline"):
            yield from self._together(operation.src, operation.dst)

    def _channel(self, at: int) -> Channel:
        kind = self.operation.channel_type
        ids = self.block.memory if kind == "memory" else self.block.port
        peers = self.gpu.peers(kind)
        peer = peers[ids[at]]
        return self.rank, kind, peer, peers[: ids[at]].count(peer)

    def _count_up(self, channel: Channel, known: Ints) -> None:
        self.machine.sent[channel] = self.machine.sent.get(channel, 0) + 1
        self.ordering.count_up(channel, known)

    def _signal(self, channel: Channel, thread: int) -> Atom:
        if channel[1] != "port":
            return self._atom(
                thread, lambda: self._count_up(channel, self.ordering.knows(self.number, thread))
            )
        proxy = self.machine.proxy(channel)
        request = self._atom(-1, lambda: self._count_up(channel, self.ordering.release(proxy)))
        return self._atom(thread, self._asking(channel, request, thread))

    def _wait(self, channel: Channel, thread: int) -> Atom:
        rank, kind, peer, number = channel
        source, machine = (peer, kind, rank, number), self.machine

        def ready() -> bool:
            return machine.sent.get(source, 0) > machine.received.get(source, 0)

        def act() -> None:
            machine.received[source] = machine.received.get(source, 0) + 1
            known = self.ordering.count_down(source)
            if known is not None:
                self.ordering.learn(self.number, thread, known)

        return Atom(thread, (act,), ready, f"{self.where} waits for a signal of rank {peer}")

    def _semaphore(self, number: int, thread: int) -> Atom:
        values, key = self.machine.ranks[self.rank].semaphores, ("semaphore", self.rank, number)

        def release() -> None:
            values[number] += 1
            self.ordering.count_up(key, self.ordering.knows(self.number, thread))

        def acquire() -> None:
            values[number] -= 1
            known = self.ordering.count_down(key, self.gpu.semaphores[number])
            if known is not None:
                self.ordering.learn(self.number, thread, known)

        if self.operation.name == "sem_release":
            return self._atom(thread, release)
        words = f"{self.where} waits for semaphore {number}"
        return Atom(thread, (acquire,), lambda: values[number] > 0, words)

    def _atom(self, thread: int, *acts: Callable[[], None]) -> Atom:
        return Atom(thread, acts, None, str(self.where))

    def _asking(
        self, channel: Channel, request: Atom, thread: int, *extra: Callable[[], list[Ints]]
    ) -> Callable[[], None]:
        """Return the act by which a thread queues a request for its proxy.

        The request hands on all that the thread knows by then.
        """

        def ask() -> None:
            known = [self.ordering.knows(self.number, thread), *(other for more in extra for other in more())]
            clock = np.maximum.reduce(known)
            proxy = self.machine.proxy(channel)
            first = request.acts[0]

            def begin() -> None:
                self.ordering.take_over(proxy, clock)
                first()

            acts = (begin, *request.acts[1:])
            self.machine.proxies.setdefault(channel, deque()).append(replace(request, acts=acts))

        return ask

    def _owners(self, operand: Operand) -> list[tuple[int, str]]:
        if operand.switch >= 0:
            group = self.gpu.switch[self.block.switch[operand.switch]]
            return [(peer, group.buffer) for peer in group.ranks]
        if operand.remote >= 0:
            over_port = self.operation.channel_type == "port"
            ids = self.block.port_buffers if over_port else self.block.memory_buffers
            remote = self.gpu.remote_buffers[ids[operand.remote]]
            return [(remote.rank, remote.buffer)]
        return [(self.rank, operand.buffer)]

    def _spans(self, operand: Operand, *, registered: bool = False) -> list[list[BufferSpan]]:
        """Return the spans of an operand, piece by piece: one on each rank that has it.

        A piece is a chunk or a part of a chunk. The executor registers allocations, not buffers. Where a
        buffer begins in its allocation, it takes from this rank for remote operands, too, and ignores for
        operands that its proxy reads.
        """
        machine, operation = self.machine, self.operation
        length, unit = machine.length, self.where.unit
        size = operand.size * length
        if unit >= 0:
            low, high = size * unit // UNITS, size * (unit + 1) // UNITS
        else:
            low, high = (_offset(size, operation.slice + more, operation.slices) for more in (0, 1))
        owners = self._owners(operand)
        offset = 0 if operand.buffer else machine.ranks[self.rank].offset.get(owners[0][1], 0)
        first = (operand.index + offset) * length
        edges = sorted({low, high, *range(-(-low // length) * length, high, length)})
        half = self.launch % 2 if machine.plan.double_scratch else 0
        registered = registered or not operand.buffer
        return [
            [
                BufferSpan(machine, owner, buffer, half, first + begin, first + end, registered)
                for owner, buffer in owners
            ]
            for begin, end in pairwise(edges)
        ]

    def _by_proxy(self, source: Operand, target: Operand, thread: int) -> Iterator[Atom]:
        """Yield the atoms of a put by proxy.

        The thread queues one request. The proxy then reads, writes and, for pws and pwsf, signals. For pwsf
        the thread waits for the end of the request.
        """
        operation, packets = self.operation, self.operation.name in ("ppkt", "rppkt")
        channel = self._channel(operation.channels[thread])
        proxy = self.machine.proxy(channel)
        place = replace(self.where, proxy=True)
        spans = list(zip(self._spans(source, registered=True), self._spans(target), strict=True))
        copies: list[Numbers] = []

        def read() -> None:
            for source_cells, _ in spans:
                for array in source_cells[0].packet() if packets else (source_cells[0].plain(),):
                    copies.append(array.copy())
                data = source_cells[0].packet()[0] if packets else source_cells[0].plain()
                self.ordering.cells.read(cells_of(data), proxy, place)

        def write() -> None:
            values = iter(copies)
            written = []
            for _, two in spans:
                for array in two[0].packet() if packets else (two[0].plain(),):
                    array[:] = next(values)
                data = two[0].packet()[0] if packets else two[0].plain()
                self.ordering.cells.write(cells_of(data), proxy, place)
                written.append(data)
            if packets:
                known = self.ordering.release(proxy)
                for data in written:
                    self.ordering.send_packets(cells_of(data), known)

        acts: list[Callable[[], None]] = [read, write]
        done: list[Ints] = []
        if operation.name in ("pws", "pwsf"):
            acts.append(lambda: self._count_up(channel, self.ordering.release(proxy)))
        if operation.name == "pwsf":
            acts.append(lambda: done.append(self.ordering.release(proxy)))
        awaited = [source_cells[0] for source_cells, _ in spans] if operation.name == "rppkt" else []
        request = Atom(-1, tuple(acts), None, str(place))
        ask = self._asking(channel, request, thread, lambda: self._packets_known(awaited))
        words = f"{self.where} waits for packets"
        yield Atom(thread, (ask,), (lambda: self._arrived(awaited)) if awaited else None, words)
        if operation.name == "pwsf":
            yield Atom(
                thread,
                (lambda: self.ordering.learn(self.number, thread, done[0]),),
                lambda: bool(done),
                f"{self.where} waits for its proxy",
            )

    def _arrived(self, packets: Sequence[BufferSpan]) -> bool:
        return all((span.packet()[1] == self.launch).all() for span in packets)

    def _packets_known(self, packets: Sequence[BufferSpan]) -> list[Ints]:
        found = []
        for span in packets:
            cells = cells_of(span.packet()[0])
            self.ordering.cells.read(cells, self.number, self.where, free=True)
            found += self.ordering.packets_from(cells)
        for known in found:
            self.ordering.learn(self.number, -1, known)
        return found

    def _together(self, sources: Sequence[Operand], targets: Sequence[Operand]) -> Iterator[Atom]:
        """Yield an atom per chunk or part: all threads sum the sources and store at the targets."""
        name = self.operation.name
        given, taken = ([self._spans(operand) for operand in operands] for operands in (sources, targets))
        from_packets = _PLAIN_SOURCES.get(name, len(given))
        to_packets = _PLAIN_TARGETS.get(name, len(taken))
        for at in range(len(given[0])):
            yield self._sum(
                [span for spans in given[:from_packets] for span in spans[at]],
                [span for spans in given[from_packets:] for span in spans[at]],
                [span for spans in taken[:to_packets] for span in spans[at]],
                [span for spans in taken[to_packets:] for span in spans[at]],
            )

    def _sum(
        self,
        plain: list[BufferSpan],
        packets: list[BufferSpan],
        into: list[BufferSpan],
        packed: list[BufferSpan],
    ) -> Atom:
        """Return the atom that adds plain and packet sources, and stores at plain and packet targets."""
        sums: list[Numbers] = []
        known: list[Ints] = []
        cells = self.ordering.cells

        def read() -> None:
            for span in plain:
                cells.read(cells_of(span.plain()), self.number, self.where)
            known.extend(self._packets_known(packets))
            parts = [span.plain() for span in plain] + [span.packet()[0] for span in packets]
            sums.append(np.sum(parts, axis=0) if len(parts) > 1 else parts[0].copy())

        def write() -> None:
            follows = np.maximum.reduce(known) if known else None
            for span in into:
                cells.write(cells_of(span.plain()), self.number, self.where, follows)
                span.plain()[:] = sums[0]
            if not packed:
                return
            clock = self.ordering.now(self.number, -1)
            for span in packed:
                data, flag = span.packet()
                cells.write(cells_of(data), self.number, self.where, follows)
                data[:] = sums[0]
                flag[:] = self.launch
                self.ordering.send_packets(cells_of(data), clock)

        words = f"{self.where} waits for packets"
        return Atom(-1, (read, write), (lambda: self._arrived(packets)) if packets else None, words)


def _offset(size: int, at: int, slices: int) -> int:
    """Return the start of slice ``at`` if ``size`` is cut into ``slices`` as in the executor."""
    least, remainder = divmod(size, slices)
    return at * least + min(at, remainder)
