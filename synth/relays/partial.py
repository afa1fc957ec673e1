"""The schedules of phases 1 and 2 of a whole schedule, for any set of ready ranks (AdapCC, Sec. IV-C).

Phase 1 keeps the sends that the behavior tuples allow: only ready ranks contribute, and the others relay. It
serves every rank that the whole schedule serves.

Phase 2 brings the data of late ranks, in one of two ways. ``sum`` is phase 1 again with the late ranks as the
ready ranks; each rank adds the two results. ``copy`` broadcasts the data of every late rank over the same
trees, as in the paper; each rank adds them itself. ``sum`` moves less if many ranks are late; ``copy`` needs
no reduce stage. If the collective sums nothing, both are the same, and no results are added.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np

from probes.base import Bytes, Indices, Ints, Mask, UsageError, bytes_of, ints
from synth.collective import Collective, custom
from synth.rank_sets import RankSets, of_sets
from synth.relays.behavior import named_ranks, tree_behaviors
from synth.relays.chunk_trees import ChunkTree, chunk_trees
from synth.relays.tree_choice import dealt, loads
from synth.schedules import Schedule
from synth.simulation import replay
from synth.streams import streams_of

__all__ = [
    "WAYS",
    "Phase",
    "Way",
    "fastest_late_phase",
    "has_data",
    "late_phase",
    "late_schedule",
    "partial_phase",
    "partial_schedule",
]

Way = Literal["sum", "copy"]
WAYS: tuple[Way, ...] = get_args(Way)


@dataclass(frozen=True, eq=False)
class Phase:
    """A schedule for a part of the collective ``whole``; ``chunk`` maps its chunks to chunks of ``whole``.

    If ``whole`` sums a chunk, its value is the sum over all phases; otherwise one phase alone delivers it.
    """

    schedule: Schedule
    whole: Collective
    chunk: Ints

    def input_places(self, rank: int) -> Ints:
        """Return, for each slot of ``rank``'s input in this phase, its slot in the whole input."""
        own = self.schedule.collective.sources.has(rank)
        return self.whole.input_slots(rank)[self.chunk[own]]

    def output_places(self, rank: int) -> Ints:
        """Return, for each slot of ``rank``'s output in this phase, its slot in the whole output."""
        own = self.schedule.collective.targets.has(rank)
        return self.whole.output_slots(rank)[self.chunk[own]]


def partial_schedule(schedule: Schedule, active: Collection[int]) -> Schedule:
    """Return phase 1: ``schedule`` with the data of the ranks ``active`` only, the others as relays.

    Its collective is custom: active ranks contribute, and the targets are those of the whole collective.
    Chunks without any contribution are left out; `partial_phase` lists the others. If all ranks are active,
    the result is ``schedule`` itself. Raises NotApplicableError if a chunk's sends are no tree, UsageError if
    no rank is active or an active one does not take part. O(sends · log sends); the trees are cached.
    """
    return partial_phase(schedule, active).schedule


def late_schedule(schedule: Schedule, late: Collection[int], way: Way) -> Schedule:
    """Return phase 2, which brings the data of the ranks ``late`` to all that want it.

    The output of a rank holds the sum of the late ranks' data (``sum``), or a copy of the data of each, in
    the order of ranks (``copy``). Raises as `partial_schedule` does.
    """
    return late_phase(schedule, late, way).schedule


def fastest_late_phase(bases: Sequence[Schedule], late: Collection[int]) -> Phase:
    """Return the phase 2 with the least simulated time, of both ways and of all ``bases``.

    The bases are schedules of one collective. The fastest base for the data of all ranks need not be the
    fastest for a few: smaller pieces (`pieces.cut`) and the chains of a ring are often faster. The first of
    equal bases is taken, so that all ranks choose the same one.
    """
    made = [late_phase(base, late, way) for base in bases for way in WAYS]
    return min(made, key=lambda phase: replay(phase.schedule).time_s)


def has_data(schedule: Schedule, ranks: Collection[int]) -> bool:
    """Return whether any of ``ranks`` has data of the collective; without data they need no phase."""
    has = schedule.collective.sources.per_rank(schedule.network.ranks)
    return any(has[rank] for rank in ranks)


