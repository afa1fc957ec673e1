"""The time-expanded network of TACOS (Sec. IV): the ticks at which bundles of links may start a send.

Start times need only be sums of hold and travel times: every send can be moved earlier, in the order of the
schedule, until it starts when its chunk arrives or when its link or a port is free. Those sums are
enumerated, link by link, up to a horizon.

Times are whole ticks, rounded down. So a schedule that ends by T on the real network also ends by T in ticks,
with its sends in the same order. Whatever the tick, a horizon that is infeasible in ticks is infeasible on
the real network. If all times are multiples of one tick, nothing is rounded, and the expansion is exact.

Parallel links that cost the same and share their ports are one bundle that carries several chunks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from probes.base import Floats, Indices, Ints, Mask
from synth.network import Network
from synth.networks import distances_s

__all__ = ["UNREACHED", "Bundles", "Expansion", "TimeGrid", "bundle", "expand", "grid_of"]

# The distance of ranks without a path: more than the 1e9 ticks of any horizon (see _FINEST), and small enough
# that sums of several fit into int64.
UNREACHED = 1 << 40
# Times that have no common divisor are rounded to this share of the horizon, the finest tick.
_FINEST = 1e-9
# Times within this share of a whole number of ticks count as whole, because of rounding: floats resolve 1e-16
# of the horizon, which is 1e-7 of the finest tick.
_SLACK = 1e-7
# The most instants of a bundle. Each becomes a column of the integer program for each chunk: 30 bundles of 5
# chunks have the 60,000 columns that `synth.tacos_ilp.horizon_search` allows.
_MOST_INSTANTS = 400


@dataclass(frozen=True, eq=False)
class Bundles:
    """Bundles of parallel links: ``links[b]`` have equal ends, costs and ports.

    Resources are bundles, then ports of the network.
    """

    network: Network
    links: tuple[Ints, ...]

    @property
    def count(self) -> int:
        return len(self.links)

    @cached_property
    def first(self) -> Ints:
        """The first link of each bundle, which has the bundle's ends, costs and ports."""
        return np.array([rows[0] for rows in self.links], dtype=np.int32)

    @cached_property
    def ports(self) -> tuple[tuple[int, ...], ...]:
        return tuple(tuple(self.network.ports_of(int(link)).tolist()) for link in self.first)


def bundle(network: Network) -> Bundles:
    """Return the links of ``network`` grouped into bundles."""
    alike: dict[tuple[object, ...], list[int]] = {}
    for link in range(network.links):
        key = (
            int(network.src[link]),
            int(network.dst[link]),
            float(network.alpha_s[link]),
            float(network.beta_s_per_byte[link]),
            tuple(network.ports_of(link).tolist()),
        )
        alike.setdefault(key, []).append(link)
    return Bundles(network, tuple(np.array(rows, dtype=np.int32) for rows in alike.values()))


@dataclass(frozen=True, eq=False)
class TimeGrid:
    """Times as integer ticks: the hold of each bundle, and the travel time over it."""

    bundles: Bundles
    tick_s: float
    hold: Indices
    travel: Indices
    exact: bool

    def ticks(self, time_s: float) -> int:
        """Return the last tick that is not after ``time_s``, up to rounding."""
        return int(np.floor(time_s / self.tick_s * (1 + _SLACK) + _SLACK))

    @cached_property
    def distance(self) -> Indices:
        """[from, to]: ticks of the shortest path; ``UNREACHED`` if there is none."""
        network = self.bundles.network
        cost = np.full(network.links, np.inf)
        for at, rows in enumerate(self.bundles.links):
            cost[rows] = self.travel[at]
        ticks = distances_s(network, cost, np.arange(network.ranks))
        return np.where(np.isfinite(ticks), np.round(np.minimum(ticks, UNREACHED)), UNREACHED).astype(
            np.int64
        )


