"""Variants of a request: other requests whose schedules serve it, too.

- A few faster links are levelled: slowed down to the cost of all others; and a few links are left out, where
  some ranks have more links than all others. A schedule takes no longer on faster links and on more links. So
  a network that translations would map to itself but for these links is also planned without them, with the
  methods for such networks.
- The members of a collective are alone, without ranks that may relay. A collective of all ranks has methods
  and refinements that a subset of them has not.
- The ranks are in a regular order (`synth.networks.regular_orders`). Where a launcher has dealt them out
  among hosts, or hosts are sorted by name, translations carry less of a network into itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from probes.base import Floats, Indices, Mask, floats, ints
from synth.collective import Collective
from synth.network import Network
from synth.networks import (
    found_symmetry,
    kept_links,
    named_back,
    regular_orders,
    restricted,
    strong_components,
)
from synth.portfolio.rank_subsets import on_whole_network
from synth.portfolio.request import Request
from synth.schedules import Bound, Schedule

__all__ = ["RequestVariant", "in_regular_order", "levelled", "members_alone"]

# A cost is rare if at most this share of the links have it.
_RARE = 0.1


@dataclass(frozen=True, eq=False)
class RequestVariant:
    """A request whose schedules serve another one, too, and ``why`` they may be faster.

    ``rows`` are the rows of its links in the other network, ``members`` its ranks there (empty: the same).
    """

    request: Request
    rows: Indices
    why: str
    members: tuple[int, ...] = ()

    def restored(self, made: Schedule, network: Network) -> Schedule:
        """Return a schedule of the variant as one on the other request's network, without an outcome."""
        collective = made.collective
        if self.members:
            root, all_ranks = self.members[collective.root], len(self.members) == network.ranks
            members = () if all_ranks else self.members
            collective = replace(collective, ranks=network.ranks, root=root, members=members)
            if all_ranks:
                made = replace(made, chunk=ints(_renumbered_chunks(collective, self.members)[made.chunk]))
        return replace(on_whole_network(made, network, collective, self.rows), outcome=None)

    def named_back(self, bound: Bound) -> Bound:
        """Return the same bound with the ranks of the other network in its words."""
        ranks = ints(self.members)
        return Bound(named_back(bound.name, ranks), bound.time_s, named_back(bound.detail, ranks))


def members_alone(request: Request) -> RequestVariant | None:
    """Return the variant without the ranks that take no part.

    Return None for several or custom collectives, for all ranks, and if the members do not all reach each
    other by themselves.
    """
    first, *others = request.asked
    members = tuple(sorted(set(first.members)))
    if others or first.sets or not 1 < len(members) < request.network.ranks:
        return None
    alone, rows = restricted(request.network, members)
    if strong_components(alone, np.arange(alone.links)).any():
        return None
    root = members.index(first.root) if first.root in members else 0
    inner = replace(request, network=alone, kind=first.kind, root=root, collectives=(), listed=True)
    return RequestVariant(inner, rows, "planned as if the other ranks were not there", members)


def levelled(request: Request) -> RequestVariant | None:
    """Return the variant with rare low costs raised to the next common ones, and without rare further links.

    Return None unless more translations map the changed network to itself than the network, each with its
    ranks in a regular order. Networks that queue are not levelled.
    """
    network = request.network
    if network.queues or network.memory or not network.links:
        return None
    rows = np.flatnonzero(~_is_extra(network))
    found = kept_links(network, rows) if len(rows) < network.links else network
    found = replace(found, alpha_s=_raised(found.alpha_s), beta_s_per_byte=_raised(found.beta_s_per_byte))
    costs = ((one.alpha_s, one.beta_s_per_byte) for one in (network, found))
    if len(rows) == network.links and all(map(np.array_equal, *costs)):
        return None
    if _most_translations(found) <= _most_translations(network):
        return None
    why = "planned as if the few faster or further links were not there"
    return RequestVariant(replace(request, network=found), rows, why)


def _is_extra(network: Network) -> Mask:
    """Return which links leave a rank with more links out than usual for one with more links in than usual.

    Return none if these are many.
    """
    sends, receives = (np.bincount(end, minlength=network.ranks) for end in (network.src, network.dst))
    usual_sends, usual_receives = (int(np.bincount(each).argmax()) for each in (sends, receives))
    extra = (sends[network.src] > usual_sends) & (receives[network.dst] > usual_receives)
    return extra if extra.sum() <= _RARE * network.links else np.zeros_like(extra)


