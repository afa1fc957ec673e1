"""Dual prices of links and ports: a lower bound for point-to-point demands by weak duality.

Any prices prove a lower bound on time, as they are a solution of the dual of the concurrent-flow LP.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from probes.base import Floats, Indices, floats
from synth.bounds.cuts import cost_levels
from synth.network import Network
from synth.networks import shortest_paths

__all__ = ["Prices"]

# The length of a path that does not exist, finite because a demand of 0 times infinity is not a number.
_FAR_S = 1e30


class Prices:
    """Prices of links, then of ports.

    A link costs its hold time times the sum of its own price and its ports' prices. A port's price counts by
    the part of the hold time for which the link holds the port.
    """

    def __init__(self, network: Network, held_s: Floats) -> None:
        self.network, self.held_s = network, held_s
        self.resources = network.links + len(network.ports)
        # A link that holds a port for its whole hold time limits nothing beyond the port, so it has no price.
        self.free = np.ones(network.links, dtype=bool)
        self.free[network.port_user[network.port_part >= 1.0]] = False

    def even(self) -> Floats:
        """Return equal prices for all ports and all links that have a price."""
        price = floats(np.concatenate((self.free, np.ones(len(self.network.ports)))))
        return floats(price / price.sum())

    def fixed(self) -> Iterator[Floats]:
        """Yield even prices, then up to two sets of prices for each level of link costs.

        A set gives equal prices to the links of the level that have a price, and to the first port of its
        other links. The second set takes their second port instead.
        """
        yield self.even()
        levels = cost_levels(self.network)
        level = np.searchsorted(levels * (1 + 1e-9), self.network.beta_s_per_byte)
        first = self.network.link_port_start[:-1]
        for at in range(len(levels)):
            links = np.flatnonzero(level == at)
            ported = links[~self.free[links]]
            for side in (0, 1):
                price = np.zeros(self.resources)
                price[links[self.free[links]]] = 1.0
                deep = ported[np.diff(self.network.link_port_start)[ported] > side]
                price[self.network.links + self.network.link_port[first[deep] + side]] = 1.0
                if price.any():
                    yield price / price.sum()

    def of_links(self, price: Floats) -> Floats:
        total = price[: self.network.links].copy()
        ports = price[self.network.links + self.network.link_port] * self.network.port_part
        np.add.at(total, self.network.port_user, ports)
        return floats(total * self.held_s)

    def cheapest(self, length: Floats) -> tuple[Floats, Indices]:
        """Return (least length of a path, its last link or -1), each by source and target."""
        network = self.network
        found = shortest_paths(network.ranks, network.src, network.dst, length)
        return np.minimum(found.cost, _FAR_S), found.edge

    def loads_s(self, demands: Floats, last_link: Indices) -> Floats:
        """Return the seconds for which each resource is held if every demand takes its cheapest path."""
        network = self.network
        used = np.zeros(network.links)
        flow = demands.copy()
        at, rows = (
            np.broadcast_to(np.arange(network.ranks), last_link.shape).copy(),
            np.arange(network.ranks)[:, None],
        )
        while True:
            link = last_link[rows, at]
            moving = link >= 0
            if not (moving & (flow > 0)).any():
                break
            np.add.at(used, link[moving], flow[moving])
            at = np.where(moving, network.src[np.maximum(link, 0)], at)
            flow = np.where(moving, flow, 0.0)
        held = used * self.held_s
        ports = np.zeros(len(network.ports))
        np.add.at(ports, network.link_port, held[network.port_user] * network.port_part)
        return np.concatenate((np.where(self.free, held, 0.0), ports))
