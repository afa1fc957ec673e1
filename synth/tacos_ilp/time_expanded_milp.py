"""The integer program of TACOS-ILP (Sec. V-A) over a time-expanded network, for copying collectives.

A binary column is 1 if a chunk has left over a bundle by a tick. So the columns of one chunk and bundle do
not fall with the tick, and the move happens where they step from 0 to 1. A column exists only if the chunk
can have arrived by that tick and can still reach a rank that wants it by the horizon. A chunk enters a rank
at most once, and leaves it only after it has arrived. No bundle or port exceeds its capacity.

If translations of the network (`synth.networks.symmetric`) map the collective to itself, ``by_orbits`` seeks
a schedule that they map to itself, too. One chunk of each orbit has columns, which its images share, so the
program is as many times smaller as there are translations. A solution of the smaller program is a schedule.
If its linear relaxation is infeasible, so is the whole program: the mean of the images of a whole solution
under all translations would be a fractional solution of the smaller program.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise

import numpy as np

from probes.base import Indices, Mask
from synth.milp import IntegerProgram, Solution, Status
from synth.networks import found_symmetry
from synth.tacos_ilp.time_expanded_network import UNREACHED, Bundles, Expansion

__all__ = ["LinkMove", "TimeExpandedProgram", "by_orbits", "moves_of", "program"]

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


@dataclass(frozen=True, eq=False)
class _Orbits:
    """The images of chunk c and of bundle b under translation s are ``chunks[s, c]`` and ``bundles[s, b]``.

    The first translation moves nothing.
    """

    chunks: Indices
    bundles: Indices


@dataclass(eq=False)
class TimeExpandedProgram:
    """The model and its columns; ``possible`` is False if it is found infeasible without a solver.

    ``chunks`` have rows of their own; the others are images of them. An elastic program maximises the
    number of chunks that arrive; otherwise all must arrive.
    """

    expansion: Expansion
    held: Mask
    wanted: Mask
    elastic: bool
    chunks: list[int]
    model: IntegerProgram = field(default_factory=lambda: IntegerProgram(preprocess=False))
    departures: dict[tuple[int, int], Departures] = field(default_factory=dict)
    into: dict[tuple[int, int], list[Departures]] = field(default_factory=lambda: defaultdict(list))
    possible: bool = True


def program(
    expansion: Expansion,
    held: Mask,
    wanted: Mask,
    *,
    elastic: bool = False,
    most_columns: int = 1 << 30,
    orbits: _Orbits | None = None,
) -> TimeExpandedProgram | None:
    """Return the program that moves chunks from ``held`` to ``wanted`` (ranks × chunks); None if too big.

    With ``orbits`` the chunks of an orbit move alike.
    """
    chunks = np.arange(held.shape[1]) if orbits is None else np.unique(orbits.chunks.min(axis=0))
    made = TimeExpandedProgram(expansion, held, wanted & ~held, elastic, chunks.tolist())
    for chunk in made.chunks:
        _depart(made, chunk)
        if made.model.columns > most_columns:
            return None
    if orbits is not None:
        _repeat(made, orbits)
    for rank, chunk in np.argwhere(made.wanted).tolist():
        made.possible &= bool(made.into.get((chunk, rank)))
    if made.possible or elastic:
        _arrive(made)
        _follow(made)
        _share(made)
        if not elastic:
            _cross(made)
    return made


def by_orbits(
    expansion: Expansion,
    held: Mask,
    wanted: Mask,
    *,
    most_columns: int,
    solver: str,
    time_limit_s: float,
    seed: int,
) -> tuple[Status, list[LinkMove]]:
    """Return "feasible" with moves, "infeasible", or "unknown" if the whole program has to decide."""
    orbits = _orbits_of(expansion.grid.bundles, held, wanted)
    made = orbits and program(expansion, held, wanted, most_columns=most_columns, orbits=orbits)
    if not made:
        return "unknown", []
    solve = partial(IntegerProgram.solve, solver=solver, time_limit_s=time_limit_s / 2, seed=seed)
    relaxed = replace(made.model, integer=[False] * made.model.columns)
    if not made.possible or solve(relaxed).status == "infeasible":
        return "infeasible", []
    found = moves_of(made, solve(made.model))
    return "feasible" if found else "unknown", found


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


def _orbits_of(bundles: Bundles, held: Mask, wanted: Mask) -> _Orbits | None:
    """Return the orbits; the n-th chunk of a rank maps to the n-th chunk of the rank's image.

    Return None if the network has no translations, or if they do not map the collective to itself.
    """
    found, counts = found_symmetry(bundles.network), held.sum(axis=1)
    if found is None or (held.sum(axis=0) != 1).any() or (counts != counts[0]).any():
        return None
    moved, shifts = found.network.moved, found.network.shifts
    ranks = moved(np.arange(len(held)), shifts[:, None])
    of_rank = held.nonzero()[1].reshape(len(held), -1)
    chunks = np.empty((len(shifts), held.shape[1]), np.int64)
    for at, image in enumerate(ranks):
        chunks[at, of_rank] = of_rank[image]
        if not np.array_equal(wanted[np.ix_(image, chunks[at])], wanted):
            return None
    row, shift, bundle_of = (np.empty(bundles.network.links, np.int64) for _ in range(3))
    row[found.link[:, shifts]] = np.arange(len(found.link))[:, None]
    shift[found.link[:, shifts]] = shifts
    for at, links in enumerate(bundles.links):
        bundle_of[links] = at
    images = found.link[row[bundles.first], moved(shift[bundles.first], shifts[:, None])]
    return _Orbits(chunks, bundle_of[images])


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


def _repeat(made: TimeExpandedProgram, orbits: _Orbits) -> None:
    """Let every image of a chunk leave over the images of its bundles, by the same columns."""
    network, first = made.expansion.grid.bundles.network, made.expansion.grid.bundles.first
    for departures in list(made.departures.values()):
        images = orbits.chunks[1:, departures.chunk], orbits.bundles[1:, departures.bundle]
        for chunk, at in zip(*(image.tolist() for image in images), strict=True):
            made.departures[chunk, at] = image = replace(departures, chunk=chunk, bundle=at)
            made.into[chunk, int(network.dst[first[at]])].append(image)


def _arrive(made: TimeExpandedProgram) -> None:
    """Let a chunk enter a rank at most once; if wanted, require it, or reward it if elastic."""
    own = set(made.chunks)
    for (chunk, rank), ways in made.into.items():
        if chunk not in own:
            continue
        final = [departures.columns[-1] for departures in ways]
        must = made.wanted[rank, chunk] and not made.elastic
        made.model.row(final, [1.0] * len(final), low=1.0 if must else 0.0, high=1.0)
        if made.wanted[rank, chunk] and made.elastic:
            made.model.cost.update(dict.fromkeys(final, -1.0))


def _follow(made: TimeExpandedProgram) -> None:
    """Let a chunk leave a rank only after it has arrived there."""
    grid = made.expansion.grid
    src, own = grid.bundles.network.src[grid.bundles.first], set(made.chunks)
    for (chunk, at), departures in made.departures.items():
        if made.held[src[at], chunk] or chunk not in own:
            continue
        before: list[int] | None = None
        for tick, column in zip(reversed(departures.ticks), reversed(departures.columns), strict=True):
            came = [
                column
                for way in made.into.get((chunk, int(src[at])), [])
                for column in way.by(tick - int(grid.travel[way.bundle]))
            ]
            # If nothing arrives between two ticks, the later row implies the earlier row.
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
    seen = set()
    for (kind, number), using in users.items():
        carries = 1 if kind == "port" else len(bundles.links[number])
        # The images of a bundle or port would have the same rows.
        key = tuple(sorted(departures.columns[0] for departures in using))
        if len(using) > carries and key not in seen:
            _carry(made, using, carries)
        seen.add(key)


def _carry(made: TimeExpandedProgram, using: list[Departures], carries: int) -> None:
    hold = made.expansion.grid.hold
    instants = sorted({tick for departures in using for tick in departures.ticks})
    for at, tick in enumerate(instants):
        following = instants[at + 1] if at + 1 < len(instants) else None
        # Two images of a chunk may use one port, each with the same column.
        row: Counter[int] = Counter()
        ends = False
        for departures in using:
            now, gone = departures.by(tick), departures.by(tick - int(hold[departures.bundle]))
            if now == gone:
                continue
            row.update(now)
            row.subtract(gone)
            ends |= following is None or gone != departures.by(following - int(hold[departures.bundle]))
        # If no send ends before the next start, the row of the next start implies this row.
        if ends and sum(map(abs, row.values())) > carries:
            made.model.row([*row], [float(count) for count in row.values()], high=float(carries))


def _cross(made: TimeExpandedProgram) -> None:
    """Require a chunk to enter each pair of neighbours of which one wants it and none holds it.

    Otherwise a fractional solution may send halves of a chunk to and fro until they add up to one.
    """
    bundles = made.expansion.grid.bundles
    src, dst = (column[bundles.first].tolist() for column in (bundles.network.src, bundles.network.dst))
    if bundles.network.ranks > _MOST_CUT_RANKS:
        return
    pairs = {(min(ends), max(ends)) for ends in zip(src, dst, strict=True)}
    for chunk in made.chunks:
        for pair in pairs:
            inside = list(pair)
            if made.held[inside, chunk].any() or not made.wanted[inside, chunk].any():
                continue
            ways = [way for rank in pair for way in made.into.get((chunk, rank), [])]
            entering = [way.columns[-1] for way in ways if src[way.bundle] not in pair]
            made.model.row(entering, [1.0] * len(entering), low=1.0)
