"""Collectives as they are requested, before the number of chunks is chosen."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from probes.base import UsageError, ints
from synth.collective import Collective, Kind, collective, custom, several
from synth.rank_sets import RankSets

__all__ = ["CollectiveRequest", "counted", "divided", "surviving"]

_OWNED = ("all_reduce", "reduce_scatter", "scatter", "all_to_all")
_ROOTED = ("broadcast", "reduce", "scatter", "gather")
_MOST_MULTIPLES = 4096


@dataclass(frozen=True)
class CollectiveRequest:
    """One collective on ``members`` (empty: all ranks); ``sets`` has each chunk of a custom one once."""

    kind: Kind
    root: int = 0
    members: tuple[int, ...] = ()
    sets: Collective | None = None


def surviving(request: CollectiveRequest, ranks: int, failed: Collection[int]) -> CollectiveRequest:
    """Return the same collective among the ranks that have not failed.

    Raises UsageError if it needs a failed rank, or if none is left.
    """
    if not failed:
        return request
    if request.sets is not None:
        used = {rank for sets in (request.sets.sources, request.sets.targets) for rank in sets.rank.tolist()}
        if lost := sorted(used.intersection(failed)):
            raise UsageError(f": the collective needs rank {lost[0]}, which has failed", argument="without")
        return request
    left = tuple(rank for rank in (request.members or range(ranks)) if rank not in failed)
    chosen = request.root != (*request.members, 0)[0]
    if request.kind in _ROOTED and request.root in failed and chosen:
        raise UsageError(f": rank {request.root} has failed", argument="root")
    if not left:
        raise UsageError(f": no rank of {request.kind} is left", argument="without")
    return replace(request, members=left, root=request.root if request.root in left else left[0])


def counted(requests: Sequence[CollectiveRequest], ranks: int, chunks_per_rank: int) -> Collective:
    """Return all requests as one collective; in each, a rank starts with ``chunks_per_rank`` chunks."""
    return several([_counted(request, ranks, chunks_per_rank) for request in requests])


def divided(requests: Sequence[CollectiveRequest], ranks: int, split: int) -> Collective:
    """Return all requests as one collective, with at least ``split`` chunks for each owner.

    All chunks have the same bytes, so collectives that move fewer chunks are cut into more: each then has
    about the same buffer size.
    """
    least = [_split(request, ranks, 1).total_bytes(1) for request in requests]
    common = math.lcm(*least)
    multiples = [common // each for each in least]
    if max(multiples) > _MOST_MULTIPLES:
        multiples = [max(1, max(least) // each) for each in least]
    return several(
        [_split(request, ranks, split * by) for request, by in zip(requests, multiples, strict=True)]
    )


def _split(request: CollectiveRequest, ranks: int, split: int) -> Collective:
    size = len(request.members) or ranks
    return _counted(request, ranks, split * size if request.kind in _OWNED else split)


def _counted(request: CollectiveRequest, ranks: int, chunks_per_rank: int) -> Collective:
    if request.sets is None:
        return collective(request.kind, ranks, chunks_per_rank, request.root, request.members)
    times = np.repeat(np.arange(request.sets.chunks), chunks_per_rank)

    def repeated(sets: RankSets) -> RankSets:
        return replace(sets, group=ints(sets.group[times]))

    return custom(
        ranks, repeated(request.sets.sources), repeated(request.sets.targets), request.sets.reduced[times]
    )
