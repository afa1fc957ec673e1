"""Proven lower bounds on the time of a collective; the largest one binds.

With a fixed chunk size the bounds count whole chunks. A link or port that is free at time 0 can have
delivered floor((T − travel) / hold) + 1 chunks by time T. With ``fluid`` the chunk size is free, and a bound
is bytes over bandwidth plus the least alpha. All bounds hold for every schedule that reduces at ranks only;
where switches sum and copy (`Network.multimem_s_per_byte`), those of `in_network` take their place:

- *ingress*, *egress*, *cut*: the data that a set S of ranks needs from outside must cross its incoming links
  (ForestColl). Then either the last chunk must still spread inside S, or some chunk crosses a second time;
  the bound takes the shorter. No rank in S has any of the last j chunks before they cross, and each rank must
  then receive all j.
- *latency*: a chunk that leaves at 0 travels at least the shortest path to each rank that wants it.
- *total traffic*: all links and ports together must carry all needed sends; an all_reduce sends every chunk
  at least 2(N−1) times (Patarasuk and Yuan).
- *partition*: if the network is cut into k parts, an all_reduce sends every chunk at least 2(k−1) times from
  part to part, over the links between them (Nash-Williams, Tutte).
- *spanning trees*: if links and ports have prices, every chunk of an all_reduce pays for a minimum spanning
  tree twice. A linear program finds the prices that prove most (`spanning_trees`).
- *arrival*: early sends carry data of near ranks only, and late sends serve near ranks only (`arrivals`).
- *order of sums*: if the order of additions is given, links and ports must carry the partial sums. The bound
  is the least load over all places where ranks could add, by weak duality (`synth.routing.sum_trees`).
- *early sends*: at first only the root of a broadcast has anything to send (`early_sends`).
- *wavefront*: chunks spread from rank to rank, with several hops of alpha before a bottleneck.

With a fixed chunk size and links that are all alike, a bound is raised to the next time at which a
schedule can end (`end_times`).

reduce_scatter and reduce are the reversals in time of all_gather and broadcast on the transposed network, and
have the same bounds.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from probes.base import UsageError
from synth.bounds.end_times import next_end_s
from synth.bounds.general import point_bounds
from synth.bounds.in_network import crossing, port_bounds
from synth.bounds.multicast import spreading_bounds
from synth.bounds.symmetric import symmetric_bounds
from synth.collective import Collective, Kind
from synth.network import Network
from synth.networks import SymmetricNetwork, missing_way, named_back, reachable, renumbered, restricted
from synth.routing import aligned_tree, batch_of, place_sums, resources
from synth.schedules import AnySchedule, Bound

__all__ = ["ORDER_BOUND", "bounds", "least_s_per_byte", "schedule_bounds"]

# A buffer so large that alpha is negligible.
_LARGE_BYTES = 1 << 40
ORDER_BOUND = "order of sums"
# The most ranks and chunks for which the bound of a fixed order of sums is sought, as it takes some seconds.
_MOST_IN_ORDER, _MOST_CHUNKS_IN_ORDER = 128, 1024
# Fewer chunks are cut into about this many: finer chunks spread more evenly, so their loads make better
# prices.
_CHUNKS_IN_ORDER = 256
_SPREADING = ("all_gather", "reduce_scatter", "all_reduce", "broadcast", "reduce")


def schedule_bounds(made: AnySchedule) -> list[Bound]:
    """Return every proven lower bound on the time of a schedule's collective, the largest first."""
    workload = made.workload
    return bounds(made.network, workload.collective, workload.chunk_bytes, fluid=workload.fluid)


