"""Races: schedules with similar predictions run in turn with real data; the fastest is kept.

A model of links predicts a run to within some factor, larger on one host than between hosts. Schedules within
that factor of the best are measured on the ranks that will run them. A library's own collective takes turns
with them: it is the user's alternative, and it may be the fastest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from exec.benchmark.report import Measurement, Report, Row
from exec.benchmark.runner import BenchRequest, Contender
from exec.program import count_of, dtype_of
from probes.base import UsageError
from synth.compiler import lower
from synth.prediction import Table, predicted_s, promising, sort_of
from synth.program import Program
from synth.schedules import Race, Raced, Schedule

__all__ = ["Entrant", "Judged", "entrants", "judged_race", "race_requests"]

_DTYPE = "float32"
# The largest factors between measurement and prediction, on one host and between several, and the most
# schedules to measure.
_ERROR_ON_ONE_HOST, _ERROR, _MOST_ENTRANTS = 3.0, 1.5, 10
# A race has as many iterations as are predicted to fit into _RACE_S, but at least _FEWEST and at most
# _MOST_ITERATIONS. If it has more than _FEWEST, _WARMUP iterations precede it, else one.
_RACE_S, _FEWEST, _MOST_ITERATIONS, _WARMUP = 10.0, 3, 60, 3
# Times within this factor count as about equal. The winner of the previous size wins again if it is within
# this factor of the fastest; a library must be faster by more than this factor.
_ABOUT_EQUAL = 1.03


@dataclass(frozen=True, eq=False)
class Entrant:
    """A schedule that may be the fastest, its program and its predicted seconds."""

    schedule: Schedule
    program: Program
    predicted_s: float

    @property
    def name(self) -> str:
        """Its method and the number of its chunks and sends, which tell entrants apart."""
        one = self.schedule
        return f"{one.method}, {one.collective.chunks} chunks, {one.sends} sends"


@dataclass(frozen=True)
class Judged:
    """The winning schedule, the library with a faster collective ("" if none), and the race."""

    winner: Entrant
    library: str
    race: Race


def entrants(found: Sequence[Schedule], programs: dict[Table, Program] | None = None) -> list[Entrant]:
    """Return the schedules of ``found`` to race at one size: the predicted fastest of each method.

    A schedule that moves the whole buffer as one chunk counts as a method of its own: it has the fewest
    messages. Only a few schedules of each method are compiled and predicted: the fastest in the simulation of
    links, and the ones with the fewest sends. Compiling hundreds would take longer than the race. Among
    schedules that are predicted about equally fast, the one with the fewest sends is raced.

    A schedule is left out if it is too long to predict, if it sends the same in the same order as an earlier
    schedule, or if its predicted time exceeds the least by more than the error of predictions. ``programs``
    keeps compiled programs for the same schedules at other sizes.
    """
    programs = {} if programs is None else programs
    alike: dict[tuple[str, bool], list[Entrant]] = {}
    for table, schedule in promising(found):
        if table not in programs:
            programs[table] = lower(schedule)
        program = programs[table]
        time_s = predicted_s(program, schedule.network, schedule.chunk_bytes)
        alike.setdefault(sort_of(schedule), []).append(Entrant(schedule, program, time_s))
    best = [_shortest_of_soonest(every) for every in alike.values()]
    ranked = sorted(best, key=lambda one: one.predicted_s)
    if not ranked:
        return []
    several = len(set(ranked[0].schedule.network.hosts)) > 1
    most_s = ranked[0].predicted_s * (_ERROR if several else _ERROR_ON_ONE_HOST)
    return _alike([one for one in ranked if one.predicted_s <= most_s])[:_MOST_ENTRANTS]


def _shortest_of_soonest(every: Sequence[Entrant]) -> Entrant:
    """Return the schedule with the fewest sends among those predicted about as fast as the fastest."""
    most_s = min(one.predicted_s for one in every) * _ABOUT_EQUAL
    near = (one for one in every if one.predicted_s <= most_s)
    return min(near, key=lambda one: (one.schedule.sends, one.predicted_s))


def _alike(near: Sequence[Entrant]) -> list[Entrant]:
    """Return the entrants that support the first one's placement: out of place if it can, else in place."""
    out = near[0].program.out_of_place
    return [one for one in near if (one.program.out_of_place if out else one.program.in_place)]


