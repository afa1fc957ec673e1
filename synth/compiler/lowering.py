"""Lowering of a schedule to a program: sends become operations on chunks, which are then compiled.

A chunk starts in its input slot. A received chunk is kept in its output slot, or in a scratch slot if it has
no output slot on that rank.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from probes.base import Floats, Indices, Mask, UsageError, floats, spans
from synth.collective import Collective
from synth.compiler.addends import exchanging_dag
from synth.compiler.chunk_dag import ASSIGN, LOAD_REDUCE, REDUCE, STORE, ChunkDag
from synth.compiler.compile import compiled_program
from synth.compiler.merging import merged
from synth.compiler.threadblocks import looked_up
from synth.memory_layout import Side, side_of
from synth.multimem import operations, refuse_switches
from synth.program import INPUT, OUTPUT, SCRATCH, SENDS, Program
from synth.schedules import REDUCE as REDUCING, Schedule, Timing
from synth.simulation import replay
from synth.streams import busiest_s_per_byte, divided

__all__ = ["chunk_dag_of", "lower"]

# Sums and results get separate connections if they overlap for more than this share of the schedule's time.
_OVERLAP = 0.1


def lower(
    schedule: Schedule,
    name: str = "",
    *,
    instances: int = 1,
    fuse: bool = True,
    most_chunks: int = 1,
    grid: int = 0,
) -> Program:
    """Return the program that runs a schedule, with its sends in the schedule's order where possible.

    The program is valid out of place and, if the collective allows it, in place. Streams are paced. Messages
    of adjacent chunks are merged into messages of at most ``most_chunks``. With ``grid``, buffers have that
    many chunks, and each chunk of the schedule is a range of them. Raises UsageError if a rank sends a chunk
    that it does not hold, and if a switch would reach different slots of the ranks' buffers.
    """
    dag = chunk_dag_of(schedule, name)
    if most_chunks > 1:
        dag = merged(dag, most_chunks)
    program = compiled_program(dag, instances=instances, fuse=fuse, grid=grid)
    if not len(schedule.stream):
        return program
    return replace(program, tb_bytes_per_s=_paces(schedule, program))


def _paces(schedule: Schedule, program: Program) -> Floats:
    """Return the rate of each threadblock at which it finishes together with the busiest link or port.

    Without these rates, sums that no rank needs yet fill the ports, and results wait behind the sums: four
    hosts, one at 40 Mbit/s and one pair at 20, took 2.1 s instead of 1.8 (benchmarks/lab_cases.py).
    """
    sends = np.array(SENDS)[program.op]
    carried = np.bincount(program.tb_of, weights=program.count * sends, minlength=program.threadblocks)
    return floats(carried / busiest_s_per_byte(schedule))


def chunk_dag_of(schedule: Schedule, name: str = "") -> ChunkDag:
    """Return the operations of a schedule, and copies of input chunks to output; O(sends · log sends)."""
    collective = schedule.collective
    if schedule.exchanges:
        refuse_switches(schedule, "a program of exchanged sums")
        return exchanging_dag(schedule, name, _channels(schedule, replay(schedule)))
    row, src, dst, own = _with_own(schedule)
    homes = _Homes(collective, schedule.chunk[row].astype(np.int64), dst)
    from_buffer, from_slot = homes.before(src)
    if (from_slot < 0).any():
        at = int(np.flatnonzero(from_slot < 0)[0])
        raise UsageError(
            f"send {row[at]}: rank {src[at]} sends chunk {homes.chunk[at]}, of which it holds nothing"
        )
    with_buffer, with_slot = homes.before(dst)
    to_buffer, to_slot = homes.after(dst)
    # A reduce into a slot that holds nothing is a copy.
    sums = schedule.op[row] == REDUCING
    reduces, stays = sums & (with_slot >= 0), np.ones(len(row), dtype=bool)
    op = np.where(reduces, REDUCE, ASSIGN)
    if schedule.uses_switches:
        by_switch = schedule.multimem[row] >= 0
        op, stays = np.where(own, np.where(sums, LOAD_REDUCE, STORE), op), own | ~by_switch
        places = np.where(sums, [from_buffer, from_slot], [to_buffer, to_slot])
        _require_one_place(homes.chunk, places, own, by_switch)
    kept_rank, kept_in, kept_out = homes.kept()
    timing = replay(schedule)
    kept, channel = len(kept_rank), _channels(schedule, timing)

    def column(values: Indices, of_kept: Indices | int) -> Indices:
        return np.concatenate([values[stays], np.broadcast_to(np.int64(of_kept), kept)]).astype(np.int64)

    nothing = np.full(len(row), -1)
    moments = np.unique(np.concatenate([timing.start_s, timing.arrival_s]))
    return ChunkDag(
        name=name or f"{schedule.method} {collective.label}",
        collective=collective,
        protocol="Simple",
        scratch_chunks=tuple(homes.scratch.tolist()),
        op=column(op, ASSIGN),
        src_rank=column(src, kept_rank),
        src_buffer=column(from_buffer, INPUT),
        src_slot=column(from_slot, kept_in),
        dst_rank=column(dst, kept_rank),
        dst_buffer=column(to_buffer, OUTPUT),
        dst_slot=column(to_slot, kept_out),
        with_buffer=column(np.where(reduces, with_buffer, to_buffer), OUTPUT),
        with_slot=column(np.where(reduces, with_slot, to_slot), kept_out),
        count=column(np.ones_like(src), 1),
        send_tb=column(nothing, -1),
        recv_tb=column(nothing, -1),
        channel=column(channel[row] if channel.any() else nothing, -1),
        line=column(np.zeros_like(src), 0),
        starts=column(np.searchsorted(moments, timing.start_s)[row], 0),
        ends=column(np.searchsorted(moments, timing.arrival_s)[row], 0),
        in_place=collective.in_place,
        group=_groups(schedule),
    )


def _with_own(schedule: Schedule) -> tuple[Indices, Indices, Indices, Mask]:
    """Return (row, src, dst, own): all sends, and before each operation of a switch one that is its own.

    The rank that reads a sum or writes copies sends this one to itself; ``row`` is a row of the schedule.
    """
    network, link, row = schedule.network, schedule.link, np.arange(schedule.sends)
    src, dst = network.src[link].astype(np.int64), network.dst[link].astype(np.int64)
    own = np.zeros(schedule.sends, dtype=bool)
    if not schedule.uses_switches:
        return row, src, dst, own
    heads = row[(operations(schedule)[0] == row) & (schedule.multimem >= 0)]
    one = np.where(schedule.op == REDUCING, dst, src)[heads]
    row, own = np.insert(row, heads, heads), np.insert(own, heads, True)
    return row, np.insert(src, heads, one), np.insert(dst, heads, one), own


def _require_one_place(chunk: Indices, places: Indices, own: Mask, by_switch: Mask) -> None:
    """Raise UsageError if an operation of a switch would need different slots at the ranks of its host."""
    first = np.maximum.accumulate(np.where(own, np.arange(len(own)), 0))
    apart = np.flatnonzero(by_switch & (places != places[:, first]).any(axis=0))
    if len(apart):
        raise UsageError(
            f"chunk {chunk[apart[0]]} lies in different slots of the ranks' buffers, "
            "and a switch reaches one place"
        )


def _groups(schedule: Schedule) -> Indices:
    """Return the number of each rank's group: its host, or one of its own; empty if switches do nothing."""
    if not schedule.uses_switches:
        return np.zeros(0, dtype=np.int64)
    network, link = schedule.network, schedule.link[schedule.multimem >= 0]
    group: Indices = network.ranks + np.arange(network.ranks)
    members = np.concatenate([network.src[link], network.dst[link]])
    group[members] = network.host_of[members]
    return group


