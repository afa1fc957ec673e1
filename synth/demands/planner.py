"""The planner of demand matrices: plans an all_to_all whose sizes differ from step to step, in milliseconds.

The amounts that a mixture of experts sends between its ranks change every few hundred milliseconds, too soon
for a search. The planner reads the network once: its ports, the groups of ranks that can relay for each
other, and the rate into and out of each rank, host and leaf. For a matrix it then

1. starts from the best of three choices for all pairs: direct sends, or crossing between hosts on the rail of
   the source's NIC or of the target's NIC, which in rail fabrics avoids the spine;
2. moves data from resources above the bound to paths with room (`synth.demands.relay_choice`), and raises the
   target time in small steps until all data fits.

All paths send at once, each at a rate at which it ends together with the busiest port, and relays forward
pieces as they arrive. So the time is the busiest port's, plus the time of a few pieces and latencies on the
longest path. FAST (Lei et al., arXiv 2505.09764) also balances NICs inside hosts first, but then sends in
permutations.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.sparse import csr_array

from probes.base import Floats, Indices, Mask, UsageError, floats, offsets
from synth.bounds import candidate_cuts, gates, labelings
from synth.collective import Collective
from synth.demands.relay_choice import DemandPaths, Ways, add_load, relieve
from synth.errors import NotApplicableError
from synth.network import Network
from synth.networks import link_table
from synth.schedules import COPY, Bound, Schedule
from synth.scheduling import Sends

__all__ = ["DemandPlan", "DemandPlanner", "serves", "synthesize"]

# The pieces in which a relay forwards the data of a path: a further hop costs one piece, 1.6 % of the time.
PIECES = 64
# Paths with this many times the mean data move first, while there is most room; the order of the rest matters
# little.
_LARGE = 4.0
# Within this factor of the bound, moves from direct sends beat a change of all paths.
_NEAR = 1.25
# The target time exceeds the bound by the first of these shares, or by the next ones while data does not fit.
# Finer steps gain less than they cost (benchmarks/demands.py).
_STEPS = (0.002, 0.005, 0.01, 0.02, 0.04, 0.07, 0.11, 0.16, 0.23, 0.33, 0.5, 0.75, 1.0)
# The size of a message for which the cheaper of parallel links is chosen.
_MESSAGE_BYTES = 1 << 20


@dataclass(frozen=True, eq=False)
class DemandPlan:
    """The paths of a demand matrix: ``size_bytes[n]`` go along row n of the other columns.

    Data goes from ``source`` to ``leaves``, a rank of the same group, from there to ``enters`` in the group
    of the target, and on to ``target``; there is no hop between equal neighbours. Each path has the rate
    ``size_bytes / busiest_s``. ``direct_s`` is the time of direct sends. ``relays`` tells whether any rank
    relays; if none does, direct sends are at least as fast as the best plan that was found.
    """

    network: Network
    source: Indices
    leaves: Indices
    enters: Indices
    target: Indices
    size_bytes: Floats
    busiest_s: float
    time_s: float
    direct_s: float
    bound: Bound

    @property
    def paths(self) -> DemandPaths:
        return DemandPaths(self.source, self.leaves, self.enters, self.target, self.size_bytes)

    @property
    def relays(self) -> bool:
        return bool(((self.leaves != self.source) | (self.enters != self.target)).any())

    @property
    def percent_of_optimal(self) -> float:
        """100 · bound / time."""
        return 100.0 * min(1.0, self.bound.time_s / self.time_s) if self.time_s else 100.0

    @property
    def why(self) -> str:
        """The reason for relays or direct sends, in words."""
        if not self.relays:
            return "direct sends: no relays would be faster"
        return f"relays: direct sends take {self.direct_s / self.time_s:.2f} times as long"


class DemandPlanner:
    """Plans demand matrices for one network.

    Raises NotApplicableError if a rank has no link to another. O(ranks · links) once.

    >>> from synth import family
    >>> import numpy as np
    >>> planner = DemandPlanner(family("fat_tree:4x4/2", [1e-6], [25e9]))
    >>> plan = planner.plan(np.full((16, 16), 1 << 20))
    >>> plan.percent_of_optimal > 90
    True
    """

    def __init__(self, network: Network) -> None:
        table = link_table(network, _MESSAGE_BYTES)
        missing = np.argwhere((table < 0) & ~np.eye(network.ranks, dtype=bool))
        if len(missing):
            raise NotApplicableError(f"demand needs a link from rank {missing[0][0]} to rank {missing[0][1]}")
        self.network = network
        group, place, first, member = _grouped(network)
        self._ways = Ways(table, network.alpha_s, *_resources(network), group, place, first, member)
        self._resources = int(self._ways.resource.max(initial=0)) + 1
        self._link_of = np.repeat(np.arange(network.links), np.diff(self._ways.start))
        # The members of each group, if the groups are hosts of one size: only there all data may profit from
        # relays, which use no NIC. A relay below a leaf loads as many ports as a direct send.
        is_even = len(set(np.diff(first).tolist())) == 1 and network.within_host.any()
        self._members = member.reshape(len(first) - 1, -1) if is_even else None
        self._cuts = _Cuts(network)

    def plan(self, demand_bytes: Floats | Indices) -> DemandPlan:
        """Return the plan for ``demand_bytes[s, d]``, the bytes from rank s to d; the diagonal is ignored.

        Raises UsageError if the matrix has another shape or a number below 0. O(ranks² + paths that move).
        """
        demand = self._checked(demand_bytes)
        # Loops are compiled for one memory layout only.
        source, target = map(np.ascontiguousarray, np.nonzero(demand))
        size = floats(demand[source, target])
        bound = self._cuts.bound(demand)
        if not len(source):
            return DemandPlan(self.network, source, source, target, target, size, 0.0, 0.0, 0.0, bound)
        direct = DemandPaths(source, source, target, target, size)
        direct_load = self._load(direct)
        direct_s = direct_load.time_s
        found, load = self._relayed(direct, direct_load, bound.time_s)
        if direct_s <= load.time_s:
            found, load = direct, direct_load
        return DemandPlan(self.network, *found, load.busiest_s, load.time_s, direct_s, bound)

    def _checked(self, demand_bytes: Floats | Indices) -> Floats:
        demand = np.array(demand_bytes, dtype=np.float64)
        ranks = self.network.ranks
        if demand.shape != (ranks, ranks):
            raise UsageError(f"expected a matrix of {ranks} × {ranks} sizes, found {demand.shape}")
        if not (demand >= 0).all() or not np.isfinite(demand).all():
            raise UsageError("expected sizes of at least 0 bytes")
        np.fill_diagonal(demand, 0.0)
        return demand

    def _relayed(self, direct: DemandPaths, load: _Load, bound_s: float) -> tuple[DemandPaths, _Load]:
        """Return paths after moves of data that bring the busiest resource nearer to the bound."""
        paths = direct
        for tried in self._starts(direct):
            if load.busiest_s <= bound_s * _NEAR:
                break
            tried_load = self._load(tried)
            if tried_load.busiest_s < load.busiest_s:
                paths, load = tried, tried_load
        # Direct sends and their load stay as they are: they may turn out to be faster.
        paths = paths._replace(size_bytes=paths.size_bytes.copy())
        load = replace(load, held_s=load.held_s.copy())
        added: list[DemandPaths] = []
        for step in _STEPS:
            target_s = bound_s * (1 + step)
            if load.busiest_s <= target_s:
                break
            rows = self._overloaded(paths, load.held_s, target_s)
            room = max(1024, 4 * len(rows))
            ranks = np.empty((4, room), np.int64)
            moved = DemandPaths(ranks[0], ranks[1], ranks[2], ranks[3], np.empty(room))
            count = relieve(self._ways, paths, rows, load.held_s, target_s, moved)
            added.append(_rows(moved, slice(0, count)))
        if not added:
            return paths, load
        more = _joined(added)
        added_load = self._load(more)
        alpha_s, hops = max(load.alpha_s, added_load.alpha_s), max(load.hops, added_load.hops)
        load = _Load(load.held_s, alpha_s, hops)
        whole = _joined([paths, more])
        return _rows(whole, whole.size_bytes > 0), load

    def _starts(self, direct: DemandPaths) -> Iterator[DemandPaths]:
        """Yield paths on which all pairs cross between groups on the target's rail, then on the source's."""
        if self._members is None:
            return
        group, place = self._ways.group, self._ways.place
        source_group, target_group = group[direct.source], group[direct.target]
        beside = np.where(
            source_group == target_group, direct.source, self._members[source_group, place[direct.target]]
        )
        yield direct._replace(leaves=beside)
        beside = np.where(
            source_group == target_group, direct.target, self._members[target_group, place[direct.source]]
        )
        yield direct._replace(enters=beside)

    def _overloaded(self, paths: DemandPaths, load_s: Floats, target_s: float) -> Indices:
        """Return the rows between groups that use an overloaded resource, large ones first."""
        ways = self._ways
        is_hot = np.zeros(self.network.links + 1, bool)
        is_hot[self._link_of[(load_s > target_s)[ways.resource]]] = True
        rows = np.zeros(len(paths.source), bool)
        for src, dst in ((0, 1), (1, 2), (2, 3)):
            rows |= is_hot[ways.table[paths[src], paths[dst]]]
        found = np.flatnonzero(rows & (ways.group[paths.source] != ways.group[paths.target]))
        size = paths.size_bytes[found]
        large = np.flatnonzero(size > _LARGE * size.mean()) if len(size) else found
        order = large[np.argsort(-size[large], kind="stable")]
        return np.concatenate([found[order], np.delete(found, large)])

    def _load(self, paths: DemandPaths) -> _Load:
        held_s = np.zeros(self._resources)
        return _Load(held_s, *add_load(self._ways, paths, held_s))


def _joined(parts: Sequence[DemandPaths]) -> DemandPaths:
    return DemandPaths._make(np.concatenate(columns) for columns in zip(*parts, strict=True))


def _rows(paths: DemandPaths, rows: slice | Mask) -> DemandPaths:
    return DemandPaths._make(column[rows] for column in paths)


@dataclass(frozen=True, eq=False)
class _Load:
    """Seconds for which paths hold each resource, the largest latency of a path, and its hops."""

    held_s: Floats
    alpha_s: float
    hops: int

    @property
    def busiest_s(self) -> float:
        return float(self.held_s.max())

    @property
    def time_s(self) -> float:
        return self.busiest_s * (1 + (self.hops - 1) / PIECES) + self.alpha_s


def serves(network: Network, collective: Collective) -> bool:
    """Return whether `synthesize` plans the collective: an uneven all_to_all of ranks that are all linked."""
    is_uneven = collective.blocks is not None and collective.blocks.kind == "all_to_all"
    # The number of links excludes most networks before their table is made.
    linked = network.links >= network.ranks * (network.ranks - 1)
    return is_uneven and linked and (link_table(network, _MESSAGE_BYTES) < 0).sum() == network.ranks


def synthesize(network: Network, collective: Collective, chunk_bytes: int, *, seed: int = 0) -> Schedule:
    """Return the schedule of a demand plan for an uneven all_to_all; sends follow the plan's rates.

    Raises NotApplicableError for other collectives, and if a rank has no link to another.
    """
    blocks = collective.blocks
    if blocks is None or blocks.kind != "all_to_all":
        raise NotApplicableError("demand serves only an uneven all_to_all")
    ranks = network.ranks
    chunks = blocks.chunks.reshape(ranks, ranks).astype(np.int64)
    plan = DemandPlanner(network).plan(chunks * chunk_bytes)
    first = offsets(blocks.chunks)[:-1].reshape(ranks, ranks)
    # Each path of a pair takes a whole number of chunks, in proportion to its bytes.
    pair = plan.source * ranks + plan.target
    order = np.argsort(pair, kind="stable")
    pair, size = pair[order], plan.size_bytes[order]
    begins = np.flatnonzero(np.diff(pair, prepend=-1))
    run = np.repeat(begins, np.diff(np.append(begins, len(pair))))
    ends = np.cumsum(size)
    before = (ends - size)[run]
    last = np.append(begins[1:], len(pair))[: len(begins)] - 1
    share = (ends - before) / (ends[last][np.searchsorted(begins, run)] - before)
    total = chunks.ravel()[pair]
    stop = np.rint(share * total).astype(np.int64)
    begin = np.where(np.arange(len(pair)) == run, 0, np.roll(stop, 1))
    count = stop - begin
    row = np.repeat(np.arange(len(pair)), count)
    part = np.arange(len(row)) - np.repeat(offsets(count)[:-1], count)
    chunk = first.ravel()[pair][row] + begin[row] + part
    sent = (part + 0.5) / count[row]
    return _listed(network, collective, chunk_bytes, plan, order[row], chunk, sent, seed)


def _listed(
    network: Network,
    collective: Collective,
    chunk_bytes: int,
    plan: DemandPlan,
    path: Indices,
    chunk: Indices,
    share: Floats,
    seed: int,
) -> Schedule:
    """Return the sends of each chunk along its path.

    Among ready sends, the path that has sent the smallest share of its data comes first. So the order of
    sends follows the rates of the plan, and relays get their data in time.
    """
    table = link_table(network, _MESSAGE_BYTES)
    stops = (plan.source[path], plan.leaves[path], plan.enters[path], plan.target[path])
    sends = Sends()
    for hop in range(3):
        moves = np.flatnonzero(stops[hop] != stops[hop + 1])
        link = table[stops[hop][moves], stops[hop + 1][moves]]
        sends.add(chunk[moves], link, COPY, hop, share[moves])
    return sends.schedule(network, collective, chunk_bytes, "demand", seed)


def _grouped(network: Network) -> tuple[Indices, Indices, Indices, Indices]:
    """Return (group of each rank, place in it, first member of each group, members).

    Groups are hosts, or else the ranks below the same ports; a rank alone if there is neither.
    """
    group = np.arange(network.ranks)
    for labels, _ in labelings(network):
        if 1 < len(np.unique(labels)) < network.ranks:
            group = np.unique(labels, return_inverse=True)[1].astype(np.int64)
            break
    member = np.argsort(group, kind="stable")
    first = offsets(np.bincount(group))
    place = np.empty(network.ranks, np.int64)
    place[member] = np.arange(network.ranks) - first[group[member]]
    return group, place, np.asarray(first, np.int64), member


def _resources(network: Network) -> tuple[Indices, Indices, Floats]:
    """Return (start, resource, seconds per byte) of each link: its ports, and the link itself if slower."""
    start, resource = network.link_resources
    held = np.insert(network.held_s_per_byte, network.link_port_start[:-1], network.beta_s_per_byte)
    link = np.repeat(np.arange(network.links), np.diff(start))
    busiest = np.zeros(network.links)
    np.maximum.at(busiest, network.port_user, network.held_s_per_byte)
    kept = (resource >= network.links) | (network.beta_s_per_byte > busiest)[link]
    used = np.unique(resource[kept], return_inverse=True)[1]
    return offsets(np.bincount(link[kept], minlength=network.links)), used, floats(held[kept])


class _Cuts:
    """The cuts of a network, read once: how fast data can enter and leave sets of ranks."""

    def __init__(self, network: Network) -> None:
        cuts = [cut for cut in candidate_cuts(network) if len(cut.links)]
        self._names = [cut.name for cut in cuts]
        self._rate = np.array([gates(network, cut).bytes_per_s for cut in cuts])
        self._alpha_s = np.array([network.alpha_s[cut.links].min() for cut in cuts])
        inside = np.array([cut.inside for cut in cuts], bool).reshape(len(cuts), network.ranks)
        self._outward = 2 * inside.sum(axis=1) > network.ranks
        # The smaller side has fewer rows to add up.
        self._side = csr_array(np.where(self._outward[:, None], ~inside, inside).astype(np.float64))

    def bound(self, demand: Floats) -> Bound:
        """Return the largest bound: data that must cross between sets of ranks over the links and ports."""
        sent, received = demand.sum(axis=1), demand.sum(axis=0)
        stays = self._side.multiply(self._side @ demand).sum(axis=1)
        crossing = np.where(self._outward, self._side @ sent, self._side @ received) - stays
        times_s = np.where(crossing > 0, crossing / self._rate + self._alpha_s, 0.0)
        at = int(times_s.argmax())
        return Bound("cut", float(times_s[at]), self._names[at])
