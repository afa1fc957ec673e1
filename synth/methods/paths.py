"""Paths: every chunk takes its own path, so that no link or port is busier than necessary.

Point-to-point chunks (all_to_all, scatter, gather, all_to_next, custom) take paths of least congestion.
Chunks for several ranks take trees, chosen with the same loads. Chunks that are summed take trees towards one
of their targets, and from there to the others. List scheduling then orders all sends: either sends with the
longest way left go first, or sends go by shift (target − source modulo N), so that on a switch each step is
close to a perfect matching. While the result is not close to the time of the busiest link, the sends are
scheduled backwards from the end, then forwards again, each pass in an order by the times of the pass before.
Project scheduling calls this forward-backward improvement. Where trees of copies stay far from that time,
links choose among the chunks that the ranks of the trees hold, as in the greedy search.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from probes.base import Bytes, Floats, Indices, Ints, UsageError, bytes_of, floats, ints, spans
from synth.collective import Collective, custom
from synth.errors import NotApplicableError
from synth.kernels import compiled
from synth.methods import greedy
from synth.network import Network
from synth.networks import distances_s, link_table
from synth.routing import ETA, Demands, Resources, grow, resources, route, star
from synth.schedules import COPY, REDUCE, Schedule
from synth.scheduling import Sends, in_start_order, reversed_in_time
from synth.simulation import replay

__all__ = ["synthesize"]

_NO_CLIQUE = ints(np.zeros((0, 0)))
# The passes in which each chunk may change its path.
_PASSES = 6
# The links that all searches for paths together may visit; beyond this number, several chunks share a search.
_WORK = 600_000_000
# The most searches for trees times links, and the most hops of a path beyond the network's diameter.
_MOST_WORK_ON_TREES = 10_000_000_000
_MOST_HOPS_MORE = 4
# The search for an order ends within this factor of the busiest link's time.
_CLOSE = 1.01
# If a schedule exceeds the busiest link's time by this fraction, ways of less latency are tried: trees of
# shortest paths, and paths that are no longer than the longest of the shortest, then any. For these, alphas
# are multiplied by exp(ETA / 2), the price of time on a link half as busy as the busiest.
_NOTICEABLE = 0.05
_LATENCY = float(np.exp(ETA / 2))
# If the fastest takes this many times the busiest link's time, alphas count as much as the busiest link.
_MOSTLY_LATENCY = 2.0
# Trees are grown in up to this many passes: in later ones each chunk's trees are grown again, at the prices
# of all others. The redistributions of benchmarks/demands.py `--seed 20270214 --most-ranks 128` had loads of
# 290, 238 and 234 us (torus:4x6) and 393, 336 and 336 us (torus:8x13) after 1, 4 and 8 passes.
_PASSES_OF_TREES, _PASSES_OF_LEVEL_TREES, _MOST_WORK_ON_LEVEL_TREES = 4, 8, 1_000_000_000
# The most rounds of forward-backward improvement; schedules of at least _FEW_SENDS sends get one round.
_MOST_TURNS = 4
_FEW_SENDS = 200_000


def synthesize(network: Network, collective: Collective, chunk_bytes: int, *, seed: int = 0) -> Schedule:
    """Return a schedule of any single collective, on any network that joins its members.

    Raises UsageError if a rank cannot be reached, NotApplicableError if trees would take too long.
    """
    if collective.parts:
        raise NotApplicableError("paths serves one collective at a time")
    if collective.reversal is not None:
        mirrored = synthesize(network.transposed(), collective.reversal, chunk_bytes, seed=seed)
        return in_start_order(reversed_in_time(mirrored, network, collective))
    source, target = collective.source_of(), collective.target_of()
    points = np.flatnonzero((source >= 0) & (target >= 0) & (source != target))
    many = np.flatnonzero((source < 0) | (target < 0))
    if float(len(many)) * network.links > _MOST_WORK_ON_TREES:
        raise NotApplicableError(
            f"paths would take too long for {len(many)} trees over {network.links} links; greedy is faster"
        )

    # A tree of shortest paths takes one search, and a star none; other trees take one search a target.
    cheap = float(collective.targets.sizes()[many].sum()) * network.links > _MOST_WORK_ON_TREES
    if cheap:
        # Every rank's first chunk goes first, so that all ranks are centres of stars of their own chunks.
        many = many[np.argsort(_laps(collective.sources.group[many]), kind="stable")]

    def made(latency: float, stretch: float, passes: int = 1) -> tuple[Schedule, float]:
        """Return the fastest schedule along one set of trees and paths, and the busiest link's time."""
        ways = _Ways(network, resources(network, chunk_bytes, latency), cheap)
        load_s = np.zeros(network.links + len(network.ports))
        trees = ways.trees(collective, many, load_s, passes)
        laid = ways.points(points, source[points], target[points], load_s, stretch, seed)
        sends = _Table.of(network, collective, chunk_bytes, trees, (points, *laid))
        busiest_s = float(load_s.max(initial=0.0))
        return _fastest(network, collective, chunk_bytes, seed, sends, busiest_s * _CLOSE), busiest_s

    if cheap:
        return made(_LATENCY, np.inf)[0]
    # A tree of few links takes a search for each target, and a tree of shortest paths takes one.
    searches = int(collective.targets.sizes()[many].sum())
    passes = int(_MOST_WORK_ON_LEVEL_TREES / max(1, searches * network.links))
    found, busiest_s = made(0.0, np.inf, min(max(1, passes), _PASSES_OF_TREES))
    if replay(found).time_s > (1 + _NOTICEABLE) * busiest_s:
        # Ways of fewer and faster hops, at higher loads.
        variants = ((1.0, 1), (np.inf, 1)) if len(points) else ((np.inf, 1), (np.inf, _PASSES_OF_TREES))
        for stretch, passes in variants:
            other, load_s = made(_LATENCY, stretch, passes)
            found = min(found, other, key=lambda schedule: replay(schedule).time_s)
            if load_s <= busiest_s * _CLOSE:
                # Other ways would not lower the load.
                break
        if replay(found).time_s > _MOSTLY_LATENCY * busiest_s:
            other, _ = made(_LATENCY**2, np.inf)
            found = min(found, other, key=lambda schedule: replay(schedule).time_s)
        if len(many) and not collective.reduced.any() and found.sends < _FEW_SENDS:
            # Links that choose among the chunks that their ranks hold wait for no particular one.
            passes = int(_MOST_WORK_ON_LEVEL_TREES / (len(many) * network.links))
            level, _ = made(_LATENCY**0.5, np.inf, min(max(1, passes), _PASSES_OF_LEVEL_TREES))
            found = min(found, level, greedy.through(level), key=lambda schedule: replay(schedule).time_s)
    return found


