"""Minimum cuts by max-flow: the set of ranks with the least capacity into it.

Dinkelbach's method: guess a time T and test by max-flow whether every rank can have received all bytes by T.
If a rank cannot, the minimum cut gives a set that needs longer, and its time is the next guess. Ports become
nodes that their links pass through, so a shared NIC is one capacity.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, maximum_flow

from probes.base import Floats, Indices, Mask
from synth.bounds.cuts import cut_around, gates
from synth.network import Network

__all__ = ["slowest_sets"]

# Flows are integers: the sum of all bytes is divided into this many units.
_UNITS = 1 << 28
# Limit of the number of sinks tried times the number of links. Four sinks are tried in any case.
_WORK = 600_000


def slowest_sets(network: Network, supply_bytes: Floats, at_least_s: float) -> Iterator[Mask]:
    """Yield sets of ranks that ``supply_bytes`` (a value per rank) cannot enter in ``at_least_s`` seconds.

    Each set needs longer than the one before. Sinks are sampled evenly if there are many: at most about 0.6
    million links are visited, which takes seconds.
    """
    graph = _Graph(network)
    total = float(supply_bytes.sum())
    sinks = max(4, min(network.ranks, _WORK // max(network.links, 1)))
    time_s = at_least_s
    for sink in np.unique(np.linspace(0, network.ranks - 1, sinks).astype(int)):
        for _ in range(network.ranks):
            outside = graph.source_side(supply_bytes, sink, time_s)
            entering = graph.capacity_into(~outside)
            if outside.all() or not outside.any() or entering <= 0:
                break
            needs_s = float(supply_bytes[outside].sum()) / entering
            if needs_s <= time_s * (1 + 1e-6) or not total:
                break
            time_s = needs_s
            yield ~outside


class _Graph:
    """The flow network: ranks, then an entry and an exit for each port; arcs carry bytes per second."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.nodes = network.ranks + 2 * len(network.ports) + 1
        self.source = self.nodes - 1
        arcs = _arcs(network)
        order = np.lexsort((arcs[1], arcs[0]))
        self.tail, self.head, self.rate = (column[order] for column in arcs)

    def source_side(self, supply_bytes: Floats, sink: int, time_s: float) -> Mask:
        """Return the ranks on the source's side of a minimum cut towards ``sink`` after ``time_s``."""
        total = float(supply_bytes.sum())
        feeding = np.flatnonzero(supply_bytes > 0)
        unit = _UNITS / total
        carried = np.minimum(self.rate * time_s * unit, _UNITS).astype(np.int64)
        tail = np.concatenate((self.tail, np.full(len(feeding), self.source)))
        head = np.concatenate((self.head, feeding))
        capacity = np.concatenate((carried, np.floor(supply_bytes[feeding] * unit).astype(np.int64)))
        shape = (self.nodes, self.nodes)
        graph = csr_array((capacity.astype(np.int32), (tail, head)), shape=shape)
        graph.sum_duplicates()
        flow = maximum_flow(graph, self.source, int(sink)).flow
        left = csr_array(graph - flow)
        left.data = np.maximum(left.data, 0)
        left.eliminate_zeros()
        reached = breadth_first_order(left, self.source, return_predecessors=False)
        side = np.zeros(self.nodes, dtype=bool)
        side[reached] = True
        return side[: self.network.ranks]

    def capacity_into(self, inside: Mask) -> float:
        """Return the bytes per second that can enter ``inside``, each shared port counted once."""
        return gates(self.network, cut_around(self.network, inside, "", "")).bytes_per_s


def _arcs(network: Network) -> tuple[Indices, Indices, Floats]:
    """Return arcs (tail, head, rate): a link is a path through the entry and exit of each of its ports."""
    ranks, ports = network.ranks, len(network.ports)
    rate = 1.0 / network.beta_s_per_byte
    owner = network.port_user
    port_rate = np.zeros(ports)
    np.maximum.at(port_rate, network.link_port, 1.0 / network.held_s_per_byte)
    # A link with p ports has p + 1 arcs: before its first port, between ports, after its last.
    last = np.ones(len(owner), dtype=bool)
    last[:-1] = owner[1:] != owner[:-1]
    first = np.ones(len(owner), dtype=bool)
    first[1:] = last[:-1]
    entry, leave = ranks + network.link_port, ranks + ports + network.link_port
    came_from = np.where(first, network.src[owner], np.roll(leave, 1))
    plain = np.flatnonzero(np.diff(network.link_port_start) == 0)
    within = np.arange(ports)
    tail = (network.src[plain], came_from, leave[last], ranks + within)
    head = (network.dst[plain], entry, network.dst[owner[last]], ranks + ports + within)
    rates = (rate[plain], rate[owner], rate[owner[last]], port_rate)
    return np.concatenate(tail), np.concatenate(head), np.concatenate(rates)
