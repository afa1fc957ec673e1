"""The schedules of phases 1 and 2 of a whole schedule, for any set of ready ranks (AdapCC, Sec. IV-C).

Phase 1 is the sends that the behavior tuples leave: only ready ranks contribute, every rank that the whole
schedule serves is served, and ranks that are not ready relay. Phase 2 brings what came late, in one of two
ways: ``sum`` is phase 1 once more, with the late ranks as the ready ones, and each rank adds one result to
the other; ``copy`` broadcasts the data of every late rank over the same trees, as the paper has it, and
each rank adds them up itself. The first moves less where many are late, the second has no second
stage to wait for. For collectives that sum nothing both are the same, and the results stand side by side.
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
    "faster_way",
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
    """A schedule that does a part of ``whole``, and of which chunk of it each of its chunks is (a part).

    Where ``whole`` sums a chunk, what all phases bring of it is added up; else one phase alone brings it.
    """

    schedule: Schedule
    whole: Collective
    chunk: Ints

    def input_places(self, rank: int) -> Ints:
        """Return the slot in the whole collective's input of each slot of ``rank``'s input in this phase."""
        own = self.schedule.collective.sources.has(rank)
        return self.whole.input_slots(rank)[self.chunk[own]]

    def output_places(self, rank: int) -> Ints:
        """Return, for each slot of ``rank``'s output in this phase, its slot in the whole collective's
        output.
        """
        own = self.schedule.collective.targets.has(rank)
        return self.whole.output_slots(rank)[self.chunk[own]]


def partial_schedule(schedule: Schedule, active: Collection[int]) -> Schedule:
    """Phase 1: ``schedule`` with the data of the ranks ``active`` only, the others as relays.

    Its collective is custom: the contributions are those of the active ranks, the targets those of the whole.
    Chunks without any contribution are left out; `partial_phase` lists the others. If all ranks are active,
    the result is ``schedule`` itself. Raises NotApplicableError if a chunk's sends are no tree, UsageError if
    no rank is active or an active one does not take part. O(sends · log sends); the trees are cached.
    """
    return partial_phase(schedule, active).schedule


def late_schedule(schedule: Schedule, late: Collection[int], way: Way) -> Schedule:
    """Phase 2: the data of the ranks ``late`` brought to all that want it; raises as `partial_schedule` does.

    The output of a rank holds one sum of the late ranks' data (``sum``), or one copy of the data of each,
    in the order of their numbers (``copy``).
    """
    return late_phase(schedule, late, way).schedule


def fastest_late_phase(bases: Sequence[Schedule], late: Collection[int]) -> Phase:
    """Return the phase 2 that simulates fastest, of all ways and of these schedules of one collective.

    A schedule that is best for the data of all need not be so for those of few: finer pieces (`pieces.cut`)
    and the chains of a ring often are. The first of equals; so all ranks choose alike.
    """
    made = [late_phase(base, late, way) for base in bases for way in WAYS]
    return min(made, key=lambda phase: replay(phase.schedule).time_s)


def faster_way(schedule: Schedule, late: Collection[int]) -> Way:
    """Return the way of phase 2 that simulates faster on the schedule's network.

    ``sum`` where both are as fast.
    """
    time_s = {way: replay(late_schedule(schedule, late, way)).time_s for way in WAYS}
    return min(WAYS, key=lambda way: time_s[way])


def has_data(schedule: Schedule, ranks: Collection[int]) -> bool:
    """Return whether any of ``ranks`` has data of the collective.

    Without, they have no phase of their own.
    """
    has = schedule.collective.sources.per_rank(schedule.network.ranks)
    return any(has[rank] for rank in ranks)


def partial_phase(schedule: Schedule, active: Collection[int], *, late_may_join: bool = False) -> Phase:
    """Return `partial_schedule`, and which chunks of the whole its chunks are.

    With ``late_may_join`` the other ranks contribute, too, to each chunk of which they pass a part of the sum
    on, or finish it: their steps receive before they send, so that what is ready by then can be added
    (Sec. IV-C). The sends are the same. A late rank that would begin a chunk contributes nothing to it.
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
    made = _made(schedule, wanted, number[schedule.chunk[rows]], rows, schedule.op[rows])
    return Phase(made, whole, ints(chunk))


