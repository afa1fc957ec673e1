"""Times several calls in turn, so that disturbances affect all alike, and summarizes their times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, get_args

import numpy as np

from exec.benchmark.clocks import line_up
from exec.benchmark.report import Average, Measurement, Spread
from exec.peers import Call
from exec.program import Array
from probes.base import Progress

__all__ = ["AVERAGES", "Repetitions", "interleaved", "measurement"]

AVERAGES: tuple[Average, ...] = get_args(Average)


@dataclass(frozen=True)
class Repetitions:
    """The repetitions of a call: ``warmup`` turns, then ``iterations`` timed turns of ``aggregate`` calls."""

    warmup: int
    iterations: int
    aggregate: int = 1


def interleaved(
    comm: Any,
    calls: Sequence[Call],
    names: Sequence[str],
    effort: Repetitions,
    progress: Progress,
    keep: Callable[[int, int, float, float], None] = lambda number, iteration, begin_s, end_s: None,
) -> Array:
    """Return this rank's seconds a call, as (calls, iterations); all ranks meet before every turn.

    The order of the calls changes in each iteration, alike on all ranks. In a fixed order, one call would
    always find the caches as the library's call left them, which cost up to 40 %. ``progress`` gets the name
    of each turn, so that a rank which hangs can say where. ``keep`` gets the call, the iteration, the start
    and the end of each timed turn.
    """
    times_s = np.zeros((len(calls), effort.iterations))
    turns = np.random.default_rng(len(calls))
    for iteration in range(-effort.warmup, effort.iterations):
        for number in turns.permutation(len(calls)).tolist():
            call = calls[number]
            progress.waiting(-1, names[number])
            call.prepare()
            line_up(comm)
            begin_s = perf_counter()
            for _ in range(effort.aggregate):
                call.run()
            end_s = perf_counter()
            call.settle()
            if iteration >= 0:
                times_s[number, iteration] = (end_s - begin_s) / effort.aggregate
                keep(number, iteration, begin_s, end_s)
    return times_s


def measurement(
    comm: Any,
    own_s: Array,
    size_bytes: int,
    factor: float,
    wrong: int | None,
    *,
    average: Average = "slowest",
    samples: bool = False,
) -> Measurement:
    """Return one measurement from all ranks' seconds; collective, the same on every rank.

    ``average`` says whose seconds count in each iteration. ``factor`` is bus over algorithm bandwidth.
    """
    every_s = np.array(comm.allgather(own_s))
    over: dict[Average, Callable[[Array], Array]] = {
        "rank 0": lambda ranks: ranks[0],
        "average": lambda ranks: ranks.mean(axis=0),
        "fastest": lambda ranks: ranks.min(axis=0),
        "slowest": lambda ranks: ranks.max(axis=0),
    }
    found_s = over[average](every_s)
    minimum, p25, p50, p75, p99, maximum = np.percentile(found_s, (0, 25, 50, 75, 99, 100)).tolist()
    algbw_gbs = size_bytes / p50 / 1e9
    rank_s = np.median(every_s, axis=1)
    return Measurement(
        time_s=p50,
        p50_s=p50,
        p99_s=p99,
        slowest_rank=int(np.argmax(rank_s)),
        algbw_gbs=algbw_gbs,
        busbw_gbs=algbw_gbs * factor,
        wrong=wrong,
        spread=Spread(
            minimum,
            p25,
            p75,
            maximum,
            float(found_s.std()),
            len(found_s),
            tuple(found_s.tolist()) if samples else (),
        ),
        rank_s=tuple(rank_s.tolist()),
        mean_s=float(found_s.mean()),
    )
