"""The chunk DAG of a schedule whose sends carry addends: ranks receive the parts separately and add them up.

Each part of a sum is received into a scratch slot of its own, so that a rank can send its sum while another
part arrives. A sum is computed when a send needs it, and a rank's result at the end. Ranks that sum the same
parts add them in the same order, so their results are equal bit by bit. If the collective fixes the order of
sums, all ranks add in that order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from probes.base import Indices
from synth.compiler.chunk_dag import ASSIGN, REDUCE, ChunkDag
from synth.memory_layout import Side, side_of
from synth.program import INPUT, OUTPUT, SCRATCH
from synth.schedules import REDUCE as REDUCING, Schedule
from synth.simulation import replay

__all__ = ["exchanging_dag"]

# A rank's own part. All other parts have the row of the send that brought them, which is at least 0.
_OWN = -1
_Parts = frozenset[int]
"""The addends of a sum: `_OWN`, and the rows of the sends that brought the other parts."""


class _Place(NamedTuple):
    buffer: int
    slot: int


class _Operation(NamedTuple):
    op: int
    src_rank: int
    src: _Place
    dst_rank: int
    dst: _Place
    channel: int
    starts: int
    ends: int


@dataclass
class _Slot:
    """A chunk at a rank: the places of its parts, and the sums computed from some of them."""

    rank: int
    chunk: int
    parts: list[int]
    places: dict[int, _Place]
    # The parts that each later send carries from here, in the schedule's order; last the result's parts.
    carried: list[_Parts] = field(default_factory=list)
    sums: dict[_Parts, _Place] = field(default_factory=dict)


def exchanging_dag(schedule: Schedule, name: str, channel: Indices) -> ChunkDag:
    """Return the chunk DAG of a schedule with addends, given each send's ``channel``; O(sends + addends)."""
    return _Lowering(schedule, channel).dag(name)