def partial_phase(schedule: Schedule, active: Collection[int], *, late_may_join: bool = False) -> Phase:
    """Return `partial_schedule` with the map from its chunks to chunks of the whole collective.

    With ``late_may_join``, other ranks also contribute to each chunk whose partial sum they receive: their
    steps receive before they send, so data that are ready by then can be added (Sec. IV-C). The sends are the
    same. A late rank that receives nothing of a chunk contributes nothing to it.
    """
    ready = _chosen(schedule, active, "active")
    whole = schedule.collective
    trees = chunk_trees(schedule)
    if all(tree.sources <= ready for tree in trees):
        return Phase(schedule, whole, ints(np.arange(whole.chunks)))
    keep = np.zeros(schedule.sends, dtype=bool)
    sets: list[tuple[frozenset[int], frozenset[int]]] = []
    for tree in trees:
        left = _left(tree, schedule.network.ranks, ready)
        keep[tree.rows[:, left]] = True
        joining = _adding(tree, left) - ready if late_may_join and tree.reduced else frozenset[int]()
        sources = tree.sources & (ready | joining)
        sets.append((sources, tree.targets if tree.reduced else _reached(tree, left, ready)))
    rows = np.flatnonzero(keep)
    chunk, wanted = _collective(schedule, trees, sets)
    number = np.full(whole.chunks, -1, dtype=np.int64)
    number[chunk] = np.arange(len(chunk))
    made = _build(schedule, wanted, number[schedule.chunk[rows]], rows, schedule.op[rows])
    return Phase(made, whole, ints(chunk))


def late_phase(schedule: Schedule, late: Collection[int], way: Way) -> Phase:
    """Return `late_schedule` with the map from its chunks to chunks of the whole collective."""
    if way not in WAYS:
        raise UsageError(f": expected {' or '.join(WAYS)}, found {way!r}", argument="way")
    missing = _chosen(schedule, late, "late")
    trees = chunk_trees(schedule)
    if way == "sum" and all(tree.sources <= missing for tree in trees):
        return partial_phase(schedule, missing)
    alike: dict[tuple[frozenset[int], frozenset[int], bool], list[ChunkTree]] = {}
    for tree in trees:
        alike.setdefault((tree.sources, tree.targets, tree.reduced), []).append(tree)
    items = [
        _Item(schedule, group, origins, way)
        for group in alike.values()
        for origins in _origins(group[0], missing, way)
    ]
    made = [_brought(schedule, items, taken, way) for taken in _choices(items)]
    return min(made, key=lambda phase: replay(phase.schedule).time_s)


def _choices(items: list[_Item]) -> list[list[Indices]]:
    """Return the assignments of trees to chunks worth trying: the schedule's, and `dealt`."""
    own: list[Indices] = [item.own for item in items]
    even = dealt([item.held for item in items], [len(item.chunks) for item in items])
    return [own] if all(map(np.array_equal, own, even)) else [own, even]


class _Item:
    """The data of the ranks ``origins``; each chunk may take any of ``trees``.

    ``own[n]`` is the tree of chunk n in the schedule. ``left[t]`` marks the sends of tree t that are needed;
    ``ends[t]`` are the ranks that then have the data.
    """

    def __init__(self, schedule: Schedule, trees: list[ChunkTree], origins: frozenset[int], way: Way) -> None:
        self.trees, self.origins = trees, origins
        self.chunks = np.sort(np.concatenate([tree.chunks for tree in trees]))
        self.own = np.empty(len(self.chunks), dtype=np.int64)
        for at, tree in enumerate(trees):
            self.own[np.searchsorted(self.chunks, tree.chunks)] = at
        ranks = schedule.network.ranks
        self.left = [
            _passing(tree, origins) if way == "copy" else _left(tree, ranks, origins) for tree in trees
        ]
        self.ends = [
            tree.targets if tree.reduced else _reached(tree, left, origins)
            for tree, left in zip(trees, self.left, strict=True)
        ]
        links = [schedule.link[tree.rows[0]][left] for tree, left in zip(trees, self.left, strict=True)]
        self.held = loads(schedule.network, schedule.chunk_bytes, links)


def _brought(schedule: Schedule, items: list[_Item], trees: list[Indices], way: Way) -> Phase:
    """Return the phase in which chunk n of item i takes the item's tree ``trees[i][n]``."""
    counts = [len(item.chunks) for item in items]
    owner = np.repeat([min(item.origins) if way == "copy" else 0 for item in items], counts)
    chunk = np.concatenate([item.chunks for item in items])
    order = np.lexsort((chunk, owner))
    number = np.empty(len(order), dtype=np.int64)
    number[order] = np.arange(len(order))
    origins: list[frozenset[int]] = []
    ends: list[frozenset[int]] = []
    carried: list[Indices] = []
    rows: list[Indices] = []
    first = 0
    for item, taken in zip(items, trees, strict=True):
        for at, (tree, left) in enumerate(zip(item.trees, item.left, strict=True)):
            mine = np.flatnonzero(taken == at)
            # The chunks that take a tree are spread in order over the tree's chunks in the schedule. Each is
            # sent in the place of the chunk to which it is assigned.
            turn = np.arange(len(mine)) * len(tree.rows) // max(1, len(mine))
            rows.append(tree.rows[turn][:, left].ravel())
            carried.append(np.repeat(number[first + mine], int(left.sum())))
        origins += [item.origins] * len(item.chunks)
        ends += [item.ends[tree] for tree in taken.tolist()]
        first += len(item.chunks)
    every_row, every_chunk = np.concatenate(rows), np.concatenate(carried)
    wanted = custom(
        schedule.network.ranks,
        of_sets([origins[at] for at in order.tolist()]),
        of_sets([ends[at] for at in order.tolist()]),
        schedule.collective.reduced[chunk[order]] & (way == "sum"),
    )
    turn = np.lexsort((every_chunk, every_row))
    op = schedule.op[every_row[turn]] * np.uint8(way == "sum")
    made = _build(schedule, wanted, every_chunk[turn], every_row[turn], op)
    return Phase(made, schedule.collective, ints(chunk[order]))


