"""Cuts of a network: sets of ranks, the links that enter them, and the rate of those links."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from probes.base import Floats, Indices, Ints, Mask
from synth.network import Network
from synth.networks import found_symmetry, rank_list, strong_components

__all__ = [
    "Cut",
    "Gates",
    "candidate_cuts",
    "cost_levels",
    "cut_around",
    "distinct_cuts",
    "gates",
    "gates_along",
    "labelings",
]

# The links of one cost level, sorted by cost, differ by at most this factor from one link to the next.
_LEVEL_RATIO = 1.2
# The most tiers of ports that are tried; a tier is all ports shared by the same number of ranks.
_MOST_TIERS = 8


@dataclass(frozen=True, eq=False)
class Cut:
    """A set of ranks (``inside``) and the rows of the links that lead into it."""

    name: str
    kind: str
    inside: Mask
    links: Indices


@dataclass(frozen=True, eq=False)
class Gates:
    """The gates of a cut: one row for each shared port, and one for each link without a port.

    ``beta_s_per_byte`` is the gate's time per byte over the link that holds it least. ``gate_of_link`` has a
    row for each of the cut's ``links``.
    """

    network: Network
    links: Indices
    beta_s_per_byte: Floats
    gate_of_link: Indices

    @property
    def bytes_per_s(self) -> float:
        """The rate of all gates together."""
        return float((1.0 / self.beta_s_per_byte).sum())

    @cached_property
    def alpha_s(self) -> Floats:
        """The least alpha of each gate's links."""
        found = np.full(len(self.beta_s_per_byte), np.inf)
        np.minimum.at(found, self.gate_of_link, self.network.alpha_s[self.links])
        return found

    @cached_property
    def tail(self) -> Ints:
        """The one rank that feeds each gate, or -1 if there are several."""
        tails = self.network.src[self.links].astype(np.int64)
        low = np.full(len(self.beta_s_per_byte), self.network.ranks)
        high = np.full(len(self.beta_s_per_byte), -1)
        np.minimum.at(low, self.gate_of_link, tails)
        np.maximum.at(high, self.gate_of_link, tails)
        return np.where(low == high, low, -1).astype(np.int32)


def cut_around(network: Network, inside: Mask, name: str, kind: str) -> Cut:
    """Return the cut into a set of ranks."""
    links = np.flatnonzero(~inside[network.src] & inside[network.dst]).astype(np.int32)
    return Cut(name, kind, inside, links)


def candidate_cuts(network: Network) -> Iterator[Cut]:
    """Yield the cuts into and out of each rank, each host and each cluster of faster links."""
    in_start, in_links = network.in_links
    out_start, out_links = network.out_links
    for rank in range(network.ranks):
        inside = np.arange(network.ranks) == rank
        entering = in_links[in_start[rank] : in_start[rank + 1]]
        leaving = out_links[out_start[rank] : out_start[rank + 1]]
        yield Cut(f"ingress of rank {rank}", "ingress", inside, entering)
        yield Cut(f"egress of rank {rank}", "egress", ~inside, leaving)
    for members, name in _groups(network):
        yield cut_around(network, members, f"traffic into {name}", "cut")
        yield cut_around(network, ~members, f"traffic out of {name}", "cut")


def distinct_cuts(network: Network) -> Iterator[Cut]:
    """Yield the candidate cuts without those that a symmetry of the network maps to an earlier one.

    Two cuts with equally many ranks and links of each orbit count as symmetric.
    """
    symmetry = found_symmetry(network)
    if symmetry is None:
        yield from candidate_cuts(network)
        return
    cell = symmetry.network.cell_of(np.arange(network.ranks))
    seen: set[tuple[str, bytes, bytes]] = set()
    for cut in candidate_cuts(network):
        ranks, links = np.bincount(cell[cut.inside]), np.bincount(symmetry.orbit[cut.links])
        key = (cut.kind, ranks.tobytes(), links.tobytes())
        if key not in seen:
            seen.add(key)
            yield cut


