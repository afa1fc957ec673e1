"""General lower bounds, for collectives of any shape: the data that each rank must receive, send or relay.

The bounds use only each chunk's set of sources and targets, so they hold for all_to_all, scatter, gather,
all_to_next, custom collectives, subsets of the ranks and several collectives at once:

- *ingress*, *egress*, *cut*: a chunk with a target inside a set of ranks must enter the set if no source is
  inside; a sum must enter it if any source is outside;
- *latency*: a chunk that leaves at 0 travels the shortest path from its nearest source, or from the farthest
  contribution to a sum;
- *flow*: the optimum of the concurrent-flow LP of the chunks that one rank lacks, if it is small;
- *distance*: let every link and port have a price y. In time T all together offer T·Σy. A chunk costs at
  least the cheapest path to its farthest target, and at least the sum of the cheapest last links into its
  targets. So T is at least the cost of all chunks divided by Σy. Three kinds of prices are tried: equal
  prices, prices of one cost level, and prices found by raising busy resources' prices over many rounds.
  Prices of the last kind approach the optimum of the dual of the concurrent-flow LP.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from scipy.sparse import coo_array

from probes.base import Floats, Indices, Mask, floats, plural, rate_text, size_text
from synth.bounds.arrivals import arrivals
from synth.bounds.cuts import Cut, candidate_cuts, cut_around, gates
from synth.bounds.lp_dual import Prices
from synth.bounds.multicommodity_lp import fits, least_time_s
from synth.collective import Collective
from synth.network import Network
from synth.networks import distances_s
from synth.schedules import Bound

__all__ = ["point_bounds"]

# The most sizes of cuts around the first ranks, and the most cuts out of holders.
_MOST_SWEEPS = 64
# The most ranks for which the longest axis is computed, from the eigenvectors of a dense matrix.
_MOST_FOR_AXIS = 1024
# The most rounds that adjust prices, and the most ranks times links of all rounds together.
_MOST_ROUNDS = 40
_MOST_WORK = 120_000_000
# The most blocks with several holders or takers for which an arrival bound is computed.
_MOST_BLOCKS = 4096
# Sets grow by at most this many ranks, with about _MOST_GROWN trials in all: some tenths of a second.
_MOST_STEPS, _MOST_GROWN = 8, 6000
# Only an arrival bound that exceeds the others by more than rounding is listed.
_MORE = 1 + 1e-9


def point_bounds(network: Network, collective: Collective, chunk_bytes: int, *, fluid: bool) -> list[Bound]:
    """Return the largest bound of each kind. ``fluid`` leaves the chunk size free at the same total size.

    The prices take O(rounds · ranks · links · log ranks), with fewer rounds on larger networks.
    """
    problem = _Problem(network, collective, chunk_bytes, fluid)
    best: dict[str, Bound] = {"latency": problem.latency()}
    if not np.isfinite(best["latency"].time_s):
        return [best["latency"]]
    for bound, kind in [*problem.cuts(), *((bound, "distance") for bound in problem.distances())]:
        if kind not in best or bound.time_s > best[kind].time_s:
            best[kind] = bound
    known_s = max(bound.time_s for bound in best.values())
    arrival = problem.arrival(known_s)
    if arrival.time_s > known_s * _MORE:
        best["arrival"] = arrival
    flow = problem.flow()
    return [*best.values(), *([flow] if flow is not None else [])]


@dataclass(frozen=True, eq=False)
class _Problem:
    """One collective on one network, with the tables that its bounds share."""

    network: Network
    collective: Collective
    chunk_bytes: int
    fluid: bool

    @cached_property
    def demands(self) -> Floats:
        """The number of chunks with one source and one target, as an array (sources, targets)."""
        table = np.zeros((self.network.ranks,) * 2)
        source, target = self.collective.source_of(), self.collective.target_of()
        points = (source >= 0) & (target >= 0)
        np.add.at(table, (source[points], target[points]), 1.0)
        np.fill_diagonal(table, 0.0)
        return table

    @cached_property
    def others(self) -> list[tuple[Indices, Indices, bool, int]]:
        """(sources, targets, reduced, count) of all other chunks, equal ones grouped."""
        sources, targets = self.collective.sources, self.collective.targets
        many = (self.collective.source_of() < 0) | (self.collective.target_of() < 0)
        keys = np.stack((sources.group, targets.group, self.collective.reduced), axis=1)[many]
        found, first, count = np.unique(keys, axis=0, return_index=True, return_counts=True)
        chunk = np.flatnonzero(many)[first].tolist()
        return [
            (sources.of(c), targets.of(c), bool(key[2]), int(n))
            for c, key, n in zip(chunk, found, count, strict=True)
        ]

    @property
    def _holds_alpha(self) -> bool:
        return self.network.hold_alpha and not self.fluid

    def needed(self, inside: Mask) -> int:
        """Return the number of chunks that must enter the set at least once."""
        sources, targets, reduced = self.collective.sources, self.collective.targets, self.collective.reduced
        outside_too = sources.any_in(~inside)
        must = targets.any_in(inside) & np.where(reduced, outside_too, ~sources.any_in(inside))
        return int(must.sum())

    def cuts(self) -> Iterator[tuple[Bound, str]]:
        for cut in (*candidate_cuts(self.network), *self._sweeps(), *self._holders(), *self._grown):
            needed = self.needed(cut.inside)
            if needed:
                yield self._crossing(cut, needed), cut.kind

    def _sweeps(self) -> Iterator[Cut]:
        """Yield cuts into and out of the first ranks, by number and along the longest axis."""
        ranks = self.network.ranks
        sizes = np.unique(np.linspace(1, ranks - 1, min(ranks - 1, _MOST_SWEEPS)).astype(int))
        orders = [np.arange(ranks)]
        if ranks <= _MOST_FOR_AXIS:
            orders.append(np.argsort(_axis(self.network), kind="stable"))
        for order in orders:
            for size in sizes.tolist():
                inside = np.zeros(ranks, dtype=bool)
                inside[order[:size]] = True
                yield cut_around(self.network, inside, f"traffic into {size} ranks", "cut")
                yield cut_around(self.network, ~inside, f"traffic out of {size} ranks", "cut")

    def _holders(self) -> Iterator[Cut]:
        """Yield the cut out of each set of ranks that hold the same chunk: one of these must send it."""
        holders = dict.fromkeys(
            tuple(sources.tolist()) for sources, _, reduced, _ in self.others if not reduced
        )
        for chosen in list(holders)[:_MOST_SWEEPS]:
            inside = np.ones(self.network.ranks, dtype=bool)
            inside[list(chosen)] = False
            if inside.any():
                yield cut_around(self.network, inside, f"traffic out of {len(chosen)} holders", "cut")

    def flow(self) -> Bound | None:
        """Return the concurrent-flow optimum of the chunks that one rank lacks; None if none, or too many."""
        found = [
            (np.setdiff1d(targets, held), held, count) for held, targets, no, count in self.others if not no
        ]
        single = [
            (int(lacking[0]), tuple(held.tolist()), count)
            for lacking, held, count in found
            if len(lacking) == 1
        ]
        # Chunks with the same holders share a row.
        row_of = {held: row for row, held in enumerate(dict.fromkeys(held for _, held, _ in single))}
        holders = np.zeros((len(row_of), self.network.ranks), dtype=bool)
        needed = np.zeros(holders.shape)
        for target, held, count in single:
            holders[row_of[held], list(held)] = True
            needed[row_of[held], target] += count
        needed = floats(np.concatenate((self.demands, needed)))
        if not needed.any() or not fits(self.network, needed):
            return None
        holders = np.concatenate((np.eye(self.network.ranks, dtype=bool), holders))
        held_s = floats(self.network.beta_s_per_byte * self.chunk_bytes)
        time_s = least_time_s(self.network, needed, held_s, holders) + float(self.network.alpha_s.min())
        return Bound("flow", time_s, f"{size_text(int(needed.sum()) * self.chunk_bytes)} over any paths")

    def arrival(self, known_s: float) -> Bound:
        """Return the arrival bound of all chunks that are not summed."""
        chunk_bytes = None if self.fluid else self.chunk_bytes
        cuts = (*candidate_cuts(self.network), *self._grown)
        copied = [
            (sources, targets, count) for sources, targets, reduced, count in self.others if not reduced
        ]
        if not copied or len(copied) > _MOST_BLOCKS:
            need_bytes = floats(self.demands * self.chunk_bytes)
            return arrivals(self.network, cuts, need_bytes, "points", chunk_bytes, known_s)
        senders = np.flatnonzero(self.demands.any(axis=1))
        holders = np.zeros((len(senders) + len(copied), self.network.ranks), dtype=bool)
        holders[np.arange(len(senders)), senders] = True
        needed = np.concatenate((self.demands[senders], np.zeros((len(copied), self.network.ranks))))
        for row, (sources, targets, count) in enumerate(copied, len(senders)):
            holders[row, sources] = True
            needed[row, np.setdiff1d(targets, sources)] = count
        need_bytes = floats(needed * self.chunk_bytes)
        return arrivals(self.network, cuts, need_bytes, "copies", chunk_bytes, known_s, holders)

    @cached_property
    def _grown(self) -> list[Cut]:
        """The slowest cut into, and out of, a set that grows from one rank by the best neighbours."""
        copied = [(one, count) for *one, reduced, count in self.others if not reduced]
        if len(copied) != len(self.others) or len(copied) > _MOST_BLOCKS:
            return []
        held, wanted = np.zeros((2, len(copied), self.network.ranks), dtype=bool)
        for row, ((sources, targets), _) in enumerate(copied):
            held[row, sources], wanted[row, targets] = True, True
        counts = np.array([count for _, count in copied])

        # Thousands of sets are tried, so this counts by blocks what `needed` counts by chunks.
        def entering(inside: Mask) -> float:
            crossing = wanted[:, inside].any(axis=1) & ~held[:, inside].any(axis=1)
            return float(counts[crossing].sum() + self.demands[np.ix_(~inside, inside)].sum())

        def time_s(members: Mask, outwards: bool) -> float:
            inside = ~members if outwards else members
            cut = cut_around(self.network, inside, "", "cut")
            crossing = entering(inside) if len(cut.links) else 0.0
            return crossing / gates(self.network, cut).bytes_per_s if crossing else 0.0

        degree = self.network.links / self.network.ranks
        starts = int(_MOST_GROWN / (degree * _MOST_STEPS))
        alone = np.eye(self.network.ranks, dtype=bool)
        found = []
        for outwards in (False, True):
            alone_s = [time_s(one, outwards) for one in alone]
            best_s, best = 0.0, np.zeros(0, dtype=bool)
            for rank in np.argsort(alone_s)[::-1][:starts].tolist():
                members, set_s = self._grow(alone[rank], alone_s[rank], partial(time_s, outwards=outwards))
                if set_s > best_s and members.sum() > 1:
                    best_s, best = set_s, members
            if best_s:
                way = "out of" if outwards else "into"
                name = f"traffic {way} {plural(int(best.sum()), 'rank')}"
                found.append(cut_around(self.network, ~best if outwards else best, name, "cut"))
        return found

    def _grow(self, members: Mask, set_s: float, time_s: Callable[[Mask], float]) -> tuple[Mask, float]:
        """Return a set that has grown neighbour by neighbour while its time rises, and this time."""
        for _ in range(_MOST_STEPS):
            near = np.unique(self.network.dst[members[self.network.src]])
            larger = [
                members | (np.arange(self.network.ranks) == one) for one in near[~members[near]].tolist()
            ]
            times_s = [time_s(one) for one in larger]
            if max(times_s, default=0.0) <= set_s:
                break
            set_s, members = max(times_s), larger[int(np.argmax(times_s))]
        return members, set_s

    def _crossing(self, cut: Cut, needed: int) -> Bound:
        if not len(cut.links):
            return Bound(cut.name, float("inf"), "no link leads there")
        rate = gates(self.network, cut).bytes_per_s
        alpha_s = float(self.network.alpha_s[cut.links].min())
        detail = f"{size_text(needed * self.chunk_bytes)} over {rate_text(rate)}"
        return Bound(cut.name, needed * self.chunk_bytes / rate + alpha_s, detail)

    def latency(self) -> Bound:
        cost_s = self.network.alpha_s if self.fluid else self.network.travel_s(self.chunk_bytes)
        reach_s = distances_s(self.network, cost_s, np.arange(self.network.ranks))
        wanted = np.where(self.demands > 0, reach_s, 0.0)
        at = np.unravel_index(int(wanted.argmax()), wanted.shape)
        worst_s, ends = float(wanted[at]), (int(at[0]), int(at[1]))
        for sources, targets, reduced, _ in self.others:
            paths_s = reach_s[np.ix_(sources, targets)]
            far_s = paths_s.max() if reduced else paths_s.min(axis=0).max()
            if far_s > worst_s:
                worst_s, ends = float(far_s), (int(sources[0]), int(targets[paths_s.max(axis=0).argmax()]))
        return Bound("latency", worst_s, f"from rank {ends[0]} to rank {ends[1]}")

    def distances(self) -> Iterator[Bound]:
        network = self.network
        held_s = network.beta_s_per_byte * self.chunk_bytes
        if self._holds_alpha:
            held_s = held_s + network.alpha_s
        prices = Prices(network, floats(held_s))
        work = network.ranks * network.links
        for price in prices.fixed():
            yield self._priced(prices, price)[0]
        price = prices.even()
        for at in range(min(_MOST_ROUNDS, int(_MOST_WORK / max(work, 1)))):
            bound, load_s = self._priced(prices, price)
            yield bound
            if not load_s.any():
                return
            # Prices rise with the load that cheapest paths put on a resource, by a smaller step each round.
            price = price * np.exp(2.0 / (1 + at) ** 0.5 * load_s / load_s.max())
            price = price / price.sum()

    def _priced(self, prices: Prices, price: Floats) -> tuple[Bound, Floats]:
        """Return the bound that these prices prove, and the load of each resource by cheapest paths."""
        length = prices.of_links(price)
        reach, before = prices.cheapest(length)
        total = float((self.demands * np.where(self.demands > 0, reach, 0.0)).sum())
        enter = np.full(self.network.ranks, np.inf)
        np.minimum.at(enter, self.network.dst, length)
        for sources, targets, reduced, count in self.others:
            costs = reach[np.ix_(sources, targets)]
            farthest = costs.max() if reduced else costs.min(axis=0).max()
            lacking = targets if reduced and len(sources) > 1 else np.setdiff1d(targets, sources)
            total += count * max(float(farthest), float(enter[lacking].sum()))
        offered = float(price.sum())
        time_s = total / offered if offered else 0.0
        # With ``hold_alpha`` the hold includes the latency: the chunk has arrived when the link is released.
        flies = total and not self._holds_alpha
        alpha_s = float(self.network.alpha_s.min(initial=np.inf)) if flies else 0.0
        detail = (
            f"{int(self.demands.sum())} chunks the cheapest way" if not self.others else "the cheapest ways"
        )
        return Bound("distance", time_s + alpha_s, detail), prices.loads_s(self.demands, before)


def _axis(network: Network) -> Floats:
    """Return the place of each rank along the network's longest axis: its entry in the Fiedler vector."""
    rate = coo_array((1.0 / network.beta_s_per_byte, (network.src, network.dst)), shape=(network.ranks,) * 2)
    both = rate.toarray() + rate.toarray().T
    laplacian = np.diag(both.sum(axis=1)) - both
    return floats(np.linalg.eigh(laplacian)[1][:, min(1, network.ranks - 1)])
