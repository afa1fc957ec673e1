"""Schedule → program: every send becomes a send step and a receive step, in the order of the table.

The lowering is plain: one threadblock for each peer and direction, no fusion. Because all steps
and all waits follow the order of the table, the program cannot deadlock, with any FIFO depth.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from probes.columns import Ints
from probes.errors import UsageError
from synth.collective import Collective
from synth.compiler.assemble import Assembler, Place, Slot
from synth.program import INPUT, OPS, OUTPUT, SCRATCH, Program
from synth.schedule import REDUCE, Schedule
from synth.slots import Slots

__all__ = ["lower"]

_S, _R, _CPY, _RRC = (OPS.index(op) for op in ("s", "r", "cpy", "rrc"))


def lower(schedule: Schedule, name: str = "") -> Program:
    """The program that carries out a schedule; linear in its sends.

    A chunk starts in its input slot; once it was received it lives in its output slot, or in a
    scratch slot where the collective gives it none. Hazards are tracked for each (rank, chunk), not
    for each slot, so one program is valid both out of place and in place.
    Raises UsageError where a rank sends a chunk that it does not hold.
    """
    collective, network = schedule.collective, schedule.network
    build = Assembler(collective)
    homes = _Homes(collective)
    hazards = _Hazards()
    channel_of = _channels(network.src, network.dst).tolist()
    src_of, dst_of = network.src.tolist(), network.dst.tolist()
    columns = (schedule.chunk.tolist(), schedule.link.tolist(), schedule.op.tolist())
    for row, (chunk, link, op) in enumerate(zip(*columns, strict=True)):
        src, dst, channel = src_of[link], dst_of[link], channel_of[link]
        origin = homes.where(src, chunk)
        if origin is None:
            raise UsageError(f"send {row}: rank {src} sends chunk {chunk}, of which it holds nothing")
        sender = build.threadblock(src, send=dst, channel=channel)
        sent = build.step(sender, _S, src=origin, after=hazards.before_read(src, chunk))
        hazards.read(src, chunk, sent)
        local = homes.where(dst, chunk) if op == REDUCE else None
        home = homes.settle(dst, chunk)
        receiver = build.threadblock(dst, recv=src, channel=channel)
        before = hazards.before_write(dst, chunk)
        if local is None:
            received = build.step(receiver, _R, dst=home, after=before)
        else:
            received = build.step(receiver, _RRC, src=local, dst=home, after=before)
        hazards.written(dst, chunk, received)
    _keep_own(build, homes)
    label = name or f"{schedule.method} {collective.label}"
    return build.program(label, homes.scratch, in_place=collective.in_place)


def _keep_own(build: Assembler, homes: _Homes) -> None:
    """Chunks that a rank holds, wants and never received are copied to its output."""
    slots = homes.slots
    for rank in range(slots.ranks):
        for slot, chunk in enumerate(slots.output_chunks(rank).tolist()):
            if homes.where(rank, chunk) == (INPUT, slots.input_of(rank, chunk)):
                tb = build.threadblock(rank)
                build.step(tb, _CPY, src=(INPUT, slots.input_of(rank, chunk)), dst=(OUTPUT, slot))


def _channels(src: Ints, dst: Ints) -> Ints:
    """For each link its number among the parallel links of the same pair."""
    order = np.lexsort((dst, src))
    key = src[order].astype(np.int64) * (int(dst.max(initial=0)) + 1) + dst[order]
    channel = np.empty(len(src), dtype=np.int32)
    channel[order] = np.arange(len(src)) - np.searchsorted(key, key)
    return channel


class _Homes:
    """Where each chunk lives on each rank, as the schedule proceeds."""

    def __init__(self, collective: Collective) -> None:
        self.slots = Slots(collective)
        self.scratch = [0] * collective.ranks
        self._home: dict[Place, Slot] = {}

    def where(self, rank: int, chunk: int) -> Slot | None:
        """The slot that holds the chunk now, or None."""
        home = self._home.get((rank, chunk))
        if home is not None:
            return home
        slot = self.slots.input_of(rank, chunk)
        return (INPUT, slot) if slot >= 0 else None

    def settle(self, rank: int, chunk: int) -> Slot:
        """The chunk arrives: it lives in its home from now on."""
        home = self._home.get((rank, chunk))
        if home is None:
            slot = self.slots.output_of(rank, chunk)
            home = (OUTPUT, slot) if slot >= 0 else (SCRATCH, self.scratch[rank])
            self.scratch[rank] += slot < 0
            self._home[rank, chunk] = home
        return home


class _Hazards:
    """The last write of each (rank, chunk) and the reads since: RAW, WAR and WAW."""

    def __init__(self) -> None:
        self._write: dict[Place, Place] = {}
        self._reads: defaultdict[Place, list[Place]] = defaultdict(list)

    def before_read(self, rank: int, chunk: int) -> list[Place]:
        write = self._write.get((rank, chunk))
        return [write] if write else []

    def before_write(self, rank: int, chunk: int) -> list[Place]:
        """The reads since the last write ran after it, so they stand for it too."""
        return self._reads.get((rank, chunk)) or self.before_read(rank, chunk)

    def read(self, rank: int, chunk: int, place: Place) -> None:
        self._reads[rank, chunk].append(place)

    def written(self, rank: int, chunk: int, place: Place) -> None:
        self._write[rank, chunk] = place
        self._reads.pop((rank, chunk), None)