def _passing(tree: ChunkTree, origins: frozenset[int]) -> Mask:
    """Return for each send whether a broadcast from ``origins`` uses it: up to the root, then down.

    Ranks that the data reach on the way up get no second copy.
    """
    reached, left = set(origins), []
    for src, dst in zip(tree.src, tree.dst, strict=True):
        left.append(src in reached and dst not in reached)
        if left[-1]:
            reached.add(dst)
    return np.array(left, dtype=bool)


def _origins(tree: ChunkTree, late: frozenset[int], way: Way) -> list[frozenset[int]]:
    """Return the sets of late ranks whose data move together: single ranks if sums are copied, else all."""
    found = tree.sources & late
    if tree.reduced and way == "copy":
        return [frozenset({rank}) for rank in sorted(found)]
    return [found] if found else []


def _left(tree: ChunkTree, ranks: int, ready: frozenset[int]) -> Mask:
    """Return for each send of a chunk whether its source has data to send, by its behavior tuple."""
    stages = tree_behaviors(tree, ranks, ready)
    return np.array(
        [
            stages["reduce" if sums else "copy"][src].has_send
            for src, sums in zip(tree.src, tree.sums, strict=True)
        ],
        dtype=bool,
    )


def _adding(tree: ChunkTree, left: Mask) -> frozenset[int]:
    """Return the ranks that receive a partial sum over the sends ``left``."""
    sends = zip(tree.dst, tree.sums, left.tolist(), strict=True)
    return frozenset(dst for dst, sums, kept in sends if sums and kept)


def _reached(tree: ChunkTree, left: Mask, ready: frozenset[int]) -> frozenset[int]:
    """Return the targets that hold a chunk, which is not summed, at the end.

    Some targets may be missing if several ranks hold the chunk at first.
    """
    arrives = {dst for dst, kept in zip(tree.dst, left.tolist(), strict=True) if kept}
    return tree.targets & (arrives | (tree.sources & ready))


def _collective(
    schedule: Schedule, trees: tuple[ChunkTree, ...], sets: list[tuple[frozenset[int], frozenset[int]]]
) -> tuple[Indices, Collective]:
    """Return (chunks of the whole that some rank contributes to, their collective)."""
    whole = schedule.collective
    tree_of = np.empty(whole.chunks, dtype=np.int64)
    for at, tree in enumerate(trees):
        tree_of[tree.chunks] = at
    there = np.array([bool(sources and targets) for sources, targets in sets])
    chunk = np.flatnonzero(there[tree_of])
    # Trees that are left out need a placeholder, so that indices stay the same.
    sources, targets = (
        _shared([pair[at] or frozenset({0}) for pair in sets], tree_of[chunk]) for at in (0, 1)
    )
    return chunk, custom(whole.ranks, sources, targets, whole.reduced[chunk])


def _shared(sets: list[frozenset[int]], index: Indices) -> RankSets:
    """Return ``sets[i]`` for each i in ``index``."""
    each = of_sets(sets)
    return replace(each, group=ints(each.group[index]))


def _build(schedule: Schedule, wanted: Collective, chunk: Indices, rows: Indices, op: Bytes) -> Schedule:
    return replace(
        schedule,
        collective=wanted,
        chunk=ints(chunk),
        link=ints(schedule.link[rows]),
        op=bytes_of(op),
        stream=streams_of(schedule, rows),
        outcome=None,
    )


def _chosen(schedule: Schedule, ranks: Collection[int], name: str) -> frozenset[int]:
    """Return `named_ranks`; raise UsageError unless at least one of them has data."""
    chosen = named_ranks(schedule, ranks, name)
    if not has_data(schedule, chosen):
        whole = schedule.collective
        raise UsageError(
            f": expected a rank with data of the {whole.label}, found {sorted(chosen) or 'none'}",
            hint="Wait until such a rank is ready.",
            argument=name,
        )
    return chosen
