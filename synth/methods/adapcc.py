"""AdapCC's synthesizer (Sec. IV-D): M sub-collectives, each with its own tree and part of the tensor.

Integer programs choose the trees and the parts (``tree_strategy``), first between hosts and then inside them
(``two_level_strategy``). This module sends the chunks of every sub-collective along its tree in a pipeline.
all_reduce reduces and broadcasts back over the same tree; all_gather and reduce_scatter are one broadcast or
reduce for every rank. If some ranks take part only as relays, the trees are pruned to the ranks that lead to
a member. Collectives whose chunks have one source and one target each, such as all_to_all, use paths
(``synth.adapcc.path_milp``).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from probes.base import Floats, Indices, Mask
from synth.adapcc import Planner, Routes, TwoLevelPlan, along, opposites, plan_routes
from synth.collective import Collective, Kind, collective
from synth.errors import NotApplicableError
from synth.network import Network
from synth.schedules import COPY, REDUCE, Outcome, Schedule
from synth.scheduling import Sends
from synth.simulation import replay
from synth.tree_packing import depths

__all__ = ["SUB_COLLECTIVES", "choose", "solve", "suits", "synthesize"]

# AdapCC Sec. VI-C and VI-E: M = 4.
SUB_COLLECTIVES = 4
# The chunk sizes that `choose` compares. Sizes after the first are left out if ranks times chunks are more
# than _MOST_SENDS, so up to about a hundred ranks compare all sizes for AdapCC's 256 MB (Sec. VI-C).
_CHUNK_BYTES = (4 << 20, 1 << 20, 256 << 10, 128 << 10, 64 << 10)
_MOST_SENDS = 400_000
# The collectives that use trees, those that broadcast along trees, and those whose trees are planned on the
# transposed network.
_TREES = ("reduce", "broadcast", "all_reduce", "all_gather", "reduce_scatter")
_BACK = ("broadcast", "all_gather", "all_reduce")
_TURNED = ("broadcast", "all_gather")
# The paces that are tried. Sends are ordered by their turns: at pace p, a chunk starts one turn after the
# previous one, and takes p turns for each level of its tree. Of 80 plans for 2 to 6 hosts of 2 or 4 ranks
# with uneven NICs, 73 were fastest at pace 1. Paces 4 and 1/4 were faster for the others, by up to 4 %.
_PACES = (1.0, 4.0, 0.25)
# The most hosts for which auto's 2.5 s suffice: the program for all_gather on fully connected hosts has
# hosts³ · (hosts - 1) columns for flows, and 5,000 are passed to a solver in that time (`require_size`).
_FEW_HOSTS = 8
# The most chunks for auto: 256 MiB in the smallest of _CHUNK_BYTES.
_FEW_CHUNKS = 4096
# Recent plans. Networks compare by identity, so no network gets another's plan.
_PLANS: dict[tuple[object, ...], TwoLevelPlan] = {}
# One plan for each collective that uses trees. There are no more, because a plan keeps its network in memory.
# The oldest plan is dropped first.
_MOST_PLANS = len(_TREES)
# Rounding a size to two digits changes it by at most 5 %. So the best plan for the rounded size takes at most
# 5 % longer, in the model, than the best plan for the size itself.
_DIGITS = 2


def suits(network: Network, collective: Collective) -> bool:
    """Return whether the programs are solved quickly: several but few hosts, and few chunks."""
    hosts = len(set(network.hosts))
    return 1 < hosts <= _FEW_HOSTS and hosts < network.ranks and collective.chunks <= _FEW_CHUNKS


def synthesize(
    network: Network,
    shape: Collective,
    chunk_bytes: int,
    *,
    seed: int = 0,
    time_limit_s: float = 60.0,
    solver: str = "cbc",
    sub_collectives: int = SUB_COLLECTIVES,
) -> Schedule:
    """Return the schedule of `solve`; its outcome has the gap of the integer programs."""
    schedule, planned = solve(
        network,
        shape,
        chunk_bytes,
        seed=seed,
        time_limit_s=time_limit_s,
        solver=solver,
        sub_collectives=sub_collectives,
    )
    return replace(schedule, outcome=Outcome(replay(schedule).time_s, (), "feasible", planned.gap))


def solve(
    network: Network,
    shape: Collective,
    chunk_bytes: int,
    *,
    seed: int = 0,
    time_limit_s: float = 60.0,
    solver: str = "cbc",
    sub_collectives: int = SUB_COLLECTIVES,
) -> tuple[Schedule, TwoLevelPlan | Routes]:
    """Return (schedule, the strategy that it follows, with the gap of its integer programs).

    Plans of trees are cached, so other chunk sizes of the same tensor cost no second search. A cached plan
    may come from a search with another time limit. Raises NotApplicableError if no trees or paths reach every
    rank, or if the program would be too large.
    """
    if shape.parts:
        raise NotApplicableError(f"adapcc does not serve {shape.label}: it takes one collective at a time")
    total_bytes = shape.chunks * chunk_bytes
    if shape.kind in _TREES:
        count = max(1, min(sub_collectives, shape.chunks))
        planned = _planned(network, shape.kind, shape.root, total_bytes, count, solver, time_limit_s, seed)
        return _at_best_pace(network, shape, chunk_bytes, planned, seed), planned
    routes = plan_routes(network, shape, chunk_bytes, solver=solver, time_limit_s=time_limit_s, seed=seed)
    return along(network, shape, chunk_bytes, routes, "adapcc", seed), routes


def choose(
    network: Network,
    kind: Kind,
    size_bytes: int,
    *,
    time_limit_s: float = 60.0,
    sub_collectives: int = SUB_COLLECTIVES,
) -> tuple[Schedule, TwoLevelPlan | Routes]:
    """Return the result of `solve` at the chunk size of least simulated time.

    ``size_bytes`` is the size as nccl-tests counts it.
    """
    made: list[tuple[Schedule, TwoLevelPlan | Routes]] = []
    one = collective(kind, network.ranks, 1)
    for chunk_bytes in _CHUNK_BYTES:
        split = max(1, round(size_bytes / (one.total_bytes(1) * chunk_bytes)))
        shape = replace(one, chunks=one.chunks * split)
        if made and shape.chunks * network.ranks > _MOST_SENDS:
            continue
        exact_bytes = -(-size_bytes // shape.total_bytes(1))
        made.append(
            solve(network, shape, exact_bytes, time_limit_s=time_limit_s, sub_collectives=sub_collectives)
        )
    return min(made, key=lambda one: replay(one[0]).time_s)


def _planned(
    network: Network,
    kind: Kind,
    root: int,
    total_bytes: int,
    sub_collectives: int,
    solver: str,
    time_limit_s: float,
    seed: int,
) -> TwoLevelPlan:
    """Return the plan for ``total_bytes``, rounded so that chunk sizes of one tensor share a plan."""
    about_bytes = round(total_bytes, _DIGITS - len(str(total_bytes)))
    key = (network, kind, root, about_bytes, sub_collectives, solver, seed)
    if key not in _PLANS:
        planner = Planner(
            network,
            kind,
            root,
            about_bytes,
            sub_collectives,
            solver=solver,
            time_limit_s=time_limit_s,
            seed=seed,
        )
        while len(_PLANS) >= _MOST_PLANS:
            del _PLANS[next(iter(_PLANS))]
        _PLANS[key] = planner.plan()
    return _PLANS[key]


def _at_best_pace(
    network: Network, shape: Collective, chunk_bytes: int, planned: TwoLevelPlan, seed: int
) -> Schedule:
    """Return the schedule at the pace with the least simulated time."""
    made = [_at_pace(network, shape, chunk_bytes, planned, seed, pace) for pace in _PACES]
    return min(made, key=lambda schedule: replay(schedule).time_s)


def _at_pace(
    network: Network, shape: Collective, chunk_bytes: int, planned: TwoLevelPlan, seed: int, pace: float
) -> Schedule:
    back = opposites(network) if shape.kind == "all_reduce" else np.arange(network.links)
    towards = network.transposed() if shape.kind in _TURNED else network
    sends = Sends()
    for up, chunks, rounds in _parts(shape, planned):
        depth = depths(np.where(up >= 0, towards.dst[up], -1))
        ranks = np.flatnonzero((up >= 0) & _leading(towards, up, depth, shape.participants))
        below = pace * depth[ranks]
        begin = rounds[:, None] + below.max(initial=0.0)
        if shape.reduces:
            sends.add(chunks[:, None], up[ranks], REDUCE, begin - below)
        if shape.kind in _BACK:
            sends.add(chunks[:, None], back[up[ranks]], COPY, begin + below)
    return sends.schedule(network, shape, chunk_bytes, "adapcc", seed)


def _parts(shape: Collective, planned: TwoLevelPlan) -> list[tuple[Indices, Indices, Floats]]:
    """Return (link of each rank to its parent, chunks, their rounds) of every sub-collective."""
    chunks = np.arange(shape.chunks)
    if shape.kind in ("all_gather", "reduce_scatter"):
        rounds = np.arange(shape.share, dtype=float)
        ups = [planned.up[rank] for rank in shape.participants.tolist()]
        return [(up, mine, rounds) for up, mine in zip(ups, chunks.reshape(shape.size, -1), strict=True)]
    owner = _parts_of_chunks(np.array(planned.share), shape.chunks)
    parts: list[tuple[Indices, Indices, Floats]] = []
    for m, up in enumerate(planned.up):
        mine = chunks[owner == m]
        rounds = (np.arange(len(mine)) + 0.5) / max(1, len(mine)) * shape.chunks / len(planned.up)
        parts.append((up, mine, rounds))
    return parts


def _leading(network: Network, up: Indices, depth: Indices, members: Indices) -> Mask:
    """Return a mask of the ranks with a member at or below them in the tree."""
    leads = np.zeros(len(up), dtype=bool)
    leads[members] = True
    for rank in np.argsort(-depth, kind="stable").tolist():
        if up[rank] >= 0 and leads[rank]:
            leads[network.dst[up[rank]]] = True
    return leads


def _parts_of_chunks(share: Floats, count: int) -> Indices:
    """Return the sub-collective of each of ``count`` chunks.

    The next chunk always goes to the sub-collective that lacks most of its share of the chunks so far.
    """
    owner = np.empty(count, dtype=np.int64)
    given = np.zeros(len(share))
    for chunk in range(count):
        owner[chunk] = int(np.argmax(share / share.sum() * (chunk + 1) - given))
        given[owner[chunk]] += 1
    return owner
