"""Lowers a schedule whose sums and copies inside hosts are a switch's to an MSCCL++ plan.

On one host an all_reduce is one ``glres`` a chunk at the rank that owns it: its threads add a word up at all
ranks of the switch channel and store the sum there (``multimem.ld_reduce``, ``multimem.st``). An all_gather
is one ``gstore`` a chunk. Before that every rank hears of all others that their data is there, and after it
that their results have arrived. The threadblocks of a rank share these signals, and meet at a barrier.

The executor has no sum that stays at one rank. So with several hosts ``glres`` stores the sums of a host in
the scratch of all its ranks, which costs half as much again. A port sends from scratch: the owner of a chunk
receives the sums of the other hosts there, adds them up, sends the total back, and a ``gstore`` in each host
copies it to the outputs. A block goes through these phases with all its chunks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from probes.base import UsageError
from synth.collective import Collective
from synth.mscclpp.plan import (
    COLLECTIVES,
    ExecutionPlan,
    Operand,
    Operation,
    PlanRank,
    RemoteBuffer,
    Switch,
    Threadblock,
)
from synth.mscclpp.well_formed import MOST_CHANNELS, MOST_CHANNELS_AN_OPERATION, MOST_OPERATIONS
from synth.schedules import REDUCE, Schedule

__all__ = ["switch_plan"]

# NCCL 2.30.7 runs NVLS with 16 threadblocks on Hopper (``NVLS_NCHANNELS_SM90`` in src/transport/nvls.cc).
_BLOCKS = 16
_NOP = Operation("nop")
_SCRATCH = "s"
_HINT = "It can do an all_reduce or all_gather of all ranks, by the owners of the chunks."


def switch_plan(schedule: Schedule, name: str = "", *, in_place: bool | None = None) -> ExecutionPlan:
    """Return the plan of a proven schedule of `synth.methods.nvls`; with ``in_place`` None, it is in place.

    Raises UsageError for a schedule that MSCCL++ has no operations for: sums that stay at one rank, copies by
    another rank than the one that summed, and sends inside hosts that no switch carries out.
    """
    collective = schedule.collective
    if collective.kind not in ("all_reduce", "all_gather") or not collective.whole:
        raise UsageError(f"with switches a plan of MSCCL++ cannot do {collective.label}", hint=_HINT)
    roles = _roles(schedule)
    placed, blocks = in_place is not False, min(_BLOCKS, roles.most)
    hosts = np.bincount(schedule.network.host_of)
    blocks = max(blocks, -(-(int(hosts.max()) - 1) // MOST_CHANNELS))
    while True:
        gpus = [
            _Rank(collective, roles, rank, blocks, in_place=placed).gpu() for rank in range(collective.ranks)
        ]
        stored = max(block.stored for gpu in gpus for block in gpu.threadblocks)
        if stored <= MOST_OPERATIONS or blocks >= roles.most:
            break
        blocks = min(roles.most, -(-blocks * stored // MOST_OPERATIONS))
    made = ExecutionPlan(
        name=name or f"{schedule.method} {collective.label}",
        collective=COLLECTIVES[collective.kind],
        protocol="Simple",
        in_place=placed,
        gpus=tuple(gpus),
    )
    return made.within(0, made.most_bytes)


@dataclass(frozen=True)
class _Roles:
    """``copied[r]`` are the chunks that rank r copies to its host, the ranks ``members[r]``.

    ``home[c]`` is the rank that sends chunk c to other hosts. ``partners[r]`` are the ranks of other hosts
    that copy the same chunks as rank r.
    """

    members: list[list[int]]
    copied: list[list[int]]
    partners: list[list[int]]
    home: dict[int, int]

    @property
    def most(self) -> int:
        """The most chunks that a rank copies."""
        return max(map(len, self.copied))

    @cached_property
    def arrival(self) -> dict[int, int]:
        """The first place of each chunk's sums of other hosts among those that arrive at its home."""
        counts, found = [0] * len(self.members), {}
        for chunk, home in sorted(self.home.items()):
            found[chunk] = counts[home]
            counts[home] += len(self.partners[home])
        return found


