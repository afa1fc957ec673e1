"""Collectives as they are requested, before the number of chunks is chosen."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from probes.columns import ints
from synth.collective import Collective, Kind, collective, custom, several
from synth.rank_sets import RankSets

__all__ = ["Wish", "counted", "divided"]

_OWNED = ("all_reduce", "reduce_scatter", "scatter", "all_to_all")
_MOST_MULTIPLES = 4096


@dataclass(frozen=True)
class Wish:
    """One collective on ``members`` (none: all ranks); of a custom one, ``sets`` has each chunk once."""

    kind: Kind
    root: int = 0
    members: tuple[int, ...] = ()
    sets: Collective | None = None


def counted(wishes: Sequence[Wish], ranks: int, chunks_per_rank: int) -> Collective:
    """The wishes at once, in each of which a rank starts with ``chunks_per_rank`` chunks."""
    return several([_counted(wish, ranks, chunks_per_rank) for wish in wishes])


def divided(wishes: Sequence[Wish], ranks: int, split: int) -> Collective:
    """The wishes at once, ``split`` chunks for each owner; all of about the same size.

    As all chunks are equal, a smaller collective takes as many more of them as make up for it.
    """
    least = [_split(wish, ranks, 1).total_bytes(1) for wish in wishes]
    common = math.lcm(*least)
    multiples = [common // each for each in least]
    if max(multiples) > _MOST_MULTIPLES:
        multiples = [max(1, max(least) // each) for each in least]
    return several([_split(wish, ranks, split * by) for wish, by in zip(wishes, multiples, strict=True)])


def _split(wish: Wish, ranks: int, split: int) -> Collective:
    size = len(wish.members) or ranks
    return _counted(wish, ranks, split * size if wish.kind in _OWNED else split)


def _counted(wish: Wish, ranks: int, chunks_per_rank: int) -> Collective:
    if wish.sets is None:
        return collective(wish.kind, ranks, chunks_per_rank, wish.root, wish.members)
    times = np.repeat(np.arange(wish.sets.chunks), chunks_per_rank)

    def repeated(sets: RankSets) -> RankSets:
        return replace(sets, group=ints(sets.group[times]))

    return custom(ranks, repeated(wish.sets.sources), repeated(wish.sets.targets), wish.sets.reduced[times])