def _fastest(
    network: Network, collective: Collective, chunk_bytes: int, seed: int, sends: _Table, enough_s: float
) -> Schedule:
    """Return the fastest schedule of both orders of urgency and of forward-backward improvement."""

    def lined_up(urgency: Floats) -> tuple[Schedule, float]:
        block = Sends()
        block.add(sends.chunk, sends.link, sends.op, sends.turn, urgency)
        found = block.schedule(network, collective, chunk_bytes, "paths", seed)
        return found, replay(found).time_s

    # With shared ports, the order by shift promises more and is tried first. A result close to the busiest
    # link's time ends the search.
    orders = [sends.shift, -sends.togo_s] if network.ports else [-sends.togo_s, sends.shift]
    best, best_s = lined_up(orders[0])
    if best_s > enough_s:
        best, best_s = min((best, best_s), lined_up(orders[1]), key=lambda pair: pair[1])
    last = best
    for _ in range(_MOST_TURNS if len(sends.chunk) < _FEW_SENDS else 1):
        if best_s <= enough_s or collective.reduces:
            break
        last, last_s = lined_up(_backwards_s(last, sends))
        if last_s < best_s:
            best, best_s = last, last_s
    return best


def _backwards_s(schedule: Schedule, sends: _Table) -> Floats:
    """Return the latest start of each send of copies, by a schedule backwards from the end.

    In it the sends that arrive last in ``schedule`` go first. Backwards, the copies that leave a rank are
    summands, which must all arrive before the rank passes them on.
    """
    network, collective = schedule.network, schedule.collective
    mirror = network.transposed()
    turned = custom(network.ranks, collective.targets, collective.sources, ~collective.reduced)
    rows = _rows_of(schedule, sends)
    arrival_s = replay(schedule).arrival_s[rows]
    block = Sends()
    block.add(sends.chunk, sends.link, REDUCE, sends.turn.max() - sends.turn, -arrival_s)
    back = block.schedule(mirror, turned, schedule.chunk_bytes, "paths", 0)
    return floats(-replay(back).arrival_s[_rows_of(back, sends)])