def _roles(schedule: Schedule) -> _Roles:
    network, host_of = schedule.network, schedule.network.host_of
    copied: list[list[int]] = [[] for _ in range(network.ranks)]
    copiers: dict[int, list[int]] = defaultdict(list)
    home: dict[int, int] = {}
    reader: dict[tuple[int, int], int] = {}
    begins = (np.diff(schedule.multimem, prepend=-1) != 0) | (schedule.multimem < 0)
    for row in np.flatnonzero(begins).tolist():
        chunk, link, op = int(schedule.chunk[row]), int(schedule.link[row]), int(schedule.op[row])
        src, dst = int(network.src[link]), int(network.dst[link])
        one = dst if op == REDUCE else src
        host = int(host_of[one])
        if schedule.multimem[row] < 0:
            if host_of[src] == host_of[dst]:
                raise UsageError("in a plan with switches ranks of a host do not send", hint=_HINT)
            home.setdefault(chunk, one)
        elif op == REDUCE:
            reader[chunk, host] = one
        else:
            if (summed := reader.get((chunk, host), one)) != one:
                raise UsageError(
                    f"rank {summed} sums chunk {chunk}, and rank {one} copies the sum", hint=_HINT
                )
            copied[one].append(chunk)
            copiers[chunk].append(one)
    for chunk, ranks in copiers.items():
        home.setdefault(chunk, ranks[0])
    return _Roles(
        [np.flatnonzero(host_of == host).tolist() for host in host_of],
        # A block's messages to a partner come in the order of the chunks at both ends.
        [sorted(chunks) for chunks in copied],
        [
            sorted({other for chunk in chunks for other in copiers[chunk]} - {rank})
            for rank, chunks in enumerate(copied)
        ],
        home,
    )


