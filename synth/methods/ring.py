"""The ring: every chunk travels round one cycle through all ranks (Patarasuk and Yuan).

All-reduce takes 2(N−1) steps of M/N bytes, which is optimal in bandwidth if each rank has one port. Broadcast
and reduce pipeline chunks along the chain.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from probes.base import Floats, Indices, Ints, Mask
from synth.collective import Collective
from synth.errors import NotApplicableError
from synth.network import Network, fastest_links
from synth.routing import shortened
from synth.schedules import COPY, REDUCE, Schedule
from synth.scheduling import Sends

__all__ = ["best_cycle", "cycle", "fills", "owner_places", "require_served", "synthesize"]

_SERVED = ("all_gather", "reduce_scatter", "all_reduce", "broadcast", "reduce")

# A search that backtracks may take exponential time, so it gives up after this many steps.
_MOST_STEPS = 20_000
# The most ranks for Or-opt: a round takes time in the square of the ranks.
_MOST_TO_IMPROVE = 512


def synthesize(
    network: Network,
    collective: Collective,
    chunk_bytes: int,
    *,
    seed: int = 0,
    order: Sequence[int] | None = None,
) -> Schedule:
    """Return the ring over the cheapest cycle found, or through the ranks in this ``order``.

    Blocks of an all_gather or reduce_scatter may be uneven. Raises NotApplicableError if no cycle is found or
    its links are missing. O(ranks · chunks) sends.
    """
    uneven = _is_uneven(collective)
    if not uneven:
        require_served("ring", collective)
    links = fastest_links(network, chunk_bytes)
    if order is None:
        order = best_cycle(network, chunk_bytes)
    elif not _is_closed(list(order), links):
        raise NotApplicableError(f"{network.name} lacks a link of the ring {', '.join(map(str, order))}")
    ranks = network.ranks
    hops = np.array([links[order[at], order[(at + 1) % ranks]] for at in range(ranks)], dtype=np.int32)
    owner, lap = owner_places(collective, list(order))
    # In a broadcast or reduce, and of an uneven block, each chunk starts one hop after the previous chunk. In
    # other collectives, a lap begins when the previous lap has ended.
    halves = 2 if collective.kind == "all_reduce" else 1
    streams = uneven or collective.kind in ("broadcast", "reduce")
    turn = lap if streams else lap * halves * ranks
    sends = Sends()
    if collective.reduces:
        _round(sends, owner + 1, hops, REDUCE, turn)
    if collective.kind == "all_reduce" or not collective.reduces:
        _round(sends, owner, hops, COPY, turn + (halves - 1) * ranks)
    return sends.schedule(network, collective, chunk_bytes, "ring", seed)


def _is_uneven(collective: Collective) -> bool:
    """Return whether this is an all_gather or reduce_scatter of uneven blocks over all ranks."""
    if collective.blocks is None:
        return False
    sources, targets = collective.sources.sizes(), collective.targets.sizes()
    if (sources == 1).all() and (targets == collective.ranks).all():
        return True
    return bool((targets == 1).all() and (sources == collective.ranks).all() and collective.reduced.all())


def require_served(method: str, collective: Collective) -> None:
    """Raise NotApplicableError unless chunks spread to all ranks, or are summed over all ranks."""
    if collective.kind not in _SERVED:
        raise NotApplicableError(f"{method} does not serve {collective.kind}")


def fills(network: Network, collective: Collective) -> bool:
    """Return whether a ring can use the full receive rate of every rank, and all rings are equally fast.

    All links must have the same rate, and each rank must receive through one port and send through one.
    """
    if collective.kind not in ("all_gather", "reduce_scatter", "all_reduce") or not collective.whole:
        return False
    beta = network.beta_s_per_byte
    if not network.links or np.ptp(beta) > 1e-9 * beta.max() or (np.diff(network.link_port_start) == 0).any():
        return False
    first, last = network.link_port_start[:-1], network.link_port_start[1:] - 1
    sides = ((first, network.src), (last, network.dst), (first + 1, network.dst))
    one_port = [
        len(np.unique(network.link_port[np.minimum(entry, last)].astype(np.int64) * network.ranks + rank))
        == network.ranks
        for entry, rank in sides
    ]
    return one_port[0] and (one_port[1] or one_port[2])


@lru_cache(maxsize=32)
def best_cycle(network: Network, chunk_bytes: int) -> list[int]:
    """Return the cheapest cycle found for one chunk size, cached; raise NotApplicableError without one."""
    return cycle(network, network.travel_s(chunk_bytes), fastest_links(network, chunk_bytes))


def cycle(network: Network, cost_s: Floats, links: dict[tuple[int, int], int]) -> list[int]:
    """Return the cheapest cycle through all ranks: in rank order, by a search, or an improvement of either.

    Cycles are compared by the cost of their slowest link, then by the sum of the costs. The search goes to
    the cheapest next rank, among equals to the rank with the fewest ways onward (Warnsdorff), and gives up
    after 20 000 steps. If links differ and there are at most 512 ranks, pieces of the cycles are then moved
    to cheaper places.
    """
    found = [
        order
        for order in (list(range(network.ranks)), _search(network, cost_s, links))
        if _is_closed(order, links)
    ]
    if not found:
        raise NotApplicableError(f"ring needs a cycle through all ranks, and found none in {network.name}")

    found += [_improved(order, cost_s, links) for order in found if len(order) <= _MOST_TO_IMPROVE]

    def cost(order: list[int]) -> tuple[float, float]:
        hops = [cost_s[links[pair]] for pair in _pairs(order)]
        return round(max(hops), 15), float(sum(hops))

    return min(found, key=cost)


def _improved(order: list[int], cost_s: Floats, links: dict[tuple[int, int], int]) -> list[int]:
    pairs = np.array(list(links))
    rows = np.fromiter(links.values(), dtype=np.int64)
    if np.ptp(cost_s[rows]) <= 1e-9 * cost_s[rows].max() or len(order) < 4:
        return order
    cost = np.full((len(order),) * 2, np.inf)
    # The fourth power makes the slowest links count most.
    cost[pairs[:, 0], pairs[:, 1]] = (cost_s[rows] / cost_s[rows].max()) ** 4
    better: list[int] = shortened(np.array(order), cost).tolist()
    return better


def _pairs(order: list[int]) -> list[tuple[int, int]]:
    return list(zip(order, order[1:] + order[:1], strict=True))


def _is_closed(order: list[int], links: dict[tuple[int, int], int]) -> bool:
    return len(order) > 1 and all(pair in links for pair in _pairs(order))


def _search(network: Network, cost_s: Floats, links: dict[tuple[int, int], int]) -> list[int]:
    onward: list[list[int]] = [[] for _ in range(network.ranks)]
    for src, dst in links:
        onward[src].append(dst)
    visited = np.zeros(network.ranks, dtype=bool)
    visited[0] = True
    path = [0]
    choices = [_choices(0, onward, visited, cost_s, links)]
    for _ in range(_MOST_STEPS):
        if len(path) == network.ranks and (path[-1], 0) in links:
            return path
        if not choices:
            return []
        if choices[-1] and len(path) < network.ranks:
            rank = choices[-1].pop()
            visited[rank] = True
            path.append(rank)
            choices.append(_choices(rank, onward, visited, cost_s, links))
        else:
            choices.pop()
            visited[path.pop()] = False
    return []


def _choices(
    rank: int,
    onward: list[list[int]],
    visited: Mask,
    cost_s: Floats,
    links: dict[tuple[int, int], int],
) -> list[int]:
    """Return the ranks to visit next, the best last."""

    def badness(other: int) -> tuple[float, int, int]:
        ways = sum(not visited[next_rank] for next_rank in onward[other]) if len(onward[other]) < 16 else 0
        return float(cost_s[links[rank, other]]), ways, other

    return sorted((other for other in onward[rank] if not visited[other]), key=badness, reverse=True)


def owner_places(collective: Collective, order: list[int]) -> tuple[Indices, Indices]:
    """Return each chunk's place on the cycle, where it is first complete, and its lap.

    The lap is the number of earlier chunks of that place. The places own the chunks of an all_reduce in turn.
    """
    owner, lap = collective.owner_of()
    return owner if collective.kind == "all_reduce" else np.argsort(order)[owner], lap


def _round(sends: Sends, start: Indices, hops: Ints, op: int, turn: Indices) -> None:
    """Add sends of each chunk round the ring, from the rank at its ``start`` to the rank just before."""
    chunk = np.arange(len(start))
    step = np.arange(len(hops) - 1)
    sends.add(chunk[:, None], hops[(start[:, None] + step) % len(hops)], op, turn[:, None] + step)