def _channels(schedule: Schedule, timing: Timing) -> Indices:
    """Return for each send the number of its connection among those between the same ranks.

    Each stream has its own connection, so that no stream waits for another. Without streams each parallel
    link has one connection. A link that carries both sums and results has two if these overlap much in time,
    because in a shared connection a late message would delay all messages behind it.
    """
    if len(schedule.stream):
        return _numbered(schedule)
    network, link = schedule.network, schedule.link
    adds = schedule.op == REDUCING
    last_sum_s = timing.start_s[adds].max(initial=0.0)
    first_result_s = timing.start_s[~adds].min(initial=np.inf)
    overlap = last_sum_s - first_result_s > _OVERLAP * timing.time_s
    carries = [np.bincount(link[one], minlength=network.links) > 0 for one in (adds, ~adds)]
    split = carries[0] & carries[1] & overlap
    order = np.lexsort((network.dst, network.src))
    pair = network.src[order].astype(np.int64) * network.ranks + network.dst[order]
    needed = 1 + split[order].astype(np.int64)
    before = np.cumsum(needed) - needed
    first = np.empty(network.links, dtype=np.int64)
    first[order] = before - before[np.searchsorted(pair, pair)]
    channel: Indices = first[link] + (split[link] & ~adds)
    return channel


def _numbered(schedule: Schedule) -> Indices:
    """Return for each send the number of its stream among those between the same ranks."""
    streams = divided(schedule).network
    order = np.lexsort((streams.dst, streams.src))
    pair = streams.src[order].astype(np.int64) * streams.ranks + streams.dst[order]
    number = np.empty(streams.links, dtype=np.int64)
    number[order] = np.arange(streams.links) - np.searchsorted(pair, pair)
    channel: Indices = number[schedule.stream]
    return channel


