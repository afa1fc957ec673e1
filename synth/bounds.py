"""Proven lower bounds on the time of a collective, and which one binds.

With the chunk fixed the bounds count whole chunks: a gate that is free at 0 can have delivered
floor((T − travel) / hold) + 1 of them by T. With ``fluid`` the chunk size is free, and they are bytes
over bandwidth plus the least alpha. All hold for every schedule that reduces at ranks only:

- *ingress*, *egress*, *cut*: what a set S of ranks needs from outside must cross its incoming links
  (ForestColl). When nothing crosses twice, the last chunk to enter must still spread inside S; when
  something does, there is one more crossing to wait for.
- *latency*: a chunk that leaves at 0 travels at least the shortest path to whoever wants it.
- *count*: whoever lacks what it wants must receive it, over all links and ports together; an all_reduce
  sends every chunk at least 2(N−1) times (Patarasuk and Yuan).
- *partition*: the same between k parts of the network: 2(k−1) crossings (Nash-Williams, Tutte).

reduce_scatter and reduce are bounded as all_gather and broadcast on the transposed network, of which
they are the reversal in time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from probes.columns import Floats, Indices, Mask, floats
from synth.collective import Collective, Kind
from synth.cuts import Cut, candidate_cuts, cut_around, gates, labelings
from synth.distances import distances_s
from synth.flow import slowest_sets
from synth.network import Network
from synth.point_bounds import point_bounds
from synth.schedule import Bound
from synth.subnetwork import named_back, reachable, renumbered, restricted

__all__ = ["bounds"]

_MOST_SOURCES = 256
_MOST_CUTS = 12
_SPREADING = ("all_gather", "reduce_scatter", "all_reduce", "broadcast", "reduce")
_TURNED: dict[Kind, Kind] = {"reduce_scatter": "all_gather", "reduce": "broadcast"}


def bounds(network: Network, collective: Collective, chunk_bytes: int, *, fluid: bool = False) -> list[Bound]:
    """Every kind of bound at its largest, the largest first; at least one.

    ``fluid`` leaves the chunk size free: the total stays, chunks may be cut finer. The number of
    max-flows is limited so that 1024 ranks take seconds.
    """
    if collective.ranks < 2:
        return [Bound("nothing to do", 0.0)]
    among = reachable(network, collective)
    if len(among) < network.ranks:
        inner, _ = restricted(network, among)
        found = bounds(inner, renumbered(collective, among), chunk_bytes, fluid=fluid)
        return [
            Bound(named_back(each.name, among), each.time_s, named_back(each.detail, among)) for each in found
        ]
    if not collective.whole or collective.kind not in _SPREADING:
        found = point_bounds(network, collective, chunk_bytes, fluid=fluid)
    elif collective.kind in _TURNED:
        copying = replace(collective, kind=_TURNED[collective.kind])
        found = [_mirrored(b) for b in _bounds(network.transposed(), copying, chunk_bytes, fluid)]
    else:
        found = _bounds(network, collective, chunk_bytes, fluid)
    return sorted(found, key=lambda bound: -bound.time_s)


def _bounds(network: Network, collective: Collective, chunk_bytes: int, fluid: bool) -> list[Bound]:
    problem = _Problem(network, collective, chunk_bytes, fluid)
    best: dict[str, Bound] = {"latency": problem.latency(), "count": problem.count()}
    if collective.kind == "all_reduce":
        best["partition"] = problem.partition()
    for cut in problem.promising():
        bound = problem.cut(cut)
        if cut.kind not in best or bound.time_s > best[cut.kind].time_s:
            best[cut.kind] = bound
    return list(best.values())


def _mirrored(bound: Bound) -> Bound:
    """Bounds of the transposed network name what enters where, really, it leaves."""
    swap = {"ingress": "egress", "egress": "ingress", "cut into": "cut out of", "cut out of": "cut into"}
    for old, new in swap.items():
        if bound.name.startswith(old):
            return replace(bound, name=new + bound.name[len(old) :])
    return bound


@dataclass(frozen=True, eq=False)
class _Problem:
    """One collective on one network, with the tables that its bounds share."""

    network: Network
    collective: Collective
    chunk_bytes: int
    fluid: bool

    @property
    def supply(self) -> Indices:
        """Chunks that each rank starts with and that others need; for all_reduce, all of them."""
        if self.collective.reduces:
            return np.full(self.network.ranks, self.collective.chunks)
        return np.bincount(self.collective.source_of(), minlength=self.network.ranks)

    def needed(self, inside: Mask) -> int:
        """How many chunks must cross into the set at least once."""
        if inside.all() or not inside.any():
            return 0
        if self.collective.reduces:
            return self.collective.chunks
        source, target = self.collective.source_of(), self.collective.target_of()
        wanted = (target < 0) | inside[np.maximum(target, 0)]
        return int((~inside[source] & wanted).sum())

    def promising(self) -> list[Cut]:
        """Of each kind the few cuts that take longest by bytes alone, no two of them alike."""
        scored = sorted(self.cuts(), key=lambda pair: -pair[0])
        chosen: list[Cut] = []
        for kind in ("ingress", "egress", "cut"):
            looks: set[tuple[float, int, int]] = set()
            for bytes_s, cut in scored:
                look = (bytes_s, len(cut.links), int(cut.inside.sum()))
                if cut.kind == kind and look not in looks and len(looks) < _MOST_CUTS:
                    looks.add(look)
                    chosen.append(cut)
        return chosen

    def cuts(self) -> Iterable[tuple[float, Cut]]:
        """(time by bytes alone, cut): the candidates, then those that max-flows find to be worse."""
        worst_s = 0.0
        for cut in candidate_cuts(self.network):
            bytes_s = self._bytes_s(cut)
            worst_s = max(worst_s, bytes_s)
            yield bytes_s, cut
        supply = floats(self.supply * self.chunk_bytes)
        directions = [self.network]
        if self.collective.kind == "all_reduce":
            # One rank's contribution must reach all, and all contributions must reach that rank.
            supply = floats(np.where(np.arange(self.network.ranks) == 0, supply, 0.0))
            directions.append(self.network.transposed())
        for network in directions:
            for inside in slowest_sets(network, supply, worst_s):
                into = inside if network is self.network else ~inside
                cut = cut_around(self.network, into, f"cut into {int(into.sum())} ranks", "cut")
                yield self._bytes_s(cut), cut

    def cut(self, cut: Cut) -> Bound:
        """The time that ``cut`` takes to let pass what is needed inside."""
        needed = self.needed(cut.inside)
        if not needed:
            return Bound(cut.name, 0.0)
        if not len(cut.links):
            return Bound(cut.name, float("inf"), "no link leads there")
        if self.fluid:
            alpha_s = float(self.network.alpha_s[cut.links].min())
            return Bound(cut.name, self._bytes_s(cut) + alpha_s, self._detail(cut, needed))
        time_s = self._crossing_s(cut, needed)
        if cut.kind == "cut" and not self.collective.reduces:
            spread_s = self._spread_s(cut)
            time_s = max(time_s, min(time_s + spread_s, self._crossing_s(cut, needed + 1)))
        return Bound(cut.name, time_s, self._detail(cut, needed))

    def latency(self) -> Bound:
        """The longest of the shortest paths from a source to whoever wants its chunk."""
        cost_s = self.network.alpha_s if self.fluid else self.network.travel_s(self.chunk_bytes)
        sources = np.flatnonzero(self.supply)
        if len(sources) > _MOST_SOURCES:
            sources = sources[np.linspace(0, len(sources) - 1, _MOST_SOURCES).astype(int)]
        reach_s = distances_s(self.network, cost_s, sources)
        row, rank = np.unravel_index(int(reach_s.argmax()), reach_s.shape)
        return Bound("latency", float(reach_s[row, rank]), f"from rank {sources[row]} to rank {rank}")

    def count(self) -> Bound:
        """All sends that are needed, over all that links and ports can carry at once."""
        shape = self.collective
        sends = int((shape.wanted() & ~shape.held()).sum())
        if shape.kind == "all_reduce":
            sends = 2 * (shape.ranks - 1) * shape.chunks
        rate = self._rate_in_all()
        time_s = sends * self.chunk_bytes / rate + float(self.network.alpha_s.min(initial=np.inf))
        return Bound("count", time_s, f"{sends} sends over {rate / 1e9:.4g} GB/s in all")

    def partition(self) -> Bound:
        """2(k−1) crossings of every chunk between k parts, over all that crosses: hosts and clusters."""
        best = Bound("partition", 0.0)
        for labels, noun in labelings(self.network):
            crossing = np.flatnonzero(labels[self.network.src] != labels[self.network.dst])
            parts = len(np.unique(labels))
            if not 1 < parts < self.network.ranks or not len(crossing):
                continue
            between = Cut("", "all", np.ones(self.network.ranks, dtype=bool), crossing)
            rate = float((1.0 / gates(self.network, between).beta_s_per_byte).sum())
            crossings = 2 * (parts - 1) * self.collective.chunks
            time_s = crossings * self.chunk_bytes / rate + float(self.network.alpha_s[crossing].min())
            if time_s > best.time_s:
                detail = f"{crossings} crossings over {rate / 1e9:.4g} GB/s"
                whole = "hosts" if noun.startswith("host") else "clusters"
                best = Bound(f"partition into {parts} {whole}", time_s, detail)
        return best

    def _rate_in_all(self) -> float:
        """Bytes per second over all links, each counted at one of its ports: the least of three ways."""
        rates = dict.fromkeys(("all", "egress", "ingress"), 0.0)
        everything = Cut("", "all", np.ones(self.network.ranks, dtype=bool), np.arange(self.network.links))
        for cut in (everything, *candidate_cuts(self.network)):
            if cut.kind in rates:
                rates[cut.kind] += float((1.0 / gates(self.network, cut).beta_s_per_byte).sum())
        return min(rates.values())

    def _bytes_s(self, cut: Cut) -> float:
        if not len(cut.links):
            return 0.0
        rate = float((1.0 / gates(self.network, cut).beta_s_per_byte).sum())
        return self.needed(cut.inside) * self.chunk_bytes / rate

    def _detail(self, cut: Cut, needed: int) -> str:
        rate = float((1.0 / gates(self.network, cut).beta_s_per_byte).sum())
        return f"{needed} chunks over {rate / 1e9:.4g} GB/s"

    def _crossing_s(self, cut: Cut, needed: int) -> float:
        """The earliest time at which the gates of a cut can have delivered ``needed`` whole chunks."""
        passed = gates(self.network, cut)
        hold_s = passed.beta_s_per_byte * self.chunk_bytes + passed.alpha_s * self.network.hold_alpha
        travel_s = passed.beta_s_per_byte * self.chunk_bytes + passed.alpha_s
        first, restock_s = self._stock(passed.tail)
        stall_s = np.maximum(0.0, restock_s - first * hold_s)
        return _earliest_s(needed, hold_s, travel_s, first, stall_s)

    def _stock(self, tails: Indices) -> tuple[Floats, Floats]:
        """For each gate: how many chunks its tail holds at 0, and when the next can reach the tail."""
        known = (tails >= 0) & (not self.collective.reduces)
        first = np.where(known, self.supply[np.maximum(tails, 0)], np.inf).astype(float)
        in_start, in_links = self.network.in_links
        travel_s = self.network.travel_s(self.chunk_bytes)
        restock_s = np.zeros(len(tails))
        for at in np.flatnonzero(known):
            entering = in_links[in_start[tails[at]] : in_start[tails[at] + 1]]
            restock_s[at] = travel_s[entering].min(initial=np.inf)
        return first, restock_s

    def _spread_s(self, cut: Cut) -> float:
        """The least time from an entry of the set to its farthest rank, over links inside the set."""
        inner = np.flatnonzero(cut.inside[self.network.src] & cut.inside[self.network.dst])
        entries = np.unique(self.network.dst[cut.links])[:_MOST_SOURCES]
        cost_s = self.network.travel_s(self.chunk_bytes)
        if not len(inner):
            return float("inf") if cut.inside.sum() > 1 else 0.0
        if len(entries) < len(np.unique(self.network.dst[cut.links])):
            return 0.0
        return float(distances_s(self.network, cost_s, entries, inner)[:, cut.inside].max(axis=1).min())


def _earliest_s(needed: int, hold_s: Floats, travel_s: Floats, first: Floats, stall_s: Floats) -> float:
    """The least T by which gates together deliver ``needed``: bisection, then the delivery itself."""

    def arrival_s(number: Floats) -> Floats:
        late = np.where(number > first, stall_s, 0.0)
        return np.asarray(travel_s + (number - 1) * hold_s + late)

    def delivered(time_s: float) -> Floats:
        slack = 1e-9
        early = np.minimum(np.floor((time_s - travel_s) / hold_s + slack) + 1, first)
        late = np.floor((time_s - travel_s - stall_s) / hold_s + slack) + 1
        return np.asarray(np.maximum(np.maximum(early, np.where(late > first, late, 0)), 0))

    low_s, high_s = 0.0, float(arrival_s(np.full(len(hold_s), float(needed))).min())
    if not np.isfinite(high_s):
        return high_s
    for _ in range(100):
        middle_s = (low_s + high_s) / 2
        if delivered(middle_s).sum() >= needed:
            high_s = middle_s
        else:
            low_s = middle_s
    counts = delivered(high_s * (1 + 1e-12))
    return float(arrival_s(counts)[counts > 0].max())
