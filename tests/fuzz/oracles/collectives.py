"""The demand of a collective, derived from the table of its definition, chunk by chunk."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

__all__ = ["Malformed", "Wanted", "contents", "total", "wanted"]

REDUCING = ("all_reduce", "reduce_scatter", "reduce")
# Kinds whose input and output hold the same chunks at the same places.
SHARED = ("all_gather", "reduce_scatter", "scatter", "gather", "all_reduce", "broadcast", "reduce")
KINDS = (*SHARED, "all_to_all", "all_to_next")


class Malformed(Exception):  # noqa: N818 - it is a verdict
    """The artifact contradicts itself or refers to what does not exist."""


@dataclass(frozen=True)
class Wanted:
    """For each chunk the ranks that hold it at first, those that want it, and whether it is reduced."""

    sources: list[list[int]]
    targets: list[list[int]]
    reduced: list[bool]
    shared: bool

    @property
    def chunks(self) -> int:
        return len(self.sources)


def wanted(collective: Any, most_chunks: int = 1 << 16) -> Wanted:
    """The sets of every chunk; raises Malformed where the fields contradict one another."""
    kind, ranks, chunks = collective.kind, int(collective.ranks), int(collective.chunks)
    if ranks < 1:
        raise Malformed("a collective of no ranks")
    if chunks > most_chunks:
        raise Malformed(f"{chunks} chunks are too many for this oracle")
    if (collective.custom is not None) != (kind == "custom"):
        raise Malformed(f"kind {kind} with custom {'set' if collective.custom is not None else 'missing'}")
    if bool(collective.parts) != (kind == "several"):
        raise Malformed(f"kind {kind} with {len(collective.parts)} parts")
    if kind in ("custom", "several") and (collective.members or collective.root != 0):
        raise Malformed(f"kind {kind} with members or a root, which it does not read")
    if kind == "custom":
        return _custom(collective.custom, ranks, chunks)
    if kind == "several":
        return _several(collective, ranks, chunks)
    return _known(collective, ranks, chunks)


def total(sources: list[int], chunk: int, reduced: bool) -> dict[tuple[int, int], int]:
    """The complete chunk as a sum: how often each rank's contribution is in it; -1 stands for plain data."""
    return {(chunk, rank if reduced else -1): 1 for rank in (sources if reduced else [-1])}


def contents(held: Wanted) -> dict[tuple[int, int], dict[tuple[int, int], int]]:
    """(rank, chunk) → what the rank holds of the chunk before the start, as a sum."""
    return {
        (rank, chunk): {(chunk, rank if held.reduced[chunk] else -1): 1}
        for chunk in range(held.chunks)
        for rank in held.sources[chunk]
    }