def gates(network: Network, cut: Cut) -> Gates:
    """Return the gates of ``cut``; a link with several ports is counted at its busiest port."""
    gate_of, held = gates_along(network, cut.links)
    beta = np.full(int(gate_of.max(initial=-1)) + 1, np.inf)
    np.minimum.at(beta, gate_of, held)
    return Gates(network, cut.links, beta, gate_of)


def gates_along(network: Network, links: Indices) -> tuple[Indices, Floats]:
    """Return the gate of each link, and the seconds per byte for which the link holds the gate."""
    owner, port = network.ports_along(links)
    held = np.array(network.beta_s_per_byte[links])
    if not len(port):
        return np.arange(len(links), dtype=np.int32), held
    used = np.bincount(port, minlength=len(network.ports))
    label = len(network.ports) + np.arange(len(links))
    # Ports are written in rising order of use, so the busiest port of a link is written last.
    order = np.argsort(used[port], kind="stable")
    label[owner[order]] = port[order]
    held[owner[order]] = network.held_s_per_byte[network.port_entries(links)][order]
    return np.asarray(np.unique(label, return_inverse=True)[1], dtype=np.int32), held


def _groups(network: Network) -> Iterator[tuple[Mask, str]]:
    """Yield (members, name) of each host, and of each cluster that fast links or shared ports join."""
    seen: set[bytes] = set()
    for labels, noun in labelings(network):
        for label in np.unique(labels):
            members = labels == label
            key = np.packbits(members).tobytes()
            if 1 < members.sum() < network.ranks and key not in seen:
                seen.add(key)
                yield members, f"{noun} {rank_list(np.flatnonzero(members))}"


def labelings(network: Network) -> Iterator[tuple[Indices, str]]:
    """Yield (label of each rank, noun) by host, by cluster below each cost level, and by shared ports.

    If several links join two ranks, clusters by the sum of their rates are added.
    """
    yield network.host_of, "the host of ranks"
    for level in cost_levels(network)[:-1]:
        yield strong_components(network, network.beta_s_per_byte <= level * (1 + 1e-9)), "ranks"
    for labels in _behind_ports(network):
        yield labels, "ranks"
    _, pair = np.unique(network.src.astype(np.int64) * network.ranks + network.dst, return_inverse=True)
    if len(pair) == pair.max(initial=-1) + 1:
        return
    rate = np.bincount(pair, weights=1.0 / network.beta_s_per_byte)[pair]
    for level in _levels(1.0 / rate)[:-1]:
        yield strong_components(network, 1.0 / rate <= level * (1 + 1e-9)), "ranks"


def _behind_ports(network: Network) -> Iterator[Indices]:
    """Yield labels that group ranks by the ports that they send through: those of a trunk, leaf or spine.

    Ports shared by the same number of ranks form a tier; each tier has its own labels.
    """
    table = [np.zeros((len(network.ports), network.ranks), dtype=bool) for _ in "io"]
    table[0][network.link_port, network.src[network.port_user]] = True
    table[1][network.link_port, network.dst[network.port_user]] = True
    several = (table[0].sum(axis=1) > 1) & (table[1].sum(axis=1) > 1)
    senders = np.unique(table[0][several], axis=0)
    sizes = senders.sum(axis=1)
    for size in np.unique(sizes)[:_MOST_TIERS].tolist():
        yield np.unique(senders[sizes == size].T, axis=0, return_inverse=True)[1].ravel()


def cost_levels(network: Network) -> Floats:
    """Return the highest cost per byte of each level, rising; a rise of over 20 % begins a new level."""
    return _levels(network.beta_s_per_byte)


def _levels(values: Floats) -> Floats:
    costs = np.unique(values)
    ends_level = np.append(costs[1:] > costs[:-1] * _LEVEL_RATIO, True)[: len(costs)]
    return np.asarray(costs[ends_level])
