"""A TACCL-like baseline (Shah et al., NSDI 2023): routes by an integer program, then orders the sends.

Sketch: a chunk may only take links on shortest paths to its targets. Routing (its Sec. 5.1): an integer
program chooses the links of every chunk and its arrival time at every rank. It minimizes the maximum of the
last arrival and the largest load of a link or port. The program ignores that chunks wait for each other at a
link, so TACOS does better. Ordering (Sec. 5.2): each link first sends the chunk with the longest remaining
path, and among equals the one that has come the shortest way. reduce_scatter and reduce are all_gather and
broadcast on the transposed network, reversed in time; all_reduce is a reduce_scatter followed by an
all_gather.

TACCL's third step, contiguity, joins chunks that follow each other over a link into one message, to save
alphas. It is left out: it would help only if links were held for alpha as well.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from probes.base import Floats, Mask
from synth.collective import Collective
from synth.errors import NotApplicableError
from synth.methods import both_halves, require_one_way
from synth.milp import IntegerProgram
from synth.network import Network
from synth.networks import distances_s
from synth.schedules import COPY, Outcome, Schedule
from synth.scheduling import Sends, reversed_in_time
from synth.simulation import replay

__all__ = ["synthesize"]

# Paths whose lengths differ by less than this fraction count as equally long.
_EQUAL = 1e-9
# The most (chunk, link) choices of a program. With more, CBC does not finish its first relaxation in a
# minute.
_MOST_CHOICES = 60_000


def synthesize(
    network: Network,
    collective: Collective,
    chunk_bytes: int,
    *,
    seed: int = 0,
    time_limit_s: float = 60.0,
    solver: str = "cbc",
) -> Schedule:
    """Return the schedule along the best routes found in time, its sends in TACCL's order.

    Raises NotApplicableError if TACCL does not serve the collective, or the program finds no routes in time.
    """
    require_one_way("taccl", collective)
    if collective.kind == "all_reduce":
        return both_halves(
            network,
            collective,
            chunk_bytes,
            "taccl",
            seed,
            lambda half: synthesize(
                network, half, chunk_bytes, seed=seed, time_limit_s=time_limit_s / 2, solver=solver
            ),
        )
    turned = collective.reversal is not None
    copying = collective.reversal or collective
    onward = network.transposed() if turned else network
    routes, gap = _routes(onward, copying, chunk_bytes, solver, time_limit_s, seed)
    schedule = _ordered(onward, copying, chunk_bytes, routes, seed)
    if turned:
        schedule = reversed_in_time(schedule, network, collective)
    return Schedule(
        schedule.network,
        schedule.collective,
        chunk_bytes,
        "taccl",
        seed,
        schedule.chunk,
        schedule.link,
        schedule.op,
        Outcome(replay(schedule).time_s, (), "feasible", gap),
    )


@dataclass(frozen=True)
class _Choices:
    """The (chunk, link) pairs of the sketch, in parallel lists, and the program's columns for them."""

    chunk: list[int]
    link: list[int]
    taken: list[int]


def _sketch(network: Network, collective: Collective, travel_s: Floats) -> Mask:
    """Return for each chunk the links that lie on a shortest path to a target."""
    every = distances_s(network, travel_s, np.arange(network.ranks, dtype=np.int64))
    allowed = np.zeros((collective.chunks, network.links), dtype=bool)
    for chunk in range(collective.chunks):
        sources, targets = collective.sources.of(chunk), collective.targets.of(chunk)
        near = every[sources].min(axis=0)
        if not np.isfinite(near[targets]).all():
            raise NotApplicableError("taccl: not every rank can be reached")
        for target in targets:
            if near[target] > 0:
                through = near[network.src] + travel_s + every[network.dst, target]
                allowed[chunk] |= through <= near[target] * (1 + _EQUAL)
        allowed[chunk] &= ~np.isin(network.dst, sources)
    return allowed


