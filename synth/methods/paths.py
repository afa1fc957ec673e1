"""Paths: every chunk its own way, chosen so that no link or port is busier than it must be.

Point-to-point chunks (all_to_all, scatter, gather, all_to_next, custom) take paths by ``synth.routing``;
chunks for several ranks grow trees over the same loads, sums trees towards one of their targets. Then all
sends are lined up by list scheduling, under a few orders of urgency, of which the fastest is kept: those
with farthest to go first, or shift by shift, so that on a switch each step is close to a perfect matching.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from probes.columns import Floats, Indices
from probes.errors import UsageError
from synth.collective import Collective
from synth.errors import NotApplicableError
from synth.network import Network
from synth.ordering import Sends
from synth.routing import Resources, grow, resources, route
from synth.schedule import COPY, REDUCE, Schedule
from synth.simulate import replay

__all__ = ["synthesize"]

_PASSES = 6
_WORK = 600_000_000
_MOST_WORK_ON_TREES = 2_000_000_000
_MOST_HOPS_MORE = 4
_CLOSE = 1.01


def synthesize(network: Network, collective: Collective, chunk_bytes: int, *, seed: int = 0) -> Schedule:
    """Any collective but several at once, on any network that joins who takes part.

    Raises UsageError where a rank cannot be reached, NotApplicableError where trees would take too long.
    """
    if collective.parts:
        raise NotApplicableError("paths serves one collective at a time")
    source, target = collective.source_of(), collective.target_of()
    points = np.flatnonzero((source >= 0) & (target >= 0) & (source != target))
    load_s = np.zeros(network.links + len(network.ports))
    ways = _Ways(network, resources(network, chunk_bytes))
    many = np.flatnonzero((source < 0) | (target < 0))
    work = float(collective.targets.sizes()[many].sum()) * network.links
    if work > _MOST_WORK_ON_TREES:
        raise NotApplicableError(
            f"paths would grow {len(many)} trees over {network.links} links; greedy does so"
        )
    trees = list(ways.trees(collective, many, load_s))
    hops, path = ways.points(points, source[points], target[points], load_s, seed)
    best, best_s = None, float("inf")
    # Where ports are shared, shifts promise more; what comes close to the busiest link is good enough.
    for shifts in (bool(network.ports), not network.ports):
        tried = _lined_up(network, collective, chunk_bytes, seed, trees, (points, hops, path), shifts)
        time_s = replay(tried).time_s
        if best is None or time_s < best_s:
            best, best_s = tried, time_s
        if best_s <= float(load_s.max(initial=0.0)) * _CLOSE:
            break
    assert best is not None
    return best


@dataclass(frozen=True, eq=False)
class _Tree:
    """The sends of one chunk: links with ops and turns."""

    chunk: int
    link: Indices
    op: int
    turn: Indices


@dataclass(frozen=True, eq=False)
class _Ways:
    network: Network
    forwards: Resources

    def trees(self, collective: Collective, chunks: Indices, load_s: Floats) -> Iterator[_Tree]:
        """Sums to one of their targets, copies to all."""
        backwards = replace(
            self.forwards,
            src=self.network.dst,
            dst=self.network.src,
            out_start=self.network.in_links[0],
            out_links=self.network.in_links[1],
        )
        for number, chunk in enumerate(chunks.tolist()):
            sources, targets = collective.sources.of(chunk), collective.targets.of(chunk)
            begins = 0
            if collective.reduced[chunk]:
                root = targets[number % len(targets) : number % len(targets) + 1]
                link, depth = self._grown(root, sources, load_s, backwards)
                begins = int(depth.max(initial=-1)) + 1
                yield _Tree(chunk, link, REDUCE, begins - 1 - depth)
                sources = root
            link, depth = self._grown(sources, targets, load_s, self.forwards)
            yield _Tree(chunk, link, COPY, begins + depth)

    def _grown(
        self, seeds: Indices, targets: Indices, load_s: Floats, through: Resources
    ) -> tuple[Indices, Indices]:
        link, depth, missing = grow(seeds, targets, load_s, *through.columns)
        if missing >= 0:
            raise UsageError(f"{self.network.name}: rank {missing} cannot be reached from rank {seeds[0]}")
        return link, depth

    def points(
        self, chunk: Indices, source: Indices, target: Indices, load_s: Floats, seed: int
    ) -> tuple[Indices, Indices]:
        """(hops, links) of every chunk's path."""
        order = np.argsort(source, kind="stable")
        starts = np.flatnonzero(np.diff(source[order], prepend=-1))
        first = np.append(starts, len(order))
        each = _WORK / (_PASSES * max(1, len(starts)) * max(1, self.network.links))
        most = int(np.diff(first).max(initial=1))
        batch = max(1, int(np.ceil(most / max(1.0, each))))
        longest = _hop_diameter(self.network) + _MOST_HOPS_MORE
        hops, path = route(
            source[order], target[order], first, _PASSES, batch, longest, load_s, *self.forwards.columns, seed
        )
        if (hops < 0).any():
            raise UsageError(
                f"{self.network.name}: not every rank can be reached from those with chunks for it"
            )
        back = np.argsort(order, kind="stable")
        return hops[back], path[back]


def _hop_diameter(network: Network) -> int:
    """The most hops that any shortest path takes, or at most twice that."""
    reached = np.full(network.ranks, -1)
    reached[0] = hops = 0
    while True:
        new = network.dst[(reached[network.src] == hops) & (reached[network.dst] < 0)]
        if not len(new):
            return max(1, 2 * hops)
        hops += 1
        reached[new] = hops


def _lined_up(
    network: Network,
    collective: Collective,
    chunk_bytes: int,
    seed: int,
    trees: list[_Tree],
    paths: tuple[Indices, Indices, Indices],
    shifts: bool,
) -> Schedule:
    points, hops, path = paths
    travel_s = network.travel_s(chunk_bytes)
    sends = Sends()
    for tree in trees:
        togo = (tree.turn.max(initial=0) - tree.turn + 1) * float(travel_s.max(initial=0.0))
        sends.add(tree.chunk, tree.link, tree.op, tree.turn, -togo)
    step = np.arange(path.shape[1])
    used = step < hops[:, None]
    left_s = np.where(used, travel_s[path], 0.0)
    togo_s = np.cumsum(left_s[:, ::-1], axis=1)[:, ::-1]
    if shifts:
        source, target = collective.source_of()[points], collective.target_of()[points]
        shift = (target - source) % network.ranks
        urgency = shift[:, None] * float(travel_s.sum() + 1.0) - togo_s
    else:
        urgency = -togo_s
    chunk = np.broadcast_to(points[:, None], used.shape)
    turn = np.broadcast_to(step, used.shape)
    sends.add(chunk[used], path[used], COPY, turn[used], urgency[used])
    return sends.schedule(network, collective, chunk_bytes, "paths", seed)