def bounds(
    network: Network | SymmetricNetwork, collective: Collective, chunk_bytes: int, *, fluid: bool = False
) -> list[Bound]:
    """Return the largest bound of each kind, the largest first; at least one.

    ``fluid`` leaves the chunk size free: the total stays, but chunks may be cut finer. On a symmetric network
    the chunk size is always free. The number of max-flows is limited so that 1024 ranks take seconds. If the
    network has no path for some chunk, the only bound is infinite. Raises UsageError if the network and the
    collective differ in the number of ranks.
    """
    if collective.ranks != network.ranks:
        raise UsageError(f"{network.name} has {network.ranks} ranks, the collective {collective.ranks}")
    if isinstance(network, SymmetricNetwork):
        return symmetric_bounds(network, collective.kind, collective.total_bytes(chunk_bytes))
    if lacking := missing_way(network, collective):
        return [Bound("no way", math.inf, lacking)]
    if collective.ranks < 2:
        return [Bound("nothing to do", 0.0)]
    among = reachable(network, collective)
    if len(among) < network.ranks:
        inner, _ = restricted(network, among)
        found = bounds(inner, renumbered(collective, among), chunk_bytes, fluid=fluid)
        return [
            Bound(named_back(each.name, among), each.time_s, named_back(each.detail, among)) for each in found
        ]
    if not collective.whole or collective.kind not in _SPREADING:
        found = point_bounds(network, collective, chunk_bytes, fluid=fluid)
    elif collective.reversal:
        turned = spreading_bounds(network.transposed(), collective.reversal, chunk_bytes, fluid=fluid)
        found = [_mirrored(bound) for bound in turned]
    else:
        found = spreading_bounds(network, collective, chunk_bytes, fluid=fluid)
    if collective.sum_order == "aligned" and not network.hold_alpha:
        found += _order_bounds(network, collective, chunk_bytes)
    if network.multimem_s_per_byte:
        found = [*crossing(found), *port_bounds(network, collective, chunk_bytes)]
    found = sorted(found, key=lambda bound: -bound.time_s)
    if fluid or network.multimem_s_per_byte:
        return found
    return [replace(bound, time_s=next_end_s(network, chunk_bytes, bound.time_s)) for bound in found]


def _order_bounds(network: Network, collective: Collective, chunk_bytes: int) -> list[Bound]:
    """Return the bound of a fixed order of sums.

    Return [] if chunks have different sources, if a chunk has several targets, or if there are too many ranks
    or chunks.
    """
    sources, roots = collective.sources, collective.targets.only().astype(np.int64)
    few = network.ranks <= _MOST_IN_ORDER and collective.chunks <= _MOST_CHUNKS_IN_ORDER
    if (roots < 0).any() or (sources.group != sources.group[0]).any() or not few:
        return []
    through, load_s = resources(network, chunk_bytes), np.zeros(network.links + len(network.ports))
    parts = max(1, _CHUNKS_IN_ORDER // len(roots))
    roots = np.repeat(roots, parts)
    batch, most_hops = batch_of(network.ranks, len(roots)), network.ranks - 1
    tree = aligned_tree(sources.of(0))
    *_, bound_s = place_sums(through, tree, roots, load_s, batch, most_hops, 0, True)
    return [Bound(ORDER_BOUND, bound_s / parts, "links and ports")]


def least_s_per_byte(network: Network, kind: Kind, root: int = 0) -> float:
    """Return the proven least s/byte, without alpha, of a large all_reduce, all_gather or broadcast."""
    shape = Collective(kind, network.ranks, network.ranks if kind == "all_gather" else 1, root)
    least_s = bounds(network, shape, _LARGE_BYTES, fluid=True)[0].time_s - float(network.alpha_s.max())
    return least_s / shape.total_bytes(_LARGE_BYTES)


def _mirrored(bound: Bound) -> Bound:
    """Rename a bound of the transposed network: data that enters there leaves in the real network."""
    swap = {"ingress": "egress", "egress": "ingress", "traffic into": "traffic out of"}
    swap |= {new: old for old, new in swap.items()}
    for old, new in swap.items():
        if old in bound.name:
            return replace(bound, name=bound.name.replace(old, new))
    return bound