class _Rank:
    """A rank of the plan. Scratch has the sum of each chunk, then what arrives from other hosts."""

    def __init__(
        self, collective: Collective, roles: _Roles, rank: int, blocks: int, *, in_place: bool
    ) -> None:
        self._shape, self._roles, self._rank, self._blocks = collective, roles, rank, blocks
        self._source, self._target = collective.input_slots(rank), collective.output_slots(rank)
        self._partners = roles.partners[rank]
        self._sums = collective.kind == "all_reduce"
        buffers = ["i"] if self._sums and in_place else ["i", "o"] if self._sums else ["o"]
        self._output = len(buffers) - 1
        if self._partners and self._sums:
            buffers.append(_SCRATCH)
        self._switches = tuple(Switch(buffer, tuple(roles.members[rank])) for buffer in buffers)

    def gpu(self) -> PlanRank:
        """Return the rank."""
        peers = [peer for peer in self._roles.members[self._rank] if peer != self._rank]
        ports, apart = tuple(range(len(self._partners))), len(self._partners)
        threadblocks = []
        for block in range(self._blocks):
            channels = tuple(range(block, len(peers), self._blocks))
            operations = [
                *_over("memory", range(len(channels)), "rlxsignal", "rlxwait"),
                *_over("port", ports, "signal", "wait"),
                *_barrier(0, self._blocks),
                *self._moves(self._roles.copied[self._rank][block :: self._blocks]),
                *_barrier(1, self._blocks),
                *_over("memory", range(len(channels)), "signal", "wait"),
            ]
            threadblocks.append(
                Threadblock(
                    tuple(operations),
                    memory=channels,
                    port=tuple(range(block * apart, (block + 1) * apart)),
                    switch=tuple(range(len(self._switches))),
                    port_buffers=ports,
                )
            )
        mine = sum(home == self._rank for home in self._roles.home.values())
        arrivals = mine * apart if self._sums else 0
        return PlanRank(
            input_chunks=int((self._source >= 0).sum()),
            output_chunks=int((self._target >= 0).sum()),
            scratch_chunks=self._shape.chunks + arrivals if apart else 0,
            memory=tuple(peers),
            port=tuple(self._partners) * self._blocks,
            switch=self._switches,
            remote_buffers=tuple(RemoteBuffer(peer, _SCRATCH, ("port",)) for peer in self._partners),
            semaphores=(),
            threadblocks=tuple(threadblocks),
        )

    def _moves(self, chunks: Sequence[int]) -> Iterator[Operation]:
        """Yield what a block does with its chunks, between the barriers."""
        if not self._partners:
            yield from map(self._sum if self._sums else self._copy, chunks)
            return
        here = [chunk for chunk in chunks if self._roles.home[chunk] == self._rank]
        away = [chunk for chunk in chunks if self._roles.home[chunk] != self._rank]
        ports = range(len(self._partners))
        yield from map(self._sum if self._sums else self._staged, chunks if self._sums else here)
        yield _NOP
        if self._sums:
            for chunk in away:
                home = self._roles.home[chunk]
                place = self._roles.partners[home].index(self._rank)
                yield self._put(chunk, home, self._arrived(chunk) + place)
        for chunk in here:
            if self._sums:
                yield from _over("port", ports, "wait")
                yield from (_NOP, self._total(chunk), _NOP)
            for partner in self._partners:
                yield self._put(chunk, partner, chunk)
        yield from map(self._copy, here)
        for chunk in away:
            yield from _over("port", [self._port(self._roles.home[chunk])], "wait")
            yield from (_NOP, self._copy(chunk))
        # Acknowledge totals: after that their senders may overwrite them.
        homes = sorted({self._port(self._roles.home[chunk]) for chunk in away})
        yield from (_NOP, *_over("port", homes, "signal"))
        if here:
            yield from _over("port", ports, "wait")

    def _arrived(self, chunk: int) -> int:
        """Return the first slot at a chunk's home for the sums of other hosts."""
        return self._shape.chunks + self._roles.arrival[chunk]

    def _port(self, partner: int) -> int:
        return self._partners.index(partner)

    def _sum(self, chunk: int) -> Operation:
        """Return the sum of a chunk over the host: in its output, or with several hosts in scratch."""
        given = Operand(int(self._source[chunk]), 1, switch=0)
        slot = chunk if self._partners else int(self._target[chunk])
        into = Operand(slot, 1, switch=len(self._switches) - 1)
        return Operation("glres", (given,), (into,), "switch", reduce_op="sum")

    def _staged(self, chunk: int) -> Operation:
        return Operation("copy", (Operand(int(self._source[chunk]), 1, "i"),), (Operand(chunk, 1, _SCRATCH),))

    def _put(self, chunk: int, partner: int, slot: int) -> Operation:
        port = self._port(partner)
        there = Operand(slot, 1, remote=port)
        return Operation("pws", (Operand(chunk, 1, _SCRATCH),), (there,), "port", (port,))

    def _total(self, chunk: int) -> Operation:
        first = self._arrived(chunk)
        slots = (chunk, *range(first, first + len(self._partners)))
        given = tuple(Operand(slot, 1, _SCRATCH) for slot in slots)
        return Operation("re", given, (Operand(chunk, 1, _SCRATCH),), reduce_op="sum")

    def _copy(self, chunk: int) -> Operation:
        into = Operand(int(self._target[chunk]), 1, switch=self._output)
        at_hand = Operand(chunk, 1, _SCRATCH) if self._partners else Operand(int(self._source[chunk]), 1, "i")
        return Operation("gstore", (at_hand,), (into,), "switch")


def _over(kind: str, channels: Sequence[int], *names: str) -> list[Operation]:
    """Return operations over all channels of a block, as many at once as an operation has, name by name."""
    most = MOST_CHANNELS_AN_OPERATION
    batches = [tuple(channels[at : at + most]) for at in range(0, len(channels), most)]
    return [Operation(name, channel_type=kind, channels=batch) for name in names for batch in batches]


def _barrier(number: int, blocks: int) -> list[Operation]:
    return [_NOP, Operation("barrier", barrier=number, blocks=blocks), _NOP]
