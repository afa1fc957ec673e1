"""Integral capacities: the number of trees a link may carry, in units as coarse as the optimum allows.

A link of integer rate r carries floor(r · T) trees within time T, where a tree is a unit of bytes. The best
time for k trees per root is T = k / x*, where x* is the rate per root at which every rank can receive. If the
trees do not fit into the integer capacities of that T, T grows until they do. A shared port is divided among
its links into about equal integers, such that enough capacity still enters every set of ranks. (ForestColl
also does so when it removes switches by splitting edges.)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from probes.base import Floats, Longs, Mask
from synth.errors import NotApplicableError
from synth.milp import IntegerProgram
from synth.network import Network
from synth.tree_packing.integral_arborescences import flows_fit, graph_of

__all__ = ["IntegralRates", "TreeUnits", "exact_trees", "rates", "units"]

# The largest denominator of a bandwidth as a fraction of the fastest link's.
_FINEST = 1000
# The most links of a network whose shared ports an integer program divides.
_MOST_SHARED_LINKS = 6000
# The most rounds of added cuts for one T, and the most values of T that are tried after the optimum's.
_MOST_CUTS = 40
_COARSEST = 40
# The solver stops within this gap of the most equal division, or after this many nodes.
_GAP = 0.2
_MOST_NODES = 200
# A guard against a solver that hangs; reaching it would make results depend on the machine.
_SAFETY_S = 600.0


@dataclass(frozen=True, eq=False)
class IntegralRates:
    """Integers in proportion to the rates of links and ports, in units of ``unit_bytes_per_s``."""

    network: Network
    link: Longs
    port: Longs
    unit_bytes_per_s: float


@dataclass(frozen=True, eq=False)
class TreeUnits:
    """The trees each link carries within ``time`` (trees over rate); ``flow[v]`` proves that they fit."""

    capacity: Longs
    flow: Longs
    time: Fraction


def rates(network: Network) -> IntegralRates:
    """Return the integer rates of links and ports.

    Raises NotApplicableError if bandwidths have no small common unit, or differ among the links of a port.
    """
    fastest = 1.0 / network.beta_s_per_byte.min()
    parts = [
        Fraction(float(rate / fastest)).limit_denominator(_FINEST) for rate in 1 / network.beta_s_per_byte
    ]
    common = int(np.lcm.reduce([part.denominator for part in set(parts)]))
    link = np.array([int(part * common) for part in parts])
    if common > _FINEST**2 or not np.allclose(
        link / common * fastest * network.beta_s_per_byte, 1.0, rtol=1e-9
    ):
        raise NotApplicableError(f"{network.name}: bandwidths have no common unit to count trees in")
    port = np.zeros(len(network.ports), dtype=np.int64)
    np.maximum.at(port, network.link_port, link[network.port_user])
    if (link[network.port_user] != port[network.link_port]).any():
        raise NotApplicableError(f"{network.name}: links of several bandwidths share a port")
    return IntegralRates(network, link, port, fastest / common)


def exact_trees(found: IntegralRates, supply: Longs, rate_bytes_per_s: float) -> tuple[Fraction, int]:
    """Return (x*, the fewest trees per root that reach it); x* is the rate as an exact fraction.

    The optimal rate is the integer capacity of a cut, divided by the number of roots outside the cut, so its
    denominator is at most the number of roots.
    """
    best = Fraction(rate_bytes_per_s / found.unit_bytes_per_s).limit_denominator(int(supply.sum()))
    return best, best.numerator // int(
        np.gcd(best.numerator, int(np.gcd.reduce(found.link)) * best.denominator)
    )


def units(found: IntegralRates, supply: Longs, best: Fraction, trees: int, solver: str = "cbc") -> TreeUnits:
    """Return the capacities for the least time in which ``trees`` trees of each root in ``supply`` fit.

    ``solver`` divides shared ports among their links. Raises NotApplicableError if no time near the optimum
    is found, UnavailableError without the solver.
    """
    for time in _times(found, best, trees):
        fitted = _fitted(found, supply * trees, time, solver)
        if fitted is not None:
            return fitted
    raise NotApplicableError(f"{found.network.name}: {trees} trees a root do not fit in whole capacities")


def _times(found: IntegralRates, best: Fraction, trees: int) -> Iterator[Fraction]:
    """Yield the optimum's time, then the times at which some capacity grows."""
    time = trees / best
    yield time
    # A port has no rate if none of its links is left, as on some of a network's ranks.
    levels = sorted({int(rate) for rate in (*found.link, *found.port) if rate})
    for _ in range(_COARSEST):
        time = min(Fraction(int(rate * time) + 1, rate) for rate in levels)
        yield time


