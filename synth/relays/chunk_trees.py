"""The trees of a schedule: for each chunk an in-tree that sums, an out-tree that copies, or both.

A path is a tree, too. Chunks with the same sends over the same links share one tree: AdapCC's M
sub-collectives are M trees (Sec. IV-D), a ring is N chains.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from probes.base import Indices, offsets
from synth.errors import NotApplicableError
from synth.schedules import COPY, Schedule

__all__ = ["ChunkTree", "chunk_trees"]


@dataclass(frozen=True, eq=False)
class ChunkTree:
    """A tree that the sends of some chunks share.

    Send n of each chunk goes from ``src[n]`` to ``dst[n]``; ``rows[k, n]`` is its row in the schedule for
    chunk ``chunks[k]``. If ``sums[n]``, the send belongs to the in-tree and carries a partial sum; all others
    carry complete chunks. Sends are in the order of the schedule, so a rank's sends follow its receives.
    """

    chunks: Indices
    rows: Indices
    src: tuple[int, ...]
    dst: tuple[int, ...]
    sums: tuple[bool, ...]
    sources: frozenset[int]
    targets: frozenset[int]
    reduced: bool


_TREES = "Methods such as ring, tree, forest, greedy, paths and adapcc make trees."


@lru_cache(maxsize=8)
def chunk_trees(schedule: Schedule) -> tuple[ChunkTree, ...]:
    """Return the trees of all chunks, in the order of their first chunks; O(sends · log sends).

    Raises NotApplicableError, naming chunk and send, if the sends of a chunk form no tree: a rank forwards
    its partial sum twice or before it is complete, or receives the complete chunk twice.
    """
    if schedule.exchanges:
        raise NotApplicableError(
            f"relays need chunks that are trees or paths; {schedule.method} exchanges partial sums",
            hint=_TREES,
        )
    if schedule.uses_switches:
        raise NotApplicableError(
            f"relays need sends between ranks; {schedule.method} lets switches sum and copy", hint=_TREES
        )
    collective, network = schedule.collective, schedule.network
    order = np.argsort(schedule.chunk, kind="stable")
    start = offsets(np.bincount(schedule.chunk, minlength=collective.chunks)).tolist()
    link, op = schedule.link[order], schedule.op[order]
    alike: defaultdict[tuple[bytes, bytes, int, int, bool], list[int]] = defaultdict(list)
    groups = zip(
        collective.sources.group.tolist(),
        collective.targets.group.tolist(),
        collective.reduced.tolist(),
        strict=True,
    )
    for chunk, (source, target, reduced) in enumerate(groups):
        own = slice(start[chunk], start[chunk + 1])
        alike[link[own].tobytes(), op[own].tobytes(), source, target, reduced].append(chunk)
    found = []
    for chunks in alike.values():
        first = chunks[0]
        rows = np.array([order[start[chunk] : start[chunk + 1]] for chunk in chunks])
        links = schedule.link[rows[0]]
        src, dst = tuple(network.src[links].tolist()), tuple(network.dst[links].tolist())
        sources, targets = (
            frozenset(sets.of(first).tolist()) for sets in (collective.sources, collective.targets)
        )
        reduced = bool(collective.reduced[first])
        follower = _Follower(sources, reduced)
        sums = []
        for row, *send in zip(rows[0].tolist(), src, dst, schedule.op[rows[0]].tolist(), strict=True):
            try:
                sums.append(follower.follow(*send))
            except NotApplicableError as error:
                raise _no_tree(row, first, send, error.message) from None
        if lacking := targets - follower.complete():
            raise NotApplicableError(
                f"relays need a schedule that is proven: rank {min(lacking)} ends without the complete "
                f"chunk {first}"
            )
        found.append(ChunkTree(np.array(chunks), rows, src, dst, tuple(sums), sources, targets, reduced))
    return tuple(found)


def _no_tree(row: int, chunk: int, send: list[int], why: str) -> NotApplicableError:
    return NotApplicableError(
        f"relays need chunks that are trees or paths; send {row} (chunk {chunk} over {send[0]}→{send[1]}): "
        f"{why}",
        hint=_TREES,
    )


class _Follower:
    """Follows one chunk: the contributions that ranks hold, and the ranks that forwarded partial sums."""

    def __init__(self, sources: frozenset[int], reduced: bool) -> None:
        self.held = {rank: 1 << rank if reduced else 1 for rank in sources}
        self.whole = sum(1 << rank for rank in sources) if reduced else 1
        self.passed_on: set[int] = set()

    def follow(self, src: int, dst: int, op: int) -> bool:
        """Return whether this send carries a partial sum; raise NotApplicableError if it fits no tree."""
        carried, there = self.held.get(src, 0), self.held.get(dst, 0)
        if not carried:
            raise NotApplicableError(f"rank {src} does not hold the chunk")
        if carried == self.whole:
            if there == self.whole:
                raise NotApplicableError(f"rank {dst} receives the complete chunk twice")
            if there and op != COPY:
                raise NotApplicableError(f"rank {dst} would add up contributions twice")
            self.held[dst] = carried
            return False
        if src in self.passed_on:
            raise NotApplicableError(f"rank {src} passes on its part of the sum twice")
        if dst in self.passed_on:
            raise NotApplicableError(f"rank {dst} receives a part of the sum after it has passed its own on")
        if there & carried or (there and op == COPY):
            raise NotApplicableError(f"rank {dst} would lose or repeat contributions that it holds")
        self.passed_on.add(src)
        self.held[dst] = there | carried
        return True

    def complete(self) -> set[int]:
        """Return the ranks that hold the complete chunk."""
        return {rank for rank, held in self.held.items() if held == self.whole}