def _rows_of(schedule: Schedule, sends: _Table) -> Indices:
    """Return the row of each send in ``schedule``; chunk and link identify a send."""
    links = schedule.network.links
    order = np.argsort(schedule.chunk.astype(np.int64) * links + schedule.link)
    rows = np.empty(len(order), dtype=np.int64)
    rows[np.argsort(sends.chunk.astype(np.int64) * links + sends.link)] = order
    return rows


@dataclass(frozen=True, eq=False)
class _Table:
    """All sends, with their turns and two orders of urgency: the time left on the way, and the shift."""

    chunk: Indices
    link: Indices
    op: Bytes
    turn: Indices
    togo_s: Floats
    shift: Floats

    @classmethod
    def of(
        cls,
        network: Network,
        collective: Collective,
        chunk_bytes: int,
        trees: list[_Tree],
        paths: tuple[Indices, Indices, Indices],
    ) -> _Table:
        points, hops, path = paths
        travel_s = network.travel_s(chunk_bytes)
        step = np.arange(path.shape[1])
        used = step < hops[:, None]
        left_s = np.where(used, travel_s[path], 0.0)
        togo_s = np.cumsum(left_s[:, ::-1], axis=1)[:, ::-1][used]
        away = (collective.target_of()[points] - collective.source_of()[points]) % network.ranks
        chunk, turn = (np.broadcast_to(each, used.shape)[used] for each in (points[:, None], step))
        # Within a shift sends with more of their way left go first.
        shift = (
            np.broadcast_to(away[:, None], used.shape)[used] - togo_s / (togo_s.max(initial=0.0) + 1e-30) / 2
        )
        columns = [(chunk, path[used], np.full(len(chunk), COPY), turn, togo_s, shift)]
        if trees:
            counts = np.array([len(tree.link) for tree in trees])
            chunk, op = (np.repeat([(tree.chunk, tree.op) for tree in trees], counts, axis=0)).T
            link, turn = (
                np.concatenate(each) for each in zip(*[(tree.link, tree.turn) for tree in trees], strict=True)
            )
            last_first = np.lexsort((-turn, chunk))
            togo_s = _togo_s(chunk, link, last_first, network.src, network.dst, travel_s, network.ranks)
            columns.append((chunk, link, op, turn, togo_s, -togo_s))
        chunk, link, op, turn, togo_s, shift = (np.concatenate(each) for each in zip(*columns, strict=True))
        return cls(chunk, link, bytes_of(op), turn, floats(togo_s), floats(shift))


@compiled
def _togo_s(
    chunk: Indices,
    link: Indices,
    last_first: Indices,
    src: Indices,
    dst: Indices,
    travel_s: Floats,
    ranks: int,
) -> Floats:
    """Return the time from the start of each send of trees to the last arrival of its data.

    The rows ``last_first`` go chunk by chunk, each in descending turns.
    """
    found_s, after_s, before = np.empty(len(link)), np.zeros(ranks), -1
    for row in last_first:
        if chunk[row] != before:
            before = chunk[row]
            after_s[:] = 0.0
        start, end = src[link[row]], dst[link[row]]
        found_s[row] = travel_s[link[row]] + after_s[end]
        after_s[start] = max(after_s[start], found_s[row])
    return found_s


@dataclass(frozen=True, eq=False)
class _Tree:
    """The sends of one chunk: links with ops and turns."""

    chunk: int
    link: Indices
    op: int
    turn: Indices