def late_phase(schedule: Schedule, late: Collection[int], way: Way) -> Phase:
    """Return `late_schedule`, and which chunks of the whole its chunks are."""
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
    """Return the trees of each item's chunks in the ways that are worth a try: its own, and evenly dealt."""
    own: list[Indices] = [item.own for item in items]
    even = dealt([item.held for item in items], [len(item.chunks) for item in items])
    return [own] if all(map(np.array_equal, own, even)) else [own, even]


class _Item:
    """Data of ``origins``, all of whose chunks may take any of some trees; ``own`` says which is whose.

    ``left[t]`` are the sends of tree t that bring them to all that want them; ``ends[t]`` are these.
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
    """Return the phase in which each chunk of each item takes that one of the item's trees that
    ``trees`` names.
    """
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
            # As its own chunks do in the whole schedule, those that take a tree follow one another.
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
    made = _made(schedule, wanted, every_chunk[turn], every_row[turn], op)
    return Phase(made, schedule.collective, ints(chunk[order]))


def _passing(tree: ChunkTree, origins: frozenset[int]) -> Mask:
    """Return for each send whether it carries data of ``origins``: up to the root of a sum, then down.

    A rank that data pass on their way up needs no copy of them from above.
    """
    reached, left = set(origins), []
    for src, dst in zip(tree.src, tree.dst, strict=True):
        left.append(src in reached and dst not in reached)
        if left[-1]:
            reached.add(dst)
    return np.array(left, dtype=bool)


def _origins(tree: ChunkTree, late: frozenset[int], way: Way) -> list[frozenset[int]]:
    """Return the late ranks whose data of a chunk move together: as copies of a sum each alone, else all."""
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
    """Return the ranks that receive a part of a sum by the sends ``left``."""
    sends = zip(tree.dst, tree.sums, left.tolist(), strict=True)
    return frozenset(dst for dst, sums, kept in sends if sums and kept)


def _reached(tree: ChunkTree, left: Mask, ready: frozenset[int]) -> frozenset[int]:
    """Return the targets that end with a chunk that is not summed: where several ranks hold it,
    perhaps not all.
    """
    arrives = {dst for dst, kept in zip(tree.dst, left.tolist(), strict=True) if kept}
    return tree.targets & (arrives | (tree.sources & ready))


def _collective(
    schedule: Schedule, trees: tuple[ChunkTree, ...], sets: list[tuple[frozenset[int], frozenset[int]]]
) -> tuple[Indices, Collective]:
    """Return (the chunks of the whole that somebody contributes to, the collective of these)."""
    whole = schedule.collective
    tree_of = np.empty(whole.chunks, dtype=np.int64)
    for at, tree in enumerate(trees):
        tree_of[tree.chunks] = at
    there = np.array([bool(sources and targets) for sources, targets in sets])
    chunk = np.flatnonzero(there[tree_of])
    # Trees that are left out need no set, but the table needs an entry.
    sources, targets = (
        _shared([pair[at] or frozenset({0}) for pair in sets], tree_of[chunk]) for at in (0, 1)
    )
    return chunk, custom(whole.ranks, sources, targets, whole.reduced[chunk])


def _shared(sets: list[frozenset[int]], of: Indices) -> RankSets:
    """Return ``sets[i]`` for each i in ``of``."""
    each = of_sets(sets)
    return replace(each, group=ints(each.group[of]))


def _made(schedule: Schedule, wanted: Collective, chunk: Indices, rows: Indices, op: Bytes) -> Schedule:
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
    """Return `named_ranks` of which at least one has data; raises UsageError otherwise."""
    chosen = named_ranks(schedule, ranks, name)
    if not has_data(schedule, chosen):
        whole = schedule.collective
        raise UsageError(
            f": expected a rank with data of the {whole.label}, found {sorted(chosen) or 'none'}",
            hint="Wait until such a rank is ready.",
            argument=name,
        )
    return chosen