def _known(collective: Any, ranks: int, chunks: int) -> Wanted:
    kind = collective.kind
    if kind not in KINDS:
        raise Malformed(f"unknown kind {kind}")
    members = [int(rank) for rank in collective.members] or list(range(ranks))
    if members != sorted(set(members)) or members[0] < 0 or members[-1] >= ranks:
        raise Malformed("members are not rising ranks")
    root = int(collective.root)
    if root not in members:
        raise Malformed("the root takes no part")
    n = len(members)
    owners = {"all_to_all": n * n, "all_to_next": n - 1}.get(kind, n)
    if kind in ("all_reduce", "broadcast", "reduce"):
        owners = 1
    if owners < 1 or chunks < 1 or chunks % owners:
        raise Malformed(f"{chunks} chunks for {owners} owners")
    share = chunks // owners
    sources, targets = [], []
    for chunk in range(chunks):
        block = chunk // share
        if kind == "all_gather":
            pair = [members[block]], members
        elif kind == "reduce_scatter":
            pair = members, [members[block]]
        elif kind == "all_reduce":
            pair = members, members
        elif kind == "broadcast":
            pair = [root], members
        elif kind == "reduce":
            pair = members, [root]
        elif kind == "scatter":
            pair = [root], [members[block]]
        elif kind == "gather":
            pair = [members[block]], [root]
        elif kind == "all_to_all":
            pair = [members[block // n]], [members[block % n]]
        else:
            pair = [members[block]], [members[block + 1]]
        sources.append(list(pair[0]))
        targets.append(list(pair[1]))
    return Wanted(sources, targets, [kind in REDUCING] * chunks, kind in SHARED)


def _custom(sets: Any, ranks: int, chunks: int) -> Wanted:
    start = [int(at) for at in sets.group_start]
    listed = [int(rank) for rank in sets.group_rank]
    if not start or start[0] != 0 or start[-1] != len(listed):
        raise Malformed("groups do not cover their ranks")
    groups = []
    for low, high in pairwise(start):
        group = listed[low:high]
        if not group or group != sorted(set(group)) or group[0] < 0 or group[-1] >= ranks:
            raise Malformed("a group is not a set of rising ranks")
        groups.append(group)
    columns = [[int(value) for value in column] for column in (sets.source, sets.target, sets.reduced)]
    if any(len(column) != chunks for column in columns):
        raise Malformed("a column of the custom collective has another length")
    for column, limit in zip(columns, (len(groups), len(groups), 2), strict=True):
        if any(not 0 <= value < limit for value in column):
            raise Malformed("a value of the custom collective is out of range")
    found = Wanted(
        [groups[at] for at in columns[0]],
        [groups[at] for at in columns[1]],
        [bool(at) for at in columns[2]],
        False,
    )
    if sets.blocks is not None:
        _of_blocks(sets.blocks, found, ranks)
    return found


def _of_blocks(blocks: Any, found: Wanted, ranks: int) -> None:
    """Raise Malformed where the sets are not those of the blocks, one after the other."""
    kind, root = blocks.kind, int(blocks.root)
    counts, sizes = [[int(one) for one in column] for column in (blocks.chunks, blocks.size_bytes)]
    everyone = list(range(ranks))
    if kind not in ("all_gather", "reduce_scatter", "scatter", "gather", "all_to_all", "custom"):
        raise Malformed(f"blocks of {kind}")
    number = {"all_to_all": ranks * ranks, "custom": len(sizes)}.get(kind, ranks)
    if len(counts) != number or len(sizes) != number or root not in everyone:
        raise Malformed("blocks for other ranks")
    if any(
        size < 0 or count < 0 or (size > 0) != (count > 0) for size, count in zip(sizes, counts, strict=True)
    ):
        raise Malformed("a block without chunks, or chunks without data")
    if sum(counts) != found.chunks:
        raise Malformed("the blocks have another number of chunks")
    chunk = 0
    for block, count in enumerate(counts):
        owner = [block]
        pair = {
            "all_gather": (owner, everyone, False),
            "reduce_scatter": (everyone, owner, True),
            "scatter": ([root], owner, False),
            "gather": (owner, [root], False),
            "all_to_all": ([block // ranks], [block % ranks], False),
        }.get(kind)
        for _ in range(count):
            sets = found.sources[chunk], found.targets[chunk], found.reduced[chunk]
            # The chunks of a block of a redistribution are alike.
            pair = pair or sets
            if sets != pair:
                raise Malformed(f"chunk {chunk} is not of block {block}")
            chunk += 1


def _several(collective: Any, ranks: int, chunks: int) -> Wanted:
    if len(collective.parts) < 2 or any(part.kind == "several" for part in collective.parts):
        raise Malformed("several needs two or more parts that are not several themselves")
    parts = []
    for part in collective.parts:
        if part.ranks != ranks:
            raise Malformed("a part has other ranks")
        parts.append(wanted(part))
    if sum(part.chunks for part in parts) != chunks:
        raise Malformed("the parts have another number of chunks")
    return Wanted(
        [one for part in parts for one in part.sources],
        [one for part in parts for one in part.targets],
        [one for part in parts for one in part.reduced],
        False,
    )