def _raised(cost: Floats) -> Floats:
    """Return the costs, with each rare one replaced by the next higher common one, if there is one."""
    values, counts = np.unique(cost, return_counts=True)
    common = values[counts > _RARE * len(cost)]
    if not len(common):
        return cost
    place = np.searchsorted(common, cost)
    return floats(np.where(place < len(common), common[np.minimum(place, len(common) - 1)], cost))


def in_regular_order(request: Request) -> RequestVariant | None:
    """Return the variant whose ranks are numbered so that more translations map its network to itself.

    Return None if no such order is found, for several or custom collectives and parts of the ranks, and if a
    method is asked for or a prediction decides.
    """
    first, *others = request.asked
    network = request.network
    if request.method != "auto" or request.decided_by_prediction or first.kind == "all_to_next":
        return None
    if others or first.sets or first.members or not 0 <= first.root < network.ranks:
        return None
    ordered = _most_regular(network)
    if ordered is None:
        return None
    root = int(np.flatnonzero(ordered.order == first.root)[0])
    inner = replace(request, network=ordered.network, kind=first.kind, root=root, collectives=())
    why = "planned with its ranks in a regular order"
    return RequestVariant(inner, ordered.rows, why, tuple(ordered.order.tolist()))


@dataclass(frozen=True, eq=False)
class _Ordered:
    """A network whose rank k is rank ``order[k]`` of another one, and the rows of its links there."""

    network: Network
    order: Indices
    rows: Indices


@lru_cache(maxsize=4)
def _most_regular(network: Network) -> _Ordered | None:
    """Return the network in the most regular order that is found; None if none is better than its own.

    There is none for networks that queue, and where ports were measured or switches sum.
    """
    if network.queues or network.memory or len(network.port_beta_s_per_byte) or network.multimem_s_per_byte:
        return None
    best, most = None, _regularity(network)
    for order in regular_orders(network) if most[:2] < (network.ranks, True) else ():
        found = _in_order(network, order)
        regularity = _regularity(found.network)
        if regularity > most:
            best, most = found, regularity
        if most >= (network.ranks, True, 2):
            break
    return best


def _most_translations(network: Network) -> int:
    """Return how many translations a network has in its own order, or in a regular one if that has more."""
    ordered = _most_regular(network)
    return _regularity(network if ordered is None else ordered.network)[0]


def _regularity(network: Network) -> tuple[int, bool, int]:
    """Return (translations, whether the ranks of each host are side by side, dimensions); more is better.

    Translations are those that map the network to itself. There are dimensions only if each link is along
    one.
    """
    hosts = 1 + int(np.count_nonzero(np.diff(network.host_of)))
    side_by_side = hosts == len(set(network.hosts))
    found = found_symmetry(network)
    if found is None:
        return 1, side_by_side, 0
    sizes, strides = np.array(found.network.sizes), np.array(found.network.strides)
    there, back = (end[:, None] // strides % sizes for end in (network.src, network.dst))
    is_grid = ((there != back).sum(axis=1) == 1).all()
    return found.network.translations, side_by_side, len(sizes) if is_grid else 0


def _in_order(network: Network, order: Indices) -> _Ordered:
    """Return the network whose rank k is rank ``order[k]`` of the given one."""
    number = np.argsort(order)
    rows = np.lexsort((number[network.dst], number[network.src]))
    found = kept_links(network, rows)
    used, first_use, port = np.unique(found.link_port, return_index=True, return_inverse=True)
    ports = np.argsort(first_use)
    renumbered = replace(
        found,
        hosts=tuple(network.hosts[rank] for rank in order.tolist()),
        src=ints(number[found.src]),
        dst=ints(number[found.dst]),
        ports=tuple(network.ports[at] for at in used[ports].tolist()),
        link_port=ints(np.argsort(ports)[port]),
    )
    return _Ordered(renumbered, order, rows)


def _renumbered_chunks(collective: Collective, ranks: Sequence[int]) -> Indices:
    """Return the number that each chunk has once rank r is called ``ranks[r]``."""
    chunk, new, share = np.arange(collective.chunks), np.array(ranks), collective.share
    owner, lap = np.divmod(chunk, share)
    if collective.kind == "all_to_all":
        owner = new[owner // len(new)] * len(new) + new[owner % len(new)]
    elif collective.kind in ("all_gather", "reduce_scatter", "gather", "scatter"):
        owner = new[owner]
    return np.asarray(owner * share + lap)