class _Homes:
    """The place of each chunk on each rank, before and after each send of a schedule."""

    def __init__(self, collective: Collective, chunk: Indices, dst: Indices) -> None:
        self.chunks, self.chunk = np.int64(collective.chunks), chunk
        self.inputs = side_of(collective.sources, collective.ranks)
        self.outputs = side_of(collective.targets, collective.ranks)
        # The places (rank and chunk) that receive, and the first send to each.
        self.places, self.first = np.unique(dst * self.chunks + self.chunk, return_index=True)
        slot = _slot(self.outputs, self.places, self.chunks)
        self.buffer = np.where(slot >= 0, OUTPUT, SCRATCH)
        lacking = np.flatnonzero(slot < 0)
        lacking = lacking[np.lexsort((self.first[lacking], self.places[lacking] // self.chunks))]
        rank = self.places[lacking] // self.chunks
        self.scratch = np.bincount(rank, minlength=collective.ranks)
        slot[lacking] = spans(np.zeros_like(self.scratch), self.scratch)
        self.slot = slot

    def before(self, rank: Indices) -> tuple[Indices, Indices]:
        """Return (buffer, slot) of each send's chunk on ``rank`` when it starts; slot -1: none."""
        place = rank * self.chunks + self.chunk
        at = np.minimum(np.searchsorted(self.places, place), max(0, len(self.places) - 1))
        if not len(self.places):
            return place, place
        arrived = (self.places[at] == place) & (self.first[at] < np.arange(len(place)))
        input_slot = _slot(self.inputs, place, self.chunks)
        return np.where(arrived, self.buffer[at], INPUT), np.where(arrived, self.slot[at], input_slot)

    def after(self, rank: Indices) -> tuple[Indices, Indices]:
        """Return (buffer, slot) of each send's chunk on ``rank`` once it has arrived."""
        at = np.searchsorted(self.places, rank * self.chunks + self.chunk)
        return self.buffer[at], self.slot[at]

    def kept(self) -> tuple[Indices, Indices, Indices]:
        """Return (rank, input slot, output slot) of input chunks that are also output and never received."""
        place = self.outputs.rank * self.chunks + self.outputs.chunk
        input_slot = _slot(self.inputs, place, self.chunks)
        rows = np.flatnonzero((input_slot >= 0) & ~np.isin(place, self.places))
        return self.outputs.rank[rows], input_slot[rows], self.outputs.slot[rows]


def _slot(side: Side, place: Indices, chunks: np.int64) -> Indices:
    """Return the slot of each place, rank · chunks + chunk; -1 if it has none."""
    return looked_up(side.rank * chunks + side.chunk, side.slot, place)