def grid_of(
    bundles: Bundles, chunk_bytes: int, horizon_s: float, *, tick_s: float | None = None, up: bool = False
) -> TimeGrid:
    """Return the grid of the coarsest tick that divides all times; if there is none, of the finest tick.

    ``tick_s`` sets a coarser tick instead, which must be at most the shortest hold. With ``up`` times are
    rounded up, as by TACOS's discretization factor (Sec. IV-C). Then any tick is allowed, and a solution is a
    schedule, but an infeasible horizon proves nothing.
    """
    network = bundles.network
    alpha_s = network.alpha_s[bundles.first]
    held_s = network.beta_s_per_byte[bundles.first] * chunk_bytes
    finest_s = horizon_s * _FINEST
    tick = tick_s or _common_s(np.concatenate((alpha_s, held_s)), finest_s)
    if up:
        held, travel = (
            np.ceil(times_s / tick * (1 - _SLACK) - _SLACK) for times_s in (held_s, alpha_s + held_s)
        )
        alpha = travel - held
    else:
        alpha, held = (np.floor(times_s / tick * (1 + _SLACK) + _SLACK) for times_s in (alpha_s, held_s))
    times_s, ticks = np.concatenate((alpha_s, held_s)), np.concatenate((alpha, held))
    hold = held + alpha if network.hold_alpha else held
    return TimeGrid(
        bundles,
        tick,
        hold.astype(np.int64),
        (held + alpha).astype(np.int64),
        exact=bool(np.allclose(ticks * tick, times_s, rtol=1e-9, atol=0.0)),
    )


def _common_s(times_s: Floats, finest_s: float) -> float:
    """Return the greatest common divisor of times, by Euclid's algorithm; at least ``finest_s``."""
    common_s = 0.0
    for time_s in np.unique(times_s[times_s > 0]).tolist():
        larger, smaller = max(common_s, time_s), min(common_s, time_s)
        # A divisor of less than a hundred finest ticks is what rounding leaves.
        while smaller > larger * 1e-9 and smaller > 100 * finest_s:
            rest = larger % smaller
            larger, smaller = smaller, 0.0 if min(rest, smaller - rest) < 1e-9 * time_s else rest
        if smaller:
            return finest_s
        common_s = larger
    return common_s or finest_s


@dataclass(frozen=True, eq=False)
class Expansion:
    """The rising ticks ``starts[b]`` at which bundle b may start a send that arrives by ``horizon``."""

    grid: TimeGrid
    horizon: int
    starts: tuple[Indices, ...]

    @property
    def instants(self) -> int:
        """The number of starts over all bundles."""
        return sum(map(len, self.starts))

    def thinned(self, most: int) -> Expansion:
        """Return the first ``most`` starts of each bundle in each window of its hold time."""
        kept = []
        for starts, hold in zip(self.starts, self.grid.hold.tolist(), strict=True):
            slot = starts // hold
            place = np.arange(len(starts)) - np.searchsorted(slot, slot)
            kept.append(starts[place < most])
        return replace(self, starts=tuple(kept))

    def until(self, horizon: int) -> Expansion:
        """Return the same instants for a nearer horizon."""
        return replace(self, horizon=horizon)

    @cached_property
    def arrivals(self) -> Indices:
        """Every tick at which some send can arrive, rising: the horizons worth testing."""
        ticks = [starts + travel for starts, travel in zip(self.starts, self.grid.travel, strict=True)]
        return np.unique(np.concatenate(ticks or [np.zeros(0, np.int64)]))


def expand(grid: TimeGrid, held: Mask, horizon: int, *, most: int = _MOST_INSTANTS) -> Expansion | None:
    """Return all instants up to the horizon; None if a bundle would have more than ``most``.

    ``held`` (ranks × chunks) marks the chunks at tick 0. A bundle may start a send at 0 if its sending rank
    holds a chunk then, when a chunk arrives at that rank, and when a send ends that held the bundle or one of
    its ports. O(instants · resources).
    """
    bundles = grid.bundles
    network = bundles.network
    src, dst = network.src[bundles.first].tolist(), network.dst[bundles.first].tolist()
    leaving: list[list[int]] = [[] for _ in range(network.ranks)]
    sharing: list[list[int]] = [[] for _ in network.ports]
    for at in range(bundles.count):
        leaving[src[at]].append(at)
        for port in bundles.ports[at]:
            sharing[port].append(at)
    starts: list[set[int]] = [set() for _ in range(bundles.count)]
    sources = np.any(held, axis=1).tolist()
    waiting = [(at, 0) for at in range(bundles.count) if sources[src[at]]]
    while waiting:
        at, tick = waiting.pop()
        arrival = tick + int(grid.travel[at])
        if tick in starts[at] or arrival > horizon:
            continue
        starts[at].add(tick)
        if len(starts[at]) > most:
            return None
        waiting += [(other, arrival) for other in leaving[dst[at]]]
        end = tick + int(grid.hold[at])
        waiting += [(other, end) for port in bundles.ports[at] for other in sharing[port]]
        waiting.append((at, end))
    return Expansion(grid, horizon, tuple(np.array(sorted(ticks), dtype=np.int64) for ticks in starts))
