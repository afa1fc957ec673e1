"""Lower bounds where the switches of hosts sum and copy (`synth.multimem`): NVLink SHARP.

Bounds on what must enter or leave ranks, and on latency, hold as they are: an operation of a switch brings a
rank no more than its ports carry. For an all_reduce the ports of all ranks together give another bound.

Claim: each byte of an all_reduce of N ranks costs the ports at least 2(N − 1) times the cost of a unit. Let x
be the rank that first has the total of a byte, at t. Every other rank must have sent its contribution on
before t, and must receive the total at t or later: 2(N − 1) needs. A send between ranks serves one need. A
sum of k ranks serves at most k − 1, those of the ranks that it reads. A copy to k ranks serves one need of
the rank that writes and at most k − 2 of others, or k − 1 of others. A send costs an egress and an ingress
port the time of a byte, an operation of k ranks costs k + 1 ports theirs. So the least cost of a need is that
of a send, or (k + 1) / (k − 1) of a port's time in the largest host, if that is less.

With H hosts, 2(H − 1) needs at least are served by sends between hosts, because no switch reaches beyond its
host. Let the ports of NICs have a price. With the price at which a send between hosts costs as much as the
cheapest need within one, all needs cost that much; with any larger price, the sends between hosts alone cost
2(H − 1) of theirs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from probes.base import Indices, size_text
from synth.collective import Collective
from synth.network import Network
from synth.schedules import Bound

__all__ = ["crossing", "port_bounds"]

# Prefixes of the names of bounds that, beside latency, hold even where switches add or copy.
_CROSSING = ("ingress", "egress", "traffic", "cut")
_NAME = "ports of switches"


def crossing(found: Iterable[Bound]) -> list[Bound]:
    """Return those bounds that hold where switches sum or copy, too."""
    return [bound for bound in found if bound.name == "latency" or bound.name.startswith(_CROSSING)]


def port_bounds(network: Network, collective: Collective, chunk_bytes: int) -> Iterator[Bound]:
    """Yield the bounds of the module's claim for an all_reduce of all ranks; none for other collectives.

    None for a network in which a rank has other ports within its host than one egress and one ingress.
    """
    if collective.kind != "all_reduce" or not collective.whole:
        return
    total = collective.total_bytes(chunk_bytes)
    within = network.within_host
    inside = np.unique(network.ports_along(np.flatnonzero(within))[1])
    sizes = np.bincount(network.host_of)
    if len(inside) != 2 * int(sizes[sizes > 1].sum()) or not len(inside):
        return
    alpha_s, needs = float(network.alpha_s.min()), 2 * (network.ranks - 1)
    largest = int(sizes.max())
    by_switch = (largest + 1) / (largest - 1) * network.multimem_s_per_byte
    need_s = min(by_switch, _least_cost(network, np.flatnonzero(within), inside))
    detail = f"{needs} transfers of {size_text(total)} through the ports of all ranks"
    if within.all():
        yield Bound(_NAME, total * needs * need_s / len(inside) + alpha_s, detail)
        return
    across = np.flatnonzero(~within)
    outside = np.setdiff1d(_ports_of_plainest(network, across), inside)
    if not len(outside):
        return
    send_s = _least_cost(network, across, outside)
    offered = len(inside) + len(outside) * need_s / send_s
    yield Bound(_NAME, total * needs * need_s / offered + alpha_s, detail)
    needs = 2 * (len(sizes) - 1)
    detail = f"{needs} times {size_text(total)} between {len(sizes)} hosts"
    yield Bound("partition", total * needs * send_s / len(outside) + alpha_s, detail)


def _least_cost(network: Network, links: Indices, ports: Indices) -> float:
    """Return the least time, summed over ``ports``, for which a byte over one of ``links`` holds them."""
    row, port = network.ports_along(links)
    held = np.bincount(row[np.isin(port, ports)], minlength=len(links)) * network.beta_s_per_byte[links]
    return float(held.min())


def _ports_of_plainest(network: Network, links: Indices) -> Indices:
    """Return the ports of the links that use fewest: on rails, those of NICs, without those of spines."""
    counts = np.diff(network.link_port_start)[links]
    return np.unique(network.ports_along(links[counts == counts.min()])[1])