def _fitted(found: IntegralRates, supply: Longs, time: Fraction, solver: str) -> TreeUnits | None:
    network = found.network
    most, ports = _floors(found.link, time), _floors(found.port, time)
    if (_entering(network, most) < supply.sum() - supply).any():
        return None
    capacity: Longs | None = _equal(network, most, ports).astype(np.int64)
    cuts: list[Mask] = []
    for _ in range(_MOST_CUTS):
        if capacity is None:
            return None
        flow = np.zeros((network.ranks, network.links), dtype=np.int64)
        inside = flows_fit(graph_of(network), capacity, supply, flow)
        if not inside.any():
            return TreeUnits(capacity, flow, time)
        if not len(ports):
            return None
        cuts.append(inside)
        capacity = _shared(network, most, ports, supply, cuts, solver)
    return None


def _equal(network: Network, most: Longs, ports: Longs) -> Floats:
    """Return the share of each link if every port is divided equally."""
    users = np.bincount(network.link_port, minlength=len(ports))
    equal = most.astype(float)
    np.minimum.at(equal, network.port_user, (ports / np.maximum(users, 1))[network.link_port])
    return equal


def _floors(rate: Longs, time: Fraction) -> Longs:
    return np.array([int(each) * time.numerator // time.denominator for each in rate], dtype=np.int64)


def _entering(network: Network, capacity: Longs) -> Longs:
    entering = np.zeros(network.ranks, dtype=np.int64)
    np.add.at(entering, network.dst, capacity)
    return entering


def _shared(
    network: Network, most: Longs, ports: Longs, supply: Longs, cuts: list[Mask], solver: str
) -> Longs | None:
    """Return link capacities that keep to their ports and let enough into every rank and each of ``cuts``.

    They are close to equal shares of all ports. Return None if no such capacities are found. The search ends
    by its gap or its number of nodes, not by time, so that the same network and solver give the same
    capacities on every machine.
    """
    links = network.links
    if links > _MOST_SHARED_LINKS:
        raise NotApplicableError(f"{network.name}: {links} links share too many ports to count trees on")
    model = IntegerProgram()
    capacity = [model.integer_number(0, int(high)) for high in most]
    off = [model.number() for _ in range(links)]
    start, users = network.port_links
    for port, limit in enumerate(ports):
        sharing = users[start[port] : start[port + 1]].tolist()
        model.row([capacity[link] for link in sharing], [1.0] * len(sharing), high=float(limit))
    for inside in (*np.eye(network.ranks, dtype=bool), *cuts):
        entering = np.flatnonzero(inside[network.dst] & ~inside[network.src]).tolist()
        needed = float(supply[~inside].sum())
        model.row([capacity[link] for link in entering], [1.0] * len(entering), low=needed)
    for link, fair in enumerate(_equal(network, most, ports).tolist()):
        model.row([capacity[link], off[link]], [1.0, -1.0], high=fair)
        model.row([capacity[link], off[link]], [1.0, 1.0], low=fair)
        model.cost[off[link]] = 1.0
    solved = model.solve(solver=solver, gap=_GAP, node_limit=_MOST_NODES, time_limit_s=_SAFETY_S)
    return None if solved.values is None else solved.values[:links].astype(np.int64)
