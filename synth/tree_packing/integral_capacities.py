"""Integral capacities: how many trees each link may carry, in units as coarse as the optimum allows.

A link of rate r carries floor(r · T) trees within T, where a tree is a unit of bytes and rates are whole
numbers. With k trees a root the optimum is reached where T = k / x*, x* being the rate at which every rank
can be sent to; with another number of trees at the least T at which all still fit. Ports that several links
share are divided among them: whole numbers as equal as may be, such that every set of ranks can be entered
as often as it must be (as ForestColl removes switches by splitting edges).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from probes.base import Floats, Mask
from synth.errors import NotApplicableError
from synth.milp import IntegerProgram
from synth.network import Network
from synth.tree_packing.integral_arborescences import Rows, flows_fit, graph_of

__all__ = ["IntegralRates", "TreeUnits", "exact_trees", "rates", "units"]

_FINEST = 1000
_MOST_SHARED_LINKS = 6000
_MOST_CUTS = 40
_COARSEST = 40
# How far from the most equal division is near enough, and after how many nodes the best so far is taken.
_GAP = 0.2
_MOST_NODES = 200
# Only a solver that hangs comes near this; what ends by it depends on the machine.
_SAFETY_S = 600.0


@dataclass(frozen=True, eq=False)
class IntegralRates:
    """Whole numbers in proportion to the bandwidths of links and ports; one is ``unit_bytes_per_s``."""

    network: Network
    link: Rows
    port: Rows
    unit_bytes_per_s: float


@dataclass(frozen=True, eq=False)
class TreeUnits:
    """``capacity`` trees on each link within ``time`` (trees over rate), ``flow[v]`` that shows they fit."""

    capacity: Rows
    flow: Rows
    time: Fraction


def rates(network: Network) -> IntegralRates:
    """Raises NotApplicableError where bandwidths have no small common unit, or differ within a port."""
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


def exact_trees(found: IntegralRates, supply: Rows, rate_bytes_per_s: float) -> tuple[Fraction, int]:
    """(x*, the fewest trees a root that reach it): ``rate_bytes_per_s`` as the fraction that it must be.

    A cut of whole capacity divided by the number of roots outside has a denominator of at most that.
    """
    best = Fraction(rate_bytes_per_s / found.unit_bytes_per_s).limit_denominator(int(supply.sum()))
    return best, best.numerator // int(
        np.gcd(best.numerator, int(np.gcd.reduce(found.link)) * best.denominator)
    )


def units(found: IntegralRates, supply: Rows, best: Fraction, trees: int, solver: str = "cbc") -> TreeUnits:
    """The least time in which ``trees`` trees from every root fit, ``supply`` saying which are roots.

    Where links share ports, ``solver`` divides these. Raises NotApplicableError where no time is found that
    is near the optimum, UnavailableError without the solver.
    """
    for time in _times(found, best, trees):
        fitted = _fitted(found, supply * trees, time, solver)
        if fitted is not None:
            return fitted
    raise NotApplicableError(f"{found.network.name}: {trees} trees a root do not fit in whole capacities")


def _times(found: IntegralRates, best: Fraction, trees: int) -> Iterator[Fraction]:
    """The optimum's time, then those at which some capacity grows."""
    time = trees / best
    yield time
    levels = sorted({int(rate) for rate in (*found.link, *found.port)})
    for _ in range(_COARSEST):
        time = min(Fraction(int(rate * time) + 1, rate) for rate in levels)
        yield time


def _fitted(found: IntegralRates, supply: Rows, time: Fraction, solver: str) -> TreeUnits | None:
    network = found.network
    most, ports = _floors(found.link, time), _floors(found.port, time)
    if (_entering(network, most) < supply.sum() - supply).any():
        return None
    capacity: Rows | None = _equal(network, most, ports).astype(np.int64)
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


def _equal(network: Network, most: Rows, ports: Rows) -> Floats:
    """What each link gets when every port is divided equally."""
    users = np.bincount(network.link_port, minlength=len(ports))
    equal = most.astype(float)
    np.minimum.at(equal, network.port_user, (ports / np.maximum(users, 1))[network.link_port])
    return equal


def _floors(rate: Rows, time: Fraction) -> Rows:
    return np.array([int(each) * time.numerator // time.denominator for each in rate], dtype=np.int64)


def _entering(network: Network, capacity: Rows) -> Rows:
    entering = np.zeros(network.ranks, dtype=np.int64)
    np.add.at(entering, network.dst, capacity)
    return entering


def _shared(
    network: Network, most: Rows, ports: Rows, supply: Rows, cuts: list[Mask], solver: str
) -> Rows | None:
    """Capacities of links that keep to their ports', let enough into every rank and each of ``cuts``.

    As near as may be to what each link gets when all ports are divided equally; None if there are none.
    The search ends by its gap or after a number of nodes, never by the clock: the same network and solver
    give the same capacities on every machine.
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
