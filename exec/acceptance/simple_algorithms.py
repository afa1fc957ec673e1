"""Times of simple published algorithms on a network: rings, trees, and direct sends, as libraries use them.

- *ring* (Patarasuk and Yuan): through the ranks of a host, host after host, and back. NCCL has a ring for
  each NIC. Here the rings enter each host at ranks evenly apart, and each leaves at the rank before its
  entry.
- *tree*: double binary trees (Sanders, Speck, Träff), or a chain for broadcast and reduce; pieces of the
  buffer follow each other as in a pipeline.
- *direct*: every rank sends every other its part at once.

`AlgorithmModel` estimates each algorithm from the time of its busiest link or port and the time of one chunk
from its first hop to its last. For rings and direct sends the estimate is the longer of the two. For trees it
is their sum, less the time of one piece on the busiest link or port. `simulated_s` replays the promising
algorithms send by send.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial

import numpy as np

from probes.base import Floats, Indices, Ints, bytes_of, ints
from synth.collective import Kind, collective
from synth.errors import NotApplicableError
from synth.methods import direct, parents, ring, rooted, tree
from synth.network import Network
from synth.networks import link_table, restricted
from synth.schedules import COPY, REDUCE, Schedule
from synth.simulation import replay
from synth.tree_packing import depths

__all__ = ["AlgorithmModel", "Estimate", "fastest_schedule", "host_order", "simulated_s"]

# The numbers of simultaneous rings that are tried: one ring for each NIC of a host, and most machines of
# synth/networks/dgx.json have up to 8 NICs.
_RINGS = (1, 2, 4, 8)
# The numbers of pieces in which a buffer is pipelined through a tree: few for latency, many for bandwidth.
_PIECES = (1, 8, 64)
# Algorithms whose estimate is up to this many times the least are replayed. On dgx-h100:2 to :32 and
# dgx-a100/4x200:4, from 1 KiB to 1 GiB, the fastest took up to 1.6 times its estimate.
_PROMISING = 2.0
# The cheapest of parallel links is chosen by its time for this many bytes.
_LARGE_BYTES = 1 << 20
# The most ranks on which direct sends are ordered by the times at which they can start: that takes 0.02 s at
# 64 ranks, but 0.2 s at 128.
_MOST_LISTED = 64
# If an algorithm uses at most one link in this many of the network, loads are added up for its links only.
_SPARSE = 16
_ROUND: tuple[Kind, ...] = ("all_reduce", "all_gather", "reduce_scatter")
_ROOTED: tuple[Kind, ...] = ("broadcast", "reduce")
# The exponent of the norm that makes the strain from the busy times of all links and ports: high enough that
# the busiest dominate, low enough that a second slow link counts beside the first.
_NORM = 8


@dataclass(frozen=True)
class Estimate:
    """The estimated time of an algorithm; ``strain_s`` counts all busy links and ports.

    ``schedule`` makes the algorithm's schedule; call it only if the estimate is for all ranks in order.
    """

    time_s: float
    strain_s: float
    schedule: Callable[[], Schedule]


def host_order(hosts: Sequence[str]) -> list[int]:
    """Return the ranks host after host, hosts in the order of their first ranks."""
    first = {host: at for at, host in reversed(list(enumerate(hosts)))}
    return sorted(range(len(hosts)), key=lambda rank: (first[hosts[rank]], rank))


def simulated_s(network: Network, kind: Kind, size_bytes: int) -> float:
    """Return the time of the fastest algorithm, replayed send by send.

    Raises NotApplicableError if every algorithm lacks a link.
    """
    return replay(fastest_schedule(network, kind, size_bytes)).time_s


def fastest_schedule(network: Network, kind: Kind, size_bytes: int) -> Schedule:
    """Return the schedule of the algorithm that is fastest when replayed, on the ranks host after host.

    Raises NotApplicableError if every algorithm lacks a link.
    """
    order = host_order(network.hosts)
    if order != list(range(network.ranks)):
        network, _ = restricted(network, order)
    estimates = AlgorithmModel(network).estimates(kind, size_bytes, np.arange(network.ranks))
    promising = [one for one in estimates if one.time_s <= _PROMISING * estimates[0].time_s]
    return min((one.schedule() for one in promising), key=lambda one: replay(one).time_s)


class AlgorithmModel:
    """Estimates on one network, for all of its ranks or for some."""

    def __init__(self, network: Network) -> None:
        self._network = network

    def estimates(self, kind: Kind, size_bytes: int, ranks: Indices) -> list[Estimate]:
        """Return the estimate of each algorithm on ``ranks`` in this order, the fastest first.

        Raises NotApplicableError if every algorithm lacks a link.
        """
        found = [
            one
            for candidates in (self._rings, self._trees, self._direct)
            for one in candidates(kind, size_bytes, ranks)
            if math.isfinite(one.time_s)
        ]
        if not found:
            raise NotApplicableError(f"{self._network.name} lacks links of every simple algorithm of {kind}")
        return sorted(found, key=lambda one: one.time_s)

    @cached_property
    def _table(self) -> Ints:
        return link_table(self._network, _LARGE_BYTES)

    def _rings(self, kind: Kind, size_bytes: int, ranks: Indices) -> Iterator[Estimate]:
        if kind not in _ROUND or len(ranks) < 2:
            return
        hosts = [self._network.hosts[rank] for rank in ranks.tolist()]
        crowd = max(Counter(hosts).values())
        for rings in (number for number in _RINGS if number <= crowd):
            places = _ring_places(hosts, rings)
            hops = self._table[ranks[places], ranks[np.roll(places, -1, axis=1)]]
            chunk_bytes = max(1, math.ceil(size_bytes / len(ranks) / rings))
            # A chunk passes all hops but one, and in an all_reduce it goes round twice.
            laps = (2 if kind == "all_reduce" else 1) * (len(ranks) - 1) / len(ranks)
            way_s = laps * float(self._travel_s(hops, chunk_bytes).sum(axis=1).max())
            loads = np.full(hops.size, laps / rings * size_bytes)
            made = partial(_ring_schedule, self._network, kind, places, hops, chunk_bytes)
            yield self._estimate(hops.ravel(), loads, way_s, made)

    def _trees(self, kind: Kind, size_bytes: int, ranks: Indices) -> Iterator[Estimate]:
        if kind not in (*_ROOTED, "all_reduce") or len(ranks) < 2:
            return
        chain = np.arange(len(ranks)) - 1
        both = [np.array(rooted(one, collective(kind, len(ranks)))) for one in parents(len(ranks))]
        for pieces in _PIECES:
            yield self._tree(kind, size_bytes, ranks, both, pieces)
            if kind != "all_reduce":
                yield self._tree(kind, size_bytes, ranks, [chain], pieces)

    def _tree(
        self, kind: Kind, size_bytes: int, ranks: Indices, shape: list[Indices], pieces: int
    ) -> Estimate:
        """Return the estimate of a chain, which is one tree, or of two trees at once."""
        chunks = pieces * len(shape)
        chunk_bytes = max(1, math.ceil(size_bytes / chunks))
        rows, way_s = [], 0.0
        for parent in shape:
            child = np.flatnonzero(parent >= 0)
            up = self._table[ranks[child], ranks[parent[child]]]
            down = self._table[ranks[parent[child]], ranks[child]]
            for used, serves in ((up, kind != "broadcast"), (down, kind != "reduce")):
                if serves:
                    rows.append(used)
                    travel_s = np.zeros(len(parent))
                    travel_s[child] = self._travel_s(used, chunk_bytes)
                    way_s += float(_summed_down(parent, travel_s).max()) / len(shape)
        edges = np.concatenate(rows)
        loads = np.full(len(edges), size_bytes / len(shape))
        made = partial(_tree_schedule, self._network, kind, chunks, chunk_bytes, chain=len(shape) == 1)
        busy = self._estimate(edges, loads, 0.0, made)
        # The last piece starts after the busiest link has sent all other pieces.
        return replace(busy, time_s=way_s + busy.time_s * (1 - 1 / pieces))

    def _direct(self, kind: Kind, size_bytes: int, ranks: Indices) -> Iterator[Estimate]:
        src, dst = _direct_pairs(kind, len(ranks))
        rows = self._table[ranks[src], ranks[dst]]
        whole = kind in (*_ROOTED, "all_to_next")
        chunk_bytes = max(1, math.ceil(size_bytes / (1 if whole else len(ranks))))
        way_s = float(self._travel_s(rows, chunk_bytes).max(initial=0.0))
        rounds = 2 if kind == "all_reduce" else 1
        loads = np.full(len(rows), float(rounds * chunk_bytes))
        made = partial(_direct_schedule, self._network, kind, src, dst, rows, chunk_bytes)
        yield self._estimate(rows, loads, rounds * way_s, made)

    def _travel_s(self, rows: Indices, size_bytes: float) -> Floats:
        return np.asarray(
            self._network.alpha_s[rows] + self._network.beta_s_per_byte[rows] * size_bytes, dtype=np.float64
        )

    def _estimate(
        self, rows: Indices, loads: Floats, way_s: float, schedule: Callable[[], Schedule]
    ) -> Estimate:
        """Return the estimate for sends of ``loads`` bytes over ``rows``; infinite if a link is missing."""
        if (rows < 0).any():
            return Estimate(math.inf, math.inf, schedule)
        network = self._network
        if len(rows) * _SPARSE > network.links:
            bytes_of_link = np.bincount(rows, loads, network.links)
            link_s = network.beta_s_per_byte * bytes_of_link
            port_s = np.bincount(
                network.link_port, network.held_s_per_byte * bytes_of_link[network.port_user]
            )
        else:
            used, place = np.unique(rows, return_inverse=True)
            bytes_of_link = np.bincount(place, loads)
            link_s = network.beta_s_per_byte[used] * bytes_of_link
            at, port = network.ports_along(used)
            port_s = np.bincount(
                port, network.held_s_per_byte[network.port_entries(used)] * bytes_of_link[at]
            )
        busy_s = np.concatenate([link_s, port_s])
        most_s = float(busy_s.max(initial=0.0))
        # Links and ports at most a quarter as busy as the busiest are left out: their eighth powers are too
        # small to count.
        busiest = busy_s[busy_s > most_s / 4] / most_s if most_s else busy_s
        strain_s = most_s * float((busiest**_NORM).sum() ** (1 / _NORM))
        return Estimate(max(most_s, way_s), strain_s, schedule)


def _ring_places(hosts: Sequence[str], rings: int) -> Indices:
    """Return an array (rings, ranks) of the places of each ring in order, given the host of each place."""
    start = np.array([0, *(at for at in range(1, len(hosts)) if hosts[at] != hosts[at - 1]), len(hosts)])
    sizes = np.diff(start)
    first, size = np.repeat(start[:-1], sizes), np.repeat(sizes, sizes)
    turned = np.arange(rings)[:, None] * size // rings
    return np.asarray(first + (np.arange(len(hosts)) - first + turned) % size)


def _ring_schedule(
    network: Network, kind: Kind, places: Indices, hops: Indices, chunk_bytes: int
) -> Schedule:
    """Return the schedule of several rings at once, step after step."""
    rings, ranks = places.shape
    done = collective(kind, ranks, rings if kind == "all_gather" else rings * ranks)
    owner, lap = done.owner_of()
    number = lap % rings
    place_of = np.argsort(places, axis=1)[number, owner]
    rounds = ([(1, REDUCE)] if done.reduces else []) + ([(0, COPY)] if kind != "reduce_scatter" else [])
    step = np.arange(ranks - 1)[:, None]
    link = [hops[number, (place_of + first + step) % ranks].ravel() for first, _ in rounds]
    chunk = np.tile(np.arange(done.chunks), (ranks - 1) * len(rounds))
    op = np.repeat([op for _, op in rounds], step.size * done.chunks)
    columns = ints(chunk), ints(np.concatenate(link)), bytes_of(op)
    return Schedule(network, done, chunk_bytes, "ring", 0, *columns)


@lru_cache(maxsize=8)
def _direct_pairs(kind: Kind, ranks: int) -> tuple[Indices, Indices]:
    """Return (sources, destinations) in the order of their turns: rank r begins with rank r + 1."""
    turn, src = (each.ravel() for each in np.indices((ranks, ranks)))
    dst = (src + turn) % ranks
    wanted = turn > 0
    if kind == "all_to_next":
        wanted = (turn == 1) & (dst > 0)
    elif kind in ("scatter", "broadcast"):
        wanted &= src == 0
    elif kind in ("gather", "reduce"):
        wanted &= dst == 0
    return src[wanted], dst[wanted]


def _direct_schedule(
    network: Network, kind: Kind, src: Indices, dst: Indices, rows: Indices, chunk_bytes: int
) -> Schedule:
    """Return the schedule of direct sends; an all_reduce sends the sums in a second round.

    On over 64 ranks, sends have fixed turns, in which short sends within hosts wait for long sends between
    hosts. On fewer ranks, and in an all_to_all, which has no other algorithm, sends start as soon as links
    and ports are free (`synth.methods`).
    """
    ranks = network.ranks
    done = collective(kind, ranks, ranks if kind in ("all_reduce", "reduce_scatter", "scatter") else 1)
    if kind == "all_to_all" or ranks <= _MOST_LISTED:
        return direct.synthesize(network, done, chunk_bytes)
    chunk = {
        "all_reduce": dst,
        "reduce_scatter": dst,
        "scatter": dst,
        "broadcast": 0 * src,
        "reduce": 0 * src,
    }.get(kind, src)
    op = np.full(len(rows), REDUCE if done.reduces else COPY)
    if kind == "all_reduce":
        # In the second round each rank sends the sum that it owns to every other, over the same links in the
        # same turns.
        chunk, rows, op = np.concatenate([dst, src]), np.tile(rows, 2), np.repeat([REDUCE, COPY], len(rows))
    return Schedule(network, done, chunk_bytes, "direct", 0, ints(chunk), ints(rows), bytes_of(op))


def _tree_schedule(network: Network, kind: Kind, chunks: int, chunk_bytes: int, *, chain: bool) -> Schedule:
    done = collective(kind, network.ranks, chunks)
    if chain:
        return ring.synthesize(network, done, chunk_bytes, order=range(network.ranks))
    return tree.synthesize(network, done, chunk_bytes)


def _summed_down(parent: Indices, cost_s: Floats) -> Floats:
    """Return for each rank the sum of the costs on its way to the root."""
    found = np.zeros(len(parent))
    depth = depths(parent)
    for level in range(1, int(depth.max(initial=0)) + 1):
        here = np.flatnonzero(depth == level)
        found[here] = found[parent[here]] + cost_s[here]
    return found
