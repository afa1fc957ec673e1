"""Behavior tuples: the role of each rank when only some are ready (AdapCC, Sec. IV-C, Fig. 7).

A tree that sums and copies back, as in an all_reduce, has two stages: *reduce* and *copy*. A broadcast, and
each path of an all_to_all, has only the second.

| field      | reduce stage                                     | copy stage                               |
|------------|--------------------------------------------------|------------------------------------------|
| is_active  | the rank is ready                                | the rank is ready                        |
| has_recv   | a predecessor sends; that is, some ready rank    | its predecessor sends; at the root of a  |
|            | with data is found above it                      | sum: it received in the reduce stage     |
| has_kernel | has_recv, but for the exceptions below           | never                                    |
| has_send   | it has a successor, and is ready or receives     | it has successors, and data for them     |

A rank with has_recv launches a kernel that sums, with two exceptions: the rank is not ready and only one
predecessor sends, so there is nothing to add; or the synthesizer decided that it does not aggregate (a = 0 in
Sec. IV-D).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

from probes.base import UsageError
from synth.relays.chunk_trees import ChunkTree, chunk_trees
from synth.schedules import Schedule

__all__ = ["Behavior", "Stage", "TreeBehavior", "behaviors", "named_ranks", "taking_part", "tree_behaviors"]

Stage = Literal["reduce", "copy"]


@dataclass(frozen=True)
class Behavior:
    """⟨isActive, hasRecv, hasKernel, hasSend⟩ of one rank in one stage of one tree.

    ``is_active``: the rank is ready, so it is no relay. ``has_recv``: it receives from its predecessors.
    ``has_kernel``: it launches the kernel that aggregates. ``has_send``: it sends to its successors.
    """

    is_active: bool
    has_recv: bool
    has_kernel: bool
    has_send: bool


@dataclass(frozen=True)
class TreeBehavior:
    """The behaviors of all ranks for ``chunks`` of one tree in one stage; ``ranks[r]`` is rank r's."""

    chunks: tuple[int, ...]
    stage: Stage
    ranks: tuple[Behavior, ...]


def behaviors(
    schedule: Schedule,
    active: Collection[int],
    unaggregated: Mapping[int, Collection[int]] | None = None,
) -> tuple[TreeBehavior, ...]:
    """Return the tuple of each rank in each tree and stage of a schedule if only ``active`` are ready.

    ``unaggregated`` maps a chunk to the ranks that do not aggregate it; all other ranks do. Raises
    NotApplicableError if chunks do not travel along trees, UsageError for ranks that do not take part.
    O(sends · log sends), and O(trees · ranks) once the trees are cached.
    """
    ready = named_ranks(schedule, active, "active")
    found: list[TreeBehavior] = []
    for tree in chunk_trees(schedule):
        apart: dict[frozenset[int], list[int]] = {}
        for chunk in tree.chunks.tolist():
            apart.setdefault(frozenset((unaggregated or {}).get(chunk, ())), []).append(chunk)
        for ranks, chunks in apart.items():
            stages = tree_behaviors(tree, schedule.network.ranks, ready, ranks)
            found += [TreeBehavior(tuple(chunks), stage, tuples) for stage, tuples in stages.items()]
    return tuple(found)


def tree_behaviors(
    tree: ChunkTree, ranks: int, active: frozenset[int], unaggregated: frozenset[int] = frozenset()
) -> dict[Stage, tuple[Behavior, ...]]:
    """Return the tuples of ``ranks`` ranks for each stage of a tree; O(ranks + sends of a chunk)."""
    contributes = active & tree.sources
    passing, copying = (
        frozenset(src for src, sums in zip(tree.src, tree.sums, strict=True) if sums == wanted)
        for wanted in (True, False)
    )
    stages: dict[Stage, tuple[Behavior, ...]] = {}
    roots, summed = tree.sources, frozenset[int]()
    if passing:
        senders = _senders(tree, contributes, sums=True)
        alone = {rank for rank, count in senders.items() if count == 1 and rank not in contributes}
        kernels = frozenset(senders) - alone - unaggregated
        stages["reduce"] = _tuples(ranks, active, contributes, frozenset(senders), passing, kernels)
        roots = frozenset(dst for dst, sums in zip(tree.dst, tree.sums, strict=True) if sums) - passing
        summed = roots & frozenset(senders)
    if copying or not passing:
        origins = roots & contributes | summed
        receiving = summed | frozenset(_senders(tree, origins, sums=False))
        stages["copy"] = _tuples(ranks, active, origins, receiving, copying, frozenset())
    return stages


def taking_part(schedule: Schedule) -> frozenset[int]:
    """Return the ranks that hold or want a chunk of the collective."""
    collective, ranks = schedule.collective, schedule.network.ranks
    chunks = collective.sources.per_rank(ranks) + collective.targets.per_rank(ranks)
    return frozenset(chunks.nonzero()[0].tolist())


def named_ranks(schedule: Schedule, ranks: Collection[int], name: str) -> frozenset[int]:
    """Return ``ranks`` as a set; raise UsageError, naming the argument, unless all take part."""
    chosen = frozenset(int(rank) for rank in ranks)
    known = taking_part(schedule)
    if strangers := sorted(chosen - known):
        raise UsageError(
            f": expected ranks that take part in the {schedule.collective.label}, found {strangers[0]}",
            hint=f"{len(known)} ranks take part, from {min(known)} to {max(known)}.",
            argument=name,
        )
    return chosen


def _tuples(
    ranks: int,
    active: frozenset[int],
    origins: frozenset[int],
    receiving: frozenset[int],
    sending: frozenset[int],
    kernels: frozenset[int],
) -> tuple[Behavior, ...]:
    return tuple(
        Behavior(
            is_active=rank in active,
            has_recv=rank in receiving,
            has_kernel=rank in kernels,
            has_send=rank in sending and (rank in origins or rank in receiving),
        )
        for rank in range(ranks)
    )


def _senders(tree: ChunkTree, origins: frozenset[int], *, sums: bool) -> dict[int, int]:
    """Return the number of predecessors that send to each receiving rank in a stage.

    A rank's receives come before its sends in the tree's order, so one pass replaces the paper's recursion.
    """
    count: dict[int, int] = {}
    for src, dst, is_sum in zip(tree.src, tree.dst, tree.sums, strict=True):
        if is_sum == sums and (src in origins or src in count):
            count[dst] = count.get(dst, 0) + 1
    return count