def race_requests(
    sizes: Sequence[tuple[int, Sequence[Entrant]]], library: str = ""
) -> tuple[BenchRequest, ...]:
    """Return a request for each size in bytes: all its entrants in turn, every element checked.

    ``library`` takes part with its own collective, if it has it; "" for none.
    """
    return tuple(_bench_request(size_bytes, found, library) for size_bytes, found in sizes)


def _bench_request(size_bytes: int, found: Sequence[Entrant], library: str) -> BenchRequest:
    if not found:
        raise UsageError(f"no schedule of {size_bytes} bytes is short enough to be raced")
    first = found[0].program
    whole_s = sum(one.predicted_s for one in found)
    iterations = min(_MOST_ITERATIONS, max(_FEWEST, int(_RACE_S / max(whole_s, 1e-9))))
    return BenchRequest(
        contenders=tuple(Contender(one.name, one.program, (one.predicted_s,)) for one in found),
        counts=(count_of(first.collective, size_bytes, dtype_of(_DTYPE).itemsize),),
        dtype=_DTYPE,
        redop="sum",
        warmup=_WARMUP if iterations > _FEWEST else 1,
        iterations=iterations,
        placements=(not first.out_of_place,),
        peers=(library,) if library else (),
        optional_peers=True,
        samples=True,
    )


def judged_race(sizes: Sequence[tuple[int, Sequence[Entrant]]], report: Report) -> Iterator[Judged]:
    """Yield for each size the winner and the whole race; ``report`` answers the requests of `race_requests`.

    In each iteration, each time is divided by the mean over all entrants, because disturbances of memory and
    cores slow all. The least median wins. The winner of the previous size stays unless it is notably slower,
    and a library must be notably faster. A library with wrong elements does not count. Raises RuntimeError if
    a schedule gave wrong elements, which is a bug.
    """
    rows = iter(report.rows)
    before = ""
    for size_bytes, found in sizes:
        own = [next(rows) for _ in found]
        timed = [_raced(entrant, row) for entrant, row in zip(found, own, strict=True)]
        runs = [_shown(row) for row in own]
        for name, theirs in own[0].peers.items():
            if not theirs.wrong:
                timed.append(_timed(name, theirs))
                runs.append(theirs)
        samples_s = np.array([_samples_s(one) for one in runs])
        parts = np.median(samples_s / samples_s.mean(axis=0), axis=1)
        favours = [_favour(one, before, library=at >= len(found)) for at, one in enumerate(timed)]
        order = np.argsort(parts / np.array(favours), kind="stable").tolist()
        before = timed[order[0]].method
        winner = next(found[at] for at in order if at < len(found))
        library = before if order[0] >= len(found) else ""
        entries = tuple(timed[at] for at in order)
        yield Judged(
            winner, library, Race(size_bytes, report.hosts, report.library, samples_s.shape[1], entries)
        )


def _favour(one: Raced, before: str, *, library: bool) -> float:
    """Return the divisor of an entrant's time in the choice of the fastest."""
    if one.method == before:
        return _ABOUT_EQUAL
    return 1 / _ABOUT_EQUAL if library else 1.0


def _raced(entrant: Entrant, row: Row) -> Raced:
    shown, one = _shown(row), entrant.schedule
    if shown.wrong:
        raise RuntimeError(f"{entrant.name}: {shown.wrong} wrong elements")
    timed = _timed(one.method, shown)
    return replace(timed, chunks=one.collective.chunks, sends=one.sends, predicted_s=entrant.predicted_s)


def _timed(method: str, found: Measurement) -> Raced:
    assert found.spread is not None
    return Raced(method, None, None, None, found.p50_s, found.spread.p25_s, found.spread.p75_s)


def _shown(row: Row) -> Measurement:
    assert row.shown is not None
    return row.shown


def _samples_s(found: Measurement) -> tuple[float, ...]:
    """Return the slowest rank's seconds in each iteration."""
    assert found.spread is not None
    return found.spread.samples_s