@dataclass(frozen=True, eq=False)
class _Ways:
    """Searches for trees and paths that avoid loaded links; each search adds its own load.

    With ``stars`` trees of shortest paths on a clique are stars.
    """

    network: Network
    forwards: Resources
    stars: bool

    def trees(self, collective: Collective, chunks: Indices, load_s: Floats, passes: int) -> list[_Tree]:
        """Return the trees of each chunk; a sum is reduced to one target, then copied to all.

        In each pass after the first, the trees of a chunk are removed and grown again at the prices of all
        others.
        """
        found: dict[int, list[_Tree]] = {}
        for _ in range(passes):
            for number, chunk in enumerate(chunks.tolist()):
                for tree in found.get(chunk, ()):
                    self._unload(tree.link, load_s)
                found[chunk] = list(self._trees_of(collective, number, chunk, load_s))
        return [tree for trees in found.values() for tree in trees]

    @cached_property
    def _backwards(self) -> Resources:
        start, links = self.network.in_links
        src, dst = self.network.dst, self.network.src
        return self.forwards._replace(src=src, dst=dst, out_start=start, out_links=links)

    @cached_property
    def _clique(self) -> Ints:
        """The link between any two ranks; empty if ports are shared or some pair has no link."""
        table = link_table(self.network, 1)
        missing = (table < 0).sum() > self.network.ranks
        return _NO_CLIQUE if len(self.network.ports) or missing else table

    def _trees_of(self, collective: Collective, number: int, chunk: int, load_s: Floats) -> Iterator[_Tree]:
        sources, targets = collective.sources.of(chunk), collective.targets.of(chunk)
        begins = 0
        if collective.reduced[chunk]:
            root = targets[number % len(targets) : number % len(targets) + 1]
            link, depth = self._grown(root, sources, load_s, self._backwards)
            begins = int(depth.max(initial=-1)) + 1
            yield _Tree(chunk, link, REDUCE, begins - 1 - depth)
            sources = root
        link, depth = self._grown(sources, targets, load_s, self.forwards)
        yield _Tree(chunk, link, COPY, begins + depth)

    def _unload(self, links: Indices, load_s: Floats) -> None:
        """Take a chunk over ``links`` off the loads."""
        through = self.forwards
        load_s[links] -= through.held_s[links]
        counts = np.diff(through.port_start)[links]
        entries = spans(through.port_start[links], counts)
        held_s = np.repeat(through.held_s[links], counts) * through.port_part[entries]
        np.subtract.at(load_s, len(through.src) + through.port[entries], held_s)

    def _grown(
        self, seeds: Indices, targets: Indices, load_s: Floats, through: Resources
    ) -> tuple[Indices, Indices]:
        shortest = bool(through.latency_s.any())
        if shortest and self.stars and len(self._clique):
            table = self._clique if through is self.forwards else self._clique.T
            return star(through, ints(table), seeds, targets, load_s)
        link, depth, missing = grow(through, seeds, targets, load_s, shortest)
        if missing >= 0:
            raise UsageError(f"{self.network.name}: rank {missing} cannot be reached from rank {seeds[0]}")
        return link, depth

    def points(
        self, chunk: Indices, source: Indices, target: Indices, load_s: Floats, stretch: float, seed: int
    ) -> tuple[Indices, Indices]:
        """Return (hops, links) of every chunk's path; `route` explains ``stretch``."""
        order = np.argsort(source, kind="stable")
        starts = np.flatnonzero(np.diff(source[order], prepend=-1))
        first = np.append(starts, len(order))
        each = _WORK / (_PASSES * max(1, len(starts)) * max(1, self.network.links))
        most = int(np.diff(first).max(initial=1))
        batch = max(1, int(np.ceil(most / max(1.0, each))))
        longest = _hop_diameter(self.network) + _MOST_HOPS_MORE
        demands = Demands(source[order], target[order], first)
        clique = self._clique if batch > 1 else _NO_CLIQUE
        hops, path = route(self.forwards, demands, load_s, _PASSES, batch, longest, stretch, seed, clique)
        if (hops == 0).any():
            # A cheapest path over fast links may have many more hops than the diameter.
            longest = self.network.ranks - 1
            hops, path = route(
                self.forwards, demands, load_s, _PASSES, batch, longest, stretch, seed, _NO_CLIQUE
            )
        if (hops < 0).any():
            raise UsageError(
                f"{self.network.name}: not every rank can be reached from those with chunks for it"
            )
        back = np.argsort(order, kind="stable")
        return hops[back], path[back]


def _laps(group: Indices) -> Indices:
    """Return how many earlier rows are of the same group, for each row."""
    order = np.argsort(group, kind="stable")
    first = np.flatnonzero(np.diff(group[order], prepend=-1))
    laps = np.empty(len(group), np.int64)
    laps[order] = np.arange(len(group)) - np.repeat(first, np.diff(np.append(first, len(group))))
    return laps


def _hop_diameter(network: Network) -> int:
    """Return an upper bound on the hops of any shortest path, at most twice the true value."""
    hops = distances_s(network, np.ones(network.links), np.zeros(1, np.int64))
    return max(1, 2 * int(hops[np.isfinite(hops)].max()))
