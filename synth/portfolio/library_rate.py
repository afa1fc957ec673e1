"""The rates that NCCL's ring, tree and direct sends reach on a network, counting bandwidth only.

NCCL (and RCCL) divide the buffer among channels, and every channel has a ring or tree of its own. The links
and ports that channels share bound their joint rate. Here a linear program divides the buffer among candidate
channels so that the busiest link or port finishes soonest: no choice among these candidates is faster. The
candidates follow NCCL's graph search (https://github.com/NVIDIA/nccl, src/graph/search.cc):

- *ring*: a path through the GPUs of a host, the same in every host, host after host, and back;
- *tree*: the same path as a chain in every host; double binary trees join the heads of the chains;
- *direct*: every rank sends every other rank its part, as NCCL's send and receive do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from probes.base import Floats, Indices, Mask, floats, plural
from synth.collective import Kind
from synth.errors import NotApplicableError
from synth.methods import parents
from synth.network import Network
from synth.networks import hosts_of

__all__ = ["LibraryRate", "library_rates", "nccl_time"]

# The collectives that NCCL serves by rings, and the ones that it serves by direct sends.
_ROUND: tuple[Kind, ...] = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce")
_DIRECT: tuple[Kind, ...] = ("all_to_all", "all_to_next", "scatter", "gather")
# Limits of candidates: paths through a host, hops of all of them together, and steps of each path's search.
_MOST_PATHS = 200
_MOST_HOPS = 30_000
_MOST_STEPS = 4_000
# A link or port with this share of its capacity in use is full: the solver is exact to about 1e-7.
_BUSY = 1.0 - 1e-6


@dataclass(frozen=True)
class LibraryRate:
    """The rate of an algorithm: seconds for each byte of the buffer, and the bottleneck, ``binding``.

    The buffer is the larger of a rank's send and receive buffer, as nccl-tests counts it.
    """

    algorithm: str
    s_per_byte: float
    binding: str


@dataclass(frozen=True, eq=False)
class _Hops:
    """Messages between ranks: ``load`` is the bytes from src to dst for each byte of the buffer."""

    src: Indices
    dst: Indices
    load: Floats


@lru_cache(maxsize=32)
def library_rates(network: Network, kind: Kind, root: int = 0) -> tuple[LibraryRate, ...]:
    """Return the rate of each algorithm that serves ``kind`` and has all its links, fastest first.

    Each takes a linear program of about ``_MOST_PATHS`` columns: below a second up to 128 ranks.
    """
    found: list[LibraryRate | None] = []
    if kind in _ROUND and network.ranks > 1:
        ways = _ways(network)
        found.append(_rate(network, "ring", [_ring(order.ravel(), kind, root) for order in ways]))
        if kind == "all_reduce":
            found.append(_rate(network, "tree", [_tree(order) for order in ways]))
    elif kind in _DIRECT and network.ranks > 1:
        found.append(_rate(network, "direct", [_all_pairs(network.ranks, kind, root)]))
    return tuple(sorted((one for one in found if one), key=lambda one: one.s_per_byte))


def nccl_time(network: Network, kind: Kind, size_bytes: int, root: int = 0) -> tuple[str, float] | None:
    """Return (algorithm, seconds) of NCCL's ring or direct sends in this model; None if neither applies.

    The busiest link or port takes its time for the bytes, and each step adds a latency. Each step of a ring
    waits for its slowest hop: a hop between hosts if there are several hosts.
    """
    for one in library_rates(network, kind, root):
        if one.algorithm == "tree":
            continue
        steps = 1 if one.algorithm == "direct" else network.ranks - 1
        between = network.alpha_s[~network.within_host]
        alpha_s = float(np.median(between if len(between) else network.alpha_s))
        return one.algorithm, one.s_per_byte * size_bytes + steps * (1 + (kind == "all_reduce")) * alpha_s
    return None


def _ways(network: Network) -> list[Indices]:
    """Return candidate paths, each of shape (hosts, ranks a host): the ranks of each host in path order.

    If hosts differ in size or have one rank each, all ranks count as one host; with one rank each, the order
    of the ranks is a further candidate.
    """
    try:
        return _paths(network, np.asarray(hosts_of(network, "ring"), dtype=np.int64))
    except NotApplicableError:
        alone = len(set(network.hosts)) == network.ranks
        every = np.argsort(network.host_of, kind="stable")
        return _paths(network, every[None, :]) + ([np.arange(network.ranks)[:, None]] if alone else [])


def _paths(network: Network, hosts: Indices) -> list[Indices]:
    places = hosts.shape[1]
    joined = np.zeros((network.ranks, network.ranks), dtype=bool)
    joined[network.src, network.dst] = True
    inside = np.asarray(joined[hosts[:, :, None], hosts[:, None, :]].all(axis=0))
    # Behind a switch, only the ends of a path matter.
    first = np.flatnonzero((network.src == hosts[0, 0]) & np.isin(network.dst, hosts[0]))[:1]
    alike = bool(inside.sum() == places * (places - 1)) and all(len(network.ports_of(at)) for at in first)
    orders = dict.fromkeys(_strides(inside, 1 if alike else places))
    if not alike or not orders:
        most = max(2 * places, min(_MOST_PATHS, _MOST_HOPS // network.ranks))
        orders |= dict.fromkeys(_searched(inside, most))
    return [hosts[:, order] for order in orders]


def _strides(inside: Mask, most: int) -> list[tuple[int, ...]]:
    """Return the paths of constant stride from every place; the strides are 1 to ``most``, and −1."""
    places = len(inside)
    found = []
    for stride in sorted({*range(1, min(most, places - 1) + 1), max(1, places - 1)}):
        if np.gcd(stride, places) != 1:
            continue
        for first in range(places):
            order = (first + stride * np.arange(places)) % places
            if inside[order[:-1], order[1:]].all():
                found.append(tuple(order.tolist()))
    return found


def _searched(inside: Mask, most: int) -> list[tuple[int, ...]]:
    """Return paths that visit every place once.

    Each is found by depth-first search with a fixed seed. It goes first to the places with the fewest onward
    hops to places that are left (Warnsdorff's rule), which rarely ends before all places are visited.
    """
    places = len(inside)
    if places < 3:
        return []
    random = np.random.default_rng(0)
    joined = inside & ~np.eye(places, dtype=bool)
    onward, into = ([np.flatnonzero(row).tolist() for row in rows] for rows in (joined, joined.T))
    found: dict[tuple[int, ...], None] = {}
    for attempt in range(most):
        path = _one_path(onward, into, attempt % places, random)
        if path:
            found.setdefault(tuple(_closed(path, inside, random)))
    return list(found)


def _closed(path: list[int], inside: Mask, random: np.random.Generator) -> list[int]:
    """Return a path of the same places whose ends are joined, if some rotations lead to one (Pósa)."""
    turned = np.array(path, np.int64)
    for _ in range(len(path)):
        if inside[turned[-1], turned[0]]:
            return [int(place) for place in turned]
        # A rotation hops from a place inside to the end, and goes the rest of the path backwards.
        back = np.logical_and.accumulate(inside[turned[1:], turned[:-1]][::-1])[::-1]
        may = np.flatnonzero(inside[turned[:-2], turned[-1]] & back[1:])
        if not len(may):
            break
        at = int(random.choice(may)) + 1
        turned[at:] = turned[at:][::-1].copy()
    return path


def _one_path(
    onward: Sequence[Sequence[int]], into: Sequence[Sequence[int]], first: int, random: np.random.Generator
) -> list[int]:
    """Return one such path from ``first``; [] if none is found in ``_MOST_STEPS`` steps."""
    tie = random.random(len(onward)).tolist()
    visited = [False] * len(onward)
    # For each place, hops to places that are left, and a tie-break below 1.
    free = [len(hops) + part for hops, part in zip(onward, tie, strict=True)]

    def visit(place: int, by: int) -> None:
        visited[place] = by > 0
        for other in into[place]:
            free[other] -= by

    def last_the_best(place: int) -> list[int]:
        return sorted((one for one in onward[place] if not visited[one]), key=free.__getitem__, reverse=True)

    visit(first, 1)
    path, left = [first], [last_the_best(first)]
    for _ in range(_MOST_STEPS):
        if len(path) == len(onward):
            return path
        if not left:
            return []
        if left[-1]:
            place = left[-1].pop()
            visit(place, 1)
            path.append(place)
            left.append(last_the_best(place))
        else:
            left.pop()
            visit(path.pop(), -1)
    return []


def _ring(order: Indices, kind: Kind, root: int) -> _Hops:
    """Return one ring: (N − 1)/N of the buffer over each hop, twice that for all_reduce.

    A broadcast or reduce is a chain that carries all of the buffer over each hop.
    """
    ranks = len(order)
    after = np.roll(order, -1)
    if kind in ("broadcast", "reduce"):
        # A chain: in a broadcast no hop enters the root, in a reduce no hop leaves it.
        kept = after != root if kind == "broadcast" else order != root
        return _Hops(order[kept], after[kept], np.ones(ranks - 1))
    share = (ranks - 1) / ranks * (2 if kind == "all_reduce" else 1)
    return _Hops(order, after, np.full(ranks, share))


def _tree(order: Indices) -> _Hops:
    """Return one pair of trees: all of the buffer up and down each chain, half of it in each host tree."""
    upper, lower = order[:, :-1].ravel(), order[:, 1:].ravel()
    src, dst, load = [lower, upper], [upper, lower], [np.ones(len(upper))] * 2
    heads = order[:, 0]
    for tree in parents(len(heads)) if len(heads) > 1 else ():
        above = np.array(tree)
        child = np.flatnonzero(above >= 0)
        src += [heads[child], heads[above[child]]]
        dst += [heads[above[child]], heads[child]]
        load += [np.full(len(child), 0.5)] * 2
    return _Hops(np.concatenate(src), np.concatenate(dst), np.concatenate(load))


def _all_pairs(ranks: int, kind: Kind, root: int) -> _Hops:
    src, dst = (each.ravel() for each in np.meshgrid(np.arange(ranks), np.arange(ranks), indexing="ij"))
    wanted = src != dst
    load = 1.0 / ranks
    if kind == "all_to_next":
        wanted, load = dst == src + 1, 1.0
    elif kind == "scatter":
        wanted &= src == root
    elif kind == "gather":
        wanted &= dst == root
    return _Hops(src[wanted], dst[wanted], np.full(int(wanted.sum()), load))


def _rate(network: Network, algorithm: str, candidates: Sequence[_Hops]) -> LibraryRate | None:
    """Return the rate of the best division of the buffer among candidates; None if none has all its links.

    With x the bytes per second of each candidate: maximize sum x, subject to each link and port being busy
    for at most one second a second.
    """
    from scipy.optimize import linprog
    from scipy.sparse import csr_array

    busy = [each for each in (_busy_s(network, hops) for hops in candidates) if each is not None]
    if not busy:
        return None
    resources = network.links + len(network.ports)
    column = np.repeat(np.arange(len(busy)), [len(rows) for rows, _ in busy])
    row = np.concatenate([rows for rows, _ in busy])
    value = np.concatenate([values for _, values in busy])
    used, place = np.unique(row, return_inverse=True)
    scale = value.max()
    table = csr_array((value / scale, (place, column)), shape=(len(used), len(busy)))
    solved = linprog(-np.ones(len(busy)), A_ub=table, b_ub=np.ones(len(used)), method="highs")
    if solved.status != 0:
        raise RuntimeError(f"{algorithm} on {network.name}, {resources} resources: {solved.message}")
    load = table @ solved.x
    # The marginals of the program say at which busy link or port more bandwidth would gain most.
    order = np.argsort(solved.ineqlin.marginals, kind="stable")
    names = [_name_of(network, int(used[at])) for at in order if load[at] > _BUSY]
    ports = [name for name in names if not name.startswith("link ")] or names
    also = f" and {plural(len(ports) - 1, 'other')} as busy" if len(ports) > 1 else ""
    return LibraryRate(algorithm, float(scale / -solved.fun), f"{ports[0]}{also}")


def _name_of(network: Network, resource: int) -> str:
    if resource >= network.links:
        return network.ports[resource - network.links]
    return f"link {network.src[resource]} → {network.dst[resource]}"


def _busy_s(network: Network, hops: _Hops) -> tuple[Indices, Floats] | None:
    """Return (resource, seconds for each byte of the buffer); None if some hop has no link.

    Parallel links share a hop's bytes by their bandwidths.
    """
    key, order, rate = _pairs(network)
    wanted = hops.src * network.ranks + hops.dst
    begin, end = np.searchsorted(key, wanted), np.searchsorted(key, wanted, side="right")
    if (begin == end).any():
        return None
    hop = np.repeat(np.arange(len(wanted)), end - begin)
    link = order[np.concatenate([np.arange(low, high) for low, high in zip(begin, end, strict=True)])]
    together = np.bincount(hop, weights=rate[link])
    s_per_byte = hops.load[hop] / together[hop]
    owner, port = network.ports_along(link)
    resource = np.concatenate([link, network.links + port])
    seconds = np.concatenate([s_per_byte, s_per_byte[owner]])
    rows, place = np.unique(resource, return_inverse=True)
    return rows, floats(np.bincount(place, weights=seconds))


@lru_cache(maxsize=4)
def _pairs(network: Network) -> tuple[Indices, Indices, Floats]:
    """Return (src · ranks + dst of each link, ascending; its row; bytes per second of every row)."""
    key = network.src.astype(np.int64) * network.ranks + network.dst
    order = np.argsort(key, kind="stable")
    return key[order], order, 1.0 / network.beta_s_per_byte