def _routes(
    network: Network, collective: Collective, chunk_bytes: int, solver: str, time_limit_s: float, seed: int
) -> tuple[Mask, float]:
    """Return (the links that each chunk takes, the gap of the program)."""
    begun_s = time.perf_counter()
    travel_s, held_s = network.travel_s(chunk_bytes), network.hold_s(chunk_bytes)
    # Times are in units of the longest travel time: in seconds they are too small for a solver's tolerances.
    unit_s = float(travel_s.max())
    travel, held = travel_s / unit_s, held_s / unit_s
    allowed = _sketch(network, collective, travel_s)
    if allowed.sum() > _MOST_CHOICES:
        raise NotApplicableError(
            f"taccl: expected at most {_MOST_CHOICES} choices of a link for a chunk, found {allowed.sum()}"
        )
    model = IntegerProgram()
    end = model.number()
    model.cost[end] = 1.0
    chunks, links = (column.tolist() for column in np.nonzero(allowed))
    choices = _Choices(chunks, links, [model.binary() for _ in chunks])
    into: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for chunk, link, column in zip(choices.chunk, choices.link, choices.taken, strict=True):
        into.setdefault((chunk, int(network.dst[link])), []).append((column, link))
    longest = float(travel.sum())
    arrives = {key: model.number(0.0, longest) for key in into}
    wanted = collective.wanted() & ~collective.held()
    for (chunk, rank), found in into.items():
        columns = [column for column, _ in found]
        must = bool(wanted[rank, chunk])
        model.row(columns, [1.0] * len(columns), 1.0 if must else 0.0, 1.0)
        if must:
            model.row([end, arrives[chunk, rank]], [1.0, -1.0], 0.0)
        for column, link in found:
            src = int(network.src[link])
            before = arrives.get((chunk, src))
            # A chunk can take a link only if it reaches the link's source. It then arrives at least the
            # link's travel time later.
            far = longest + float(travel[link])
            own = [arrives[chunk, rank], column]
            if before is None:
                model.row(own, [1.0, -float(travel[link])], 0.0)
            else:
                model.row([*own, before], [1.0, -far, -1.0], float(travel[link]) - far)
                sources = [one for one, _ in into[chunk, src]]
                model.row([*sources, column], [*[1.0] * len(sources), -1.0], 0.0)
    _loads(model, network, held, choices, end)
    for column in choices.taken:
        # Among equal end times the fewest sends win.
        model.cost[column] = 1e-6
    left_s = max(0.1, time_limit_s - (time.perf_counter() - begun_s))
    solved = model.solve(solver=solver, time_limit_s=left_s, gap=1e-3, seed=seed)
    if solved.values is None:
        raise NotApplicableError(f"taccl: no routes within {time_limit_s:g} s")
    taken = np.zeros(allowed.shape, dtype=bool)
    taken[choices.chunk, choices.link] = solved.values[choices.taken] > 0.5
    return taken, solved.gap


def _loads(model: IntegerProgram, network: Network, held: Floats, choices: _Choices, end: int) -> None:
    """Require that the end comes after each link and port has carried all chunks routed over it."""
    uses: dict[int, list[tuple[int, float]]] = {}
    start = network.link_port_start
    for link, column in zip(choices.link, choices.taken, strict=True):
        uses.setdefault(link, []).append((column, float(held[link])))
        for at in range(int(start[link]), int(start[link + 1])):
            part = float(held[link] * network.port_part[at])
            uses.setdefault(network.links + int(network.link_port[at]), []).append((column, part))
    for found in uses.values():
        if len(found) > 1:
            model.row([end, *(column for column, _ in found)], [1.0, *(-part for _, part in found)], 0.0)


def _ordered(network: Network, collective: Collective, chunk_bytes: int, routes: Mask, seed: int) -> Schedule:
    """Return the sends of the routes: longest remaining path first, then shortest path so far."""
    travel_s = network.travel_s(chunk_bytes)
    sends = Sends()
    for chunk in range(collective.chunks):
        tree = np.flatnonzero(routes[chunk])
        into = {int(network.dst[link]): int(link) for link in tree}
        depth: dict[int, int] = {}
        come_s: dict[int, float] = {}

        def reach(link: int, into: dict[int, int] = into, depth: dict[int, int] = depth) -> int:
            if link not in depth:
                before = into.get(int(network.src[link]))
                depth[link] = 0 if before is None else reach(before) + 1
            return depth[link]

        left_s = dict.fromkeys(tree.tolist(), 0.0)
        for link in sorted(tree.tolist(), key=reach):
            before = into.get(int(network.src[link]))
            come_s[link] = travel_s[link] + (0.0 if before is None else come_s[before])
        for link in sorted(tree.tolist(), key=reach, reverse=True):
            left_s[link] += float(travel_s[link])
            before = into.get(int(network.src[link]))
            if before is not None:
                left_s[before] = max(left_s[before], left_s[link])
        scale_s = sum(come_s.values()) + float(travel_s.max())
        for link in tree.tolist():
            urgency = -left_s[link] + _EQUAL * come_s[link] / scale_s
            sends.add(chunk, link, COPY, depth[link], np.array([urgency]))
    return sends.schedule(network, collective, chunk_bytes, "taccl", seed)