class _Lowering:
    def __init__(self, schedule: Schedule, channel: Indices) -> None:
        collective, network = schedule.collective, schedule.network
        self.schedule = schedule
        self.scratch = [0] * network.ranks
        self.operations: list[_Operation] = []
        inputs, outputs = (
            _slots(side_of(sets, network.ranks)) for sets in (collective.sources, collective.targets)
        )
        self.outputs = outputs
        self.slots: dict[tuple[int, int], _Slot] = {}
        for rank, chunk in dict.fromkeys((*inputs, *outputs)):
            own = {_OWN: _Place(INPUT, inputs[rank, chunk])} if (rank, chunk) in inputs else {}
            self.slots[rank, chunk] = _Slot(rank, chunk, list(own), own)
        self.src = network.src[schedule.link].tolist()
        self.dst = network.dst[schedule.link].tolist()
        timing = replay(schedule)
        moments = np.unique(np.concatenate([timing.start_s, timing.arrival_s]))
        self.starts = np.searchsorted(moments, timing.start_s).tolist()
        self.ends = np.searchsorted(moments, timing.arrival_s).tolist()
        self.last = len(moments)
        self.channel = channel.tolist() if channel.any() else [-1] * schedule.sends
        # For each send, the ranks whose contributions it carries, as bits.
        self.contributors: list[int] = []
        # For each chunk, the distinct sets of contributors among its sends, the largest first.
        self.carried_sets: dict[int, list[int]] = {}
        # For each group of sources, the position of each rank in the group.
        self.places: dict[int, dict[int, int]] = {}

    def dag(self, name: str) -> ChunkDag:
        schedule = self.schedule
        carried = self._carried()
        for row, (chunk, op) in enumerate(zip(schedule.chunk.tolist(), schedule.op.tolist(), strict=True)):
            source, target = self._slot(self.src[row], chunk), self._slot(self.dst[row], chunk)
            source.carried.pop(0)
            place = self._sum(source, carried[row], self.starts[row])
            if op == REDUCING:
                brought = self._scratch(target.rank)
            else:
                brought = self._home(target)
                target.parts, target.sums = [], {}
            target.parts.append(row)
            target.places[row] = brought
            self.operations.append(
                _Operation(
                    ASSIGN,
                    source.rank,
                    place,
                    target.rank,
                    brought,
                    self.channel[row],
                    self.starts[row],
                    self.ends[row],
                )
            )
        for (rank, chunk), slot in self.outputs.items():
            result, home = self.slots[rank, chunk], _Place(OUTPUT, slot)
            place = self._sum(result, result.carried.pop(0), self.last)
            if place != home:
                self._do(ASSIGN, rank, place, home, self.last)
        return self._columns(name)

    def _carried(self) -> list[_Parts]:
        """Return the parts that each send carries; append them to ``carried`` of the slot that it reads."""
        schedule, found = self.schedule, []
        parts: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
        for (rank, chunk), slot in self.slots.items():
            parts[rank, chunk] = list(slot.parts)
        start, addend = schedule.addend_start.tolist(), schedule.addend.tolist()
        for row, (chunk, op) in enumerate(zip(schedule.chunk.tolist(), schedule.op.tolist(), strict=True)):
            source, target = (self.src[row], chunk), (self.dst[row], chunk)
            listed = addend[start[row] : start[row + 1]]
            holder = self._slot(*source)
            found.append(frozenset(listed) or self._whole(holder, parts[source]))
            holder.carried.append(found[row])
            self.contributors.append(sum(self._contributors(holder, part) for part in found[row]))
            parts[target] = [*(parts[target] if op == REDUCING else ()), row]
        for rank, chunk in self.outputs:
            result = self.slots[rank, chunk]
            result.carried.append(self._whole(result, parts[rank, chunk]))
        sets: defaultdict[int, set[int]] = defaultdict(set)
        for chunk, carried in zip(schedule.chunk.tolist(), self.contributors, strict=True):
            sets[chunk].add(carried)
        self.carried_sets = {
            chunk: sorted(every, key=lambda one: (-one.bit_count(), one)) for chunk, every in sets.items()
        }
        return found

    def _whole(self, slot: _Slot, parts: Sequence[int]) -> _Parts:
        """Return the parts that sum up to all that a slot holds.

        If sums have a fixed order, a part that another part contains is left out.
        """
        if self.schedule.collective.sum_order == "any":
            return frozenset(parts)
        part_of = {self._contributors(slot, part): part for part in parts}
        return frozenset(
            part
            for held, part in part_of.items()
            if not any(held & larger == held != larger for larger in part_of)
        )

    def _slot(self, rank: int, chunk: int) -> _Slot:
        return self.slots.setdefault((rank, chunk), _Slot(rank, chunk, [], {}))

    def _sum(self, slot: _Slot, wanted: _Parts, when: int) -> _Place:
        """Return the place of the sum of these parts; add the operations for it if it is new."""
        if len(wanted) == 1:
            return slot.places[next(iter(wanted))]
        if wanted in slot.sums:
            return slot.sums[wanted]
        groups = self._grouped(slot, wanted)
        places = {group: self._sum(slot, group, when) for group in groups}
        # A sum of two has the same bits in either order, so either of the first two may be the accumulator.
        # The rank's own part may be the accumulator only at its last use, because the sum overwrites the
        # output slot, which in place is the input slot.
        last_use = all(_OWN not in later or self._contains(slot, later, wanted) for later in slot.carried)
        front = groups[:2]
        grows = [one for one in front if one in slot.sums and last_use and one not in slot.carried]
        own_part = frozenset({_OWN})
        if grows:
            into, ordered = slot.sums.pop(grows[0]), [one for one in groups if one != grows[0]]
        elif own_part in front and last_use:
            into, ordered = self._home(slot), [one for one in groups if one != own_part]
            self._do(ASSIGN, slot.rank, places[own_part], into, when)
        else:
            into, ordered = self._scratch(slot.rank), groups[1:]
            self._do(ASSIGN, slot.rank, places[groups[0]], into, when)
        for group in ordered:
            self._do(REDUCE, slot.rank, places[group], into, when)
        slot.sums[wanted] = into
        return into

    def _contains(self, slot: _Slot, later: _Parts, wanted: _Parts) -> bool:
        """Return whether the sum ``later`` is made from the sum ``wanted``."""
        if later == wanted:
            return True
        groups = self._grouped(slot, later) if wanted < later else []
        return any(self._contains(slot, group, wanted) for group in groups if wanted <= group)

    def _grouped(self, slot: _Slot, wanted: _Parts) -> list[_Parts]:
        """Return the parts in groups, the same on every rank; each sum that some send carries is a group."""
        bits_of = {part: self._contributors(slot, part) for part in wanted}
        if self.schedule.collective.sum_order == "aligned":
            return self._halves(slot.chunk, bits_of)
        whole = sum(bits_of.values())
        groups: list[_Parts] = []
        left = set(wanted)
        for carried in self.carried_sets[slot.chunk]:
            inside = frozenset(part for part in left if bits_of[part] & carried == bits_of[part])
            fits = carried != whole and sum(bits_of[part] for part in inside) == carried
            if fits and len(inside) > 1:
                groups.append(inside)
                left -= inside
        groups += [frozenset({part}) for part in left]
        return sorted(groups, key=lambda group: _lowest(sum(bits_of[part] for part in group)))

    def _halves(self, chunk: int, bits_of: dict[int, int]) -> list[_Parts]:
        """Return the parts below the left and below the right child of their sum in the aligned tree."""
        place = self._places(chunk)
        first = {part: place[_lowest(bits).bit_length() - 1] for part, bits in bits_of.items()}
        leaves = sum(bits.bit_count() for bits in bits_of.values())
        middle = min(first.values()) + (1 << (leaves - 1).bit_length() - 1)
        left = frozenset(part for part in bits_of if first[part] < middle)
        return [left, frozenset(bits_of) - left]

    def _places(self, chunk: int) -> dict[int, int]:
        """Return the position of each source of a chunk among all its sources."""
        sources = self.schedule.collective.sources
        group = int(sources.group[chunk])
        if group not in self.places:
            self.places[group] = {rank: place for place, rank in enumerate(sources.of(chunk).tolist())}
        return self.places[group]

    def _contributors(self, slot: _Slot, part: int) -> int:
        """Return the ranks whose contributions a part holds, as bits."""
        return 1 << slot.rank if part == _OWN else self.contributors[part]

    def _home(self, slot: _Slot) -> _Place:
        """Return the chunk's output slot, or a new scratch slot if it has none."""
        output = self.outputs.get((slot.rank, slot.chunk))
        return self._scratch(slot.rank) if output is None else _Place(OUTPUT, output)

    def _scratch(self, rank: int) -> _Place:
        self.scratch[rank] += 1
        return _Place(SCRATCH, self.scratch[rank] - 1)

    def _do(self, op: int, rank: int, src: _Place, dst: _Place, when: int) -> None:
        self.operations.append(_Operation(op, rank, src, rank, dst, -1, when, when))

    def _columns(self, name: str) -> ChunkDag:
        collective, every = self.schedule.collective, self.operations
        flat = [
            (one.op, one.src_rank, *one.src, one.dst_rank, *one.dst, one.channel, one.starts, one.ends)
            for one in every
        ]
        table = np.array(flat, dtype=np.int64).reshape(-1, 10).T
        op, src_rank, src_buffer, src_slot, dst_rank, dst_buffer, dst_slot, channel, starts, ends = table
        nothing = np.full(len(every), -1)
        return ChunkDag(
            name=name or f"{self.schedule.method} {collective.label}",
            collective=collective,
            protocol="Simple",
            scratch_chunks=tuple(self.scratch),
            op=op,
            src_rank=src_rank,
            src_buffer=src_buffer,
            src_slot=src_slot,
            dst_rank=dst_rank,
            dst_buffer=dst_buffer,
            dst_slot=dst_slot,
            with_buffer=dst_buffer,
            with_slot=dst_slot,
            count=np.ones_like(op),
            send_tb=nothing,
            recv_tb=nothing,
            channel=channel,
            line=np.zeros_like(op),
            starts=starts,
            ends=ends,
            in_place=collective.in_place,
        )


def _lowest(bits: int) -> int:
    return bits & -bits


def _slots(side: Side) -> dict[tuple[int, int], int]:
    """Return the slot of each (rank, chunk)."""
    return dict(
        zip(zip(side.rank.tolist(), side.chunk.tolist(), strict=True), side.slot.tolist(), strict=True)
    )
