"""Lower bounds for collectives that spread data to all ranks or sum data of all ranks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from probes.base import Floats, Indices, Mask, floats, rate_text, size_text
from synth.bounds.arrivals import Carried, arrivals
from synth.bounds.cut_time import crossing_s, drained_s, spread_s
from synth.bounds.cuts import Cut, candidate_cuts, cut_around, distinct_cuts, gates, labelings
from synth.bounds.early_sends import early_sends
from synth.bounds.min_cut import slowest_sets
from synth.bounds.partition_latency import partition_latency_s
from synth.bounds.spanning_trees import is_promising, spanning_tree_s_per_byte
from synth.bounds.wavefront_bound import wavefront
from synth.collective import Collective
from synth.network import Network
from synth.networks import distances_s
from synth.schedules import Bound

__all__ = ["spreading_bounds"]

# The most sources from which latency is computed, and the most promising cuts of each kind.
_MOST_SOURCES = 256
_MOST_CUTS = 12
# The latency inside parts is computed for at most _MOST_PATHS_RANKS ranks, and only if the latency of
# crossing links exceeds the share _NOTICEABLE of the time of the bytes.
_MOST_PATHS_RANKS = 1024
_NOTICEABLE = 0.002
# The detail of a bound names a latency above this share of the bound.
_SHOWN = 0.02
# An arrival bound is listed only if it exceeds the others by more than this factor, which allows for
# rounding.
_MORE = 1 + 1e-9


def spreading_bounds(
    network: Network, collective: Collective, chunk_bytes: int, *, fluid: bool
) -> list[Bound]:
    """Return the largest bound of each kind for an all_gather, broadcast or all_reduce of all ranks."""
    problem = _Problem(network, collective, chunk_bytes, fluid)
    best: dict[str, Bound] = {"latency": problem.latency(), "total traffic": problem.total_traffic()}
    if collective.kind == "all_reduce":
        best["partition"] = problem.partition()
        if is_promising(network):
            best["spanning trees"] = problem.spanning_trees(max(bound.time_s for bound in best.values()))
    for cut in problem.promising():
        bound = problem.cut(cut)
        if cut.kind not in best or bound.time_s > best[cut.kind].time_s:
            best[cut.kind] = bound
    known_s = max(bound.time_s for bound in best.values())
    arrival = problem.arrival(known_s)
    if arrival.time_s > known_s * _MORE:
        best["arrival"] = arrival
    if collective.kind == "broadcast":
        best["early sends"] = problem.early_sends()
    if not fluid and not collective.reduces:
        ahead = wavefront(network, collective.held(), collective.wanted(), chunk_bytes)
        if ahead is not None:
            best["wavefront"] = ahead
    return list(best.values())


@dataclass(frozen=True, eq=False)
class _Problem:
    """One collective on one network, with the tables that its bounds share."""

    network: Network
    collective: Collective
    chunk_bytes: int
    fluid: bool

    @property
    def supply(self) -> Indices:
        """Chunks that each rank starts with and that others need; all chunks in an all_reduce."""
        if self.collective.reduces:
            return np.full(self.network.ranks, self.collective.chunks)
        return np.bincount(self.collective.source_of(), minlength=self.network.ranks)

    @cached_property
    def candidates(self) -> tuple[Cut, ...]:
        """The candidate cuts; only one of several symmetric cuts if all ranks supply equally much."""
        equal_supply = len(np.unique(self.supply)) == 1
        return tuple(distinct_cuts(self.network) if equal_supply else candidate_cuts(self.network))

    @property
    def cost_s(self) -> Floats:
        """The seconds that the first byte of a chunk, or a whole chunk, takes over each link."""
        return self.network.alpha_s if self.fluid else self.network.travel_s(self.chunk_bytes)

    @cached_property
    def paths_s(self) -> Floats:
        """The time of the shortest path from each rank to each other one."""
        return distances_s(self.network, self.cost_s, np.arange(self.network.ranks))

    def needed(self, inside: Mask) -> int:
        """Return the number of chunks that must cross into the set at least once."""
        if inside.all() or not inside.any():
            return 0
        if self.collective.reduces:
            return self.collective.chunks
        source, target = self.collective.source_of(), self.collective.target_of()
        wanted = (target < 0) | inside[np.maximum(target, 0)]
        return int((~inside[source] & wanted).sum())

    def promising(self) -> list[Cut]:
        """Return the few cuts of each kind that take longest by bytes alone, no two equivalent."""
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
        """Yield (time by bytes alone, cut) for the candidates, then for worse cuts that max-flows find."""
        worst_s = 0.0
        for cut in self.candidates:
            bytes_s = self._bytes_s(cut)
            worst_s = max(worst_s, bytes_s)
            yield bytes_s, cut
        supply = floats(self.supply * self.chunk_bytes)
        directions = [self.network]
        if self.collective.kind == "all_reduce":
            # The contribution of rank 0 must reach all ranks, and all contributions must reach rank 0.
            supply = floats(np.where(np.arange(self.network.ranks) == 0, supply, 0.0))
            directions.append(self.network.transposed())
        for network in directions:
            for inside in slowest_sets(network, supply, worst_s):
                into = inside if network is self.network else ~inside
                cut = cut_around(self.network, into, f"traffic into {int(into.sum())} ranks", "cut")
                yield self._bytes_s(cut), cut

    def cut(self, cut: Cut) -> Bound:
        """Return the least time for the needed chunks to cross ``cut``."""
        needed = self.needed(cut.inside)
        if not needed:
            return Bound(cut.name, 0.0)
        if not len(cut.links):
            return Bound(cut.name, float("inf"), "no link leads there")
        if self.fluid:
            alpha_s = float(self.network.alpha_s[cut.links].min())
            return Bound(cut.name, self._bytes_s(cut) + alpha_s, self._detail(cut, needed))
        return Bound(cut.name, self._chunks_s(cut, needed), self._detail(cut, needed))

    def _chunks_s(self, cut: Cut, needed: int) -> float:
        network, chunk_bytes = self.network, self.chunk_bytes
        if self.collective.reduces:
            return crossing_s(network, cut, needed, chunk_bytes, None)
        time_s = crossing_s(network, cut, needed, chunk_bytes, self.supply)
        if cut.kind != "cut":
            return time_s
        # The additional crossing may repeat a chunk, so the chunks that the tails hold do not limit it.
        once_more_s = crossing_s(network, cut, needed + 1, chunk_bytes, None)
        time_s = max(time_s, min(time_s + spread_s(network, cut, chunk_bytes), once_more_s))
        return drained_s(network, cut, needed, chunk_bytes, self.supply, time_s)

    def latency(self) -> Bound:
        """Return the longest of the shortest paths from a source to a rank that wants its chunk."""
        sources = np.flatnonzero(self.supply)
        if len(sources) > _MOST_SOURCES:
            sources = sources[np.linspace(0, len(sources) - 1, _MOST_SOURCES).astype(int)]
        if self.network.ranks <= _MOST_PATHS_RANKS:
            reach_s = self.paths_s[sources]
        else:
            reach_s = distances_s(self.network, self.cost_s, sources)
        row, rank = np.unravel_index(int(reach_s.argmax()), reach_s.shape)
        return Bound("latency", float(reach_s[row, rank]), f"from rank {sources[row]} to rank {rank}")

    def arrival(self, known_s: float) -> Bound:
        """Return the arrival bound of chunks that are copied to all ranks, or summed from all."""
        need_bytes = np.repeat(floats(self.supply * self.chunk_bytes)[:, None], self.network.ranks, axis=1)
        np.fill_diagonal(need_bytes, 0.0)
        carried: Carried = "sums" if self.collective.reduces else "copies"
        chunk_bytes = None if self.fluid else self.chunk_bytes
        return arrivals(self.network, self.candidates, need_bytes, carried, chunk_bytes, known_s)

    def early_sends(self) -> Bound:
        """Return the bound by what few ranks can send at first, for a broadcast."""
        root, total_bytes = self.collective.root, self.collective.chunks * self.chunk_bytes
        distance_s = distances_s(self.network, self.cost_s, np.array([root]))[0]
        return early_sends(self.network, root, distance_s, total_bytes)

    def total_traffic(self) -> Bound:
        """Return the time of all needed sends at the joint rate of all links and ports."""
        shape = self.collective
        sends = int((shape.wanted() & ~shape.held()).sum())
        if shape.kind == "all_reduce":
            sends = 2 * (shape.ranks - 1) * shape.chunks
        rate = self._rate_in_all()
        sent_bytes = sends * self.chunk_bytes
        time_s = sent_bytes / rate + float(self.network.alpha_s.min(initial=np.inf))
        detail = f"{size_text(sent_bytes)} over the {rate_text(rate)} of all links and ports"
        return Bound("total traffic", time_s, detail)

    def partition(self) -> Bound:
        """Return the bound by 2(k−1) crossings of every chunk between k parts, such as hosts or clusters."""
        best = Bound("partition", 0.0)
        far_s: Floats | None = None
        for labels, noun in labelings(self.network):
            crossing = np.flatnonzero(labels[self.network.src] != labels[self.network.dst])
            parts = len(np.unique(labels))
            if not 1 < parts < self.network.ranks or not len(crossing):
                continue
            between = Cut("", "all", np.ones(self.network.ranks, dtype=bool), crossing)
            rate = gates(self.network, between).bytes_per_s
            crossings = 2 * (parts - 1) * self.collective.chunks
            bytes_s = crossings * self.chunk_bytes / rate
            alpha_s = float(self.network.alpha_s[crossing].min())
            if far_s is None and self.network.ranks <= _MOST_PATHS_RANKS and alpha_s > _NOTICEABLE * bytes_s:
                far_s = self.paths_s
            inside_s = 0.0 if far_s is None else partition_latency_s(self.network, labels, far_s, bytes_s)
            time_s = bytes_s + alpha_s + inside_s
            if time_s > best.time_s:
                latency_us = 1e6 * (alpha_s + inside_s)
                latency = (
                    f", and {latency_us:.3g} us of latency" if latency_us > 1e6 * _SHOWN * time_s else ""
                )
                carried = size_text(crossings * self.chunk_bytes)
                detail = f"{carried} in all between them over {rate_text(rate)}{latency}"
                whole = "hosts" if "host" in noun else "clusters"
                best = Bound(f"partition into {parts} {whole}", time_s, detail)
        return best

    def spanning_trees(self, known_s: float) -> Bound:
        """Return the bound by the best link and port prices; stop early if below ``known_s``."""
        total_bytes = self.collective.chunks * self.chunk_bytes
        s_per_byte = spanning_tree_s_per_byte(self.network, known_s / total_bytes)
        time_s = total_bytes * s_per_byte + float(self.network.alpha_s.min())
        return Bound(
            "spanning trees",
            time_s,
            f"no schedule moves {size_text(total_bytes)} faster over these links, by a linear program",
        )

    def _rate_in_all(self) -> float:
        """Return the bytes per second over all links: the least of three ways to group links into gates."""
        rates = dict.fromkeys(("all", "egress", "ingress"), 0.0)
        everything = Cut("", "all", np.ones(self.network.ranks, dtype=bool), np.arange(self.network.links))
        for cut in (everything, *candidate_cuts(self.network)):
            if cut.kind in rates:
                rates[cut.kind] += gates(self.network, cut).bytes_per_s
        return min(rates.values())

    def _bytes_s(self, cut: Cut) -> float:
        if not len(cut.links):
            return 0.0
        return self.needed(cut.inside) * self.chunk_bytes / gates(self.network, cut).bytes_per_s

    def _detail(self, cut: Cut, needed: int) -> str:
        rate = gates(self.network, cut).bytes_per_s
        return f"{size_text(needed * self.chunk_bytes)} over {rate_text(rate)}"
