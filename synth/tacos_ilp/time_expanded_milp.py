"""The integer program of TACOS-ILP (Sec. V-A) over a time-expanded network, for copying collectives.

A binary column is 1 if a chunk has left over a bundle by a tick. So the columns of one chunk and bundle do
not fall with the tick, and the move happens where they step from 0 to 1. A column exists only if the chunk
can have arrived by that tick and can still reach a rank that wants it by the horizon. A chunk enters a rank
at most once, and leaves it only after it has arrived. No bundle or port exceeds its capacity.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from probes.base import Mask
from synth.milp import IntegerProgram, Solution
from synth.tacos_ilp.time_expanded_network import UNREACHED, Expansion

__all__ = ["LinkMove", "TimeExpandedProgram", "moves_of", "program"]

# The most ranks for which `_cross` adds its rows, one for each chunk and pair of neighbours.
_MOST_CUT_RANKS = 64


@dataclass(frozen=True, order=True)
class LinkMove:
    """A move: ``chunk`` starts over a bundle at ``tick``."""

    tick: int
    bundle: int
    chunk: int


@dataclass(frozen=True, eq=False)
class Departures:
    """The ticks at which one chunk may start over one bundle, and a "has left by" column for each."""

    chunk: int
    bundle: int
    ticks: list[int]
    columns: list[int]

    def by(self, tick: int) -> list[int]:
        """Return, as a list, the column that is 1 if the chunk has left by ``tick``; [] before the first."""
        at = bisect_right(self.ticks, tick)
        return self.columns[at - 1 : at] if at else []


@dataclass(eq=False)
class TimeExpandedProgram:
    """The model and its columns; ``possible`` is False if it is found infeasible without a solver.

    An elastic program maximises the number of chunks that arrive; otherwise all must arrive.
    """

    expansion: Expansion
    held: Mask
    wanted: Mask
    elastic: bool
    model: IntegerProgram = field(default_factory=lambda: IntegerProgram(preprocess=False))
    departures: dict[tuple[int, int], Departures] = field(default_factory=dict)
    into: dict[tuple[int, int], list[Departures]] = field(default_factory=lambda: defaultdict(list))
    possible: bool = True


def program(
    expansion: Expansion, held: Mask, wanted: Mask, *, elastic: bool = False, most_columns: int = 1 << 30
) -> TimeExpandedProgram | None:
    """Return the program that moves chunks from ``held`` to ``wanted`` (ranks × chunks); None if too big."""
    made = TimeExpandedProgram(expansion, held, wanted & ~held, elastic)
    for chunk in range(held.shape[1]):
        _depart(made, chunk)
        if made.model.columns > most_columns:
            return None
    for rank, chunk in np.argwhere(made.wanted).tolist():
        made.possible &= bool(made.into.get((chunk, rank)))
    if made.possible or elastic:
        _arrive(made)
        _follow(made)
        _share(made)
        if not elastic:
            _cross(made)
    return made


def moves_of(made: TimeExpandedProgram, solution: Solution) -> list[LinkMove]:
    """Return the moves of a solution, in the order of time."""
    if solution.values is None:
        return []
    found = []
    for (chunk, at), departures in made.departures.items():
        left = solution.values[departures.columns] > 0.5
        if left.any():
            found.append(LinkMove(departures.ticks[int(left.argmax())], at, chunk))
    return sorted(found)


def _depart(made: TimeExpandedProgram, chunk: int) -> None:
    """Add columns for all useful starts of a chunk within the horizon."""
    grid, model = made.expansion.grid, made.model
    network = grid.bundles.network
    held, wanted = made.held[:, chunk], made.wanted[:, chunk]
    if not wanted.any():
        return
    earliest = grid.distance[held].min(axis=0)
    remaining = grid.distance[:, wanted].min(axis=1)
    for at, link in enumerate(grid.bundles.first.tolist()):
        src, dst = int(network.src[link]), int(network.dst[link])
        if held[dst] or max(earliest[src], remaining[dst]) >= UNREACHED:
            continue
        starts = made.expansion.starts[at]
        last = made.expansion.horizon - remaining[dst] - grid.travel[at]
        ticks = starts[(starts >= earliest[src]) & (starts <= last)].tolist()
        if ticks:
            columns = [model.binary() for _ in ticks]
            for before, after in pairwise(columns):
                model.row([before, after], [1.0, -1.0], high=0.0)
            made.departures[chunk, at] = departures = Departures(chunk, at, ticks, columns)
            made.into[chunk, dst].append(departures)


def _arrive(made: TimeExpandedProgram) -> None:
    """Let a chunk enter a rank at most once; if wanted, require it, or reward it if elastic."""
    for (chunk, rank), ways in made.into.items():
        final = [departures.columns[-1] for departures in ways]
        must = made.wanted[rank, chunk] and not made.elastic
        made.model.row(final, [1.0] * len(final), low=1.0 if must else 0.0, high=1.0)
        if made.wanted[rank, chunk] and made.elastic:
            made.model.cost.update(dict.fromkeys(final, -1.0))


def _follow(made: TimeExpandedProgram) -> None:
    """Let a chunk leave a rank only after it has arrived there."""
    grid = made.expansion.grid
    src = grid.bundles.network.src[grid.bundles.first]
    for (chunk, at), departures in made.departures.items():
        if made.held[src[at], chunk]:
            continue
        before: list[int] | None = None
        for tick, column in zip(reversed(departures.ticks), reversed(departures.columns), strict=True):
            came = [
                column
                for way in made.into.get((chunk, int(src[at])), [])
                for column in way.by(tick - int(grid.travel[way.bundle]))
            ]
            # If nothing arrives between two ticks, the later row implies the earlier one.
            if came != before:
                made.model.row([column, *came], [1.0, *[-1.0] * len(came)], high=0.0)
            before = came


def _share(made: TimeExpandedProgram) -> None:
    """Limit each bundle to as many chunks at once as it has links, and each port to one."""
    bundles = made.expansion.grid.bundles
    users: dict[tuple[str, int], list[Departures]] = defaultdict(list)
    for departures in made.departures.values():
        ports = bundles.ports[departures.bundle]
        for port in ports:
            users["port", port].append(departures)
        if not ports:
            users["bundle", departures.bundle].append(departures)
    for (kind, number), using in users.items():
        carries = 1 if kind == "port" else len(bundles.links[number])
        if len(using) > carries:
            _carry(made, using, carries)


def _carry(made: TimeExpandedProgram, using: list[Departures], carries: int) -> None:
    hold = made.expansion.grid.hold
    instants = sorted({tick for departures in using for tick in departures.ticks})
    for at, tick in enumerate(instants):
        following = instants[at + 1] if at + 1 < len(instants) else None
        columns: list[int] = []
        signs: list[float] = []
        ends = False
        for departures in using:
            now, gone = departures.by(tick), departures.by(tick - int(hold[departures.bundle]))
            if now == gone:
                continue
            columns += now + gone
            signs += [1.0] * len(now) + [-1.0] * len(gone)
            ends |= following is None or gone != departures.by(following - int(hold[departures.bundle]))
        # If no send ends before the next start, the row of that start implies this one.
        if ends and len(columns) > carries:
            made.model.row(columns, signs, high=float(carries))


def _cross(made: TimeExpandedProgram) -> None:
    """Require a chunk to enter each pair of neighbours of which one wants it and none holds it.

    Otherwise a fractional solution may send halves of a chunk to and fro until they add up to one.
    """
    bundles = made.expansion.grid.bundles
    src, dst = (column[bundles.first].tolist() for column in (bundles.network.src, bundles.network.dst))
    if bundles.network.ranks > _MOST_CUT_RANKS:
        return
    pairs = {(min(ends), max(ends)) for ends in zip(src, dst, strict=True)}
    for chunk in range(made.held.shape[1]):
        for pair in pairs:
            inside = list(pair)
            if made.held[inside, chunk].any() or not made.wanted[inside, chunk].any():
                continue
            ways = [way for rank in pair for way in made.into.get((chunk, rank), [])]
            entering = [way.columns[-1] for way in ways if src[way.bundle] not in pair]
            made.model.row(entering, [1.0] * len(entering), low=1.0)
