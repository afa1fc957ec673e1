"""One process or several: the same choice; and a time limit that is kept."""

import itertools
import time
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest

from synth import Request, synthesize
from synth.networks.families import family
from synth.portfolio import attempt_runner, size_sweep as sweeping
from synth.portfolio.plain import fastest_plain

MESH = family("mesh:2x2", [1e-6], [50e9])


@pytest.fixture
def eager(monkeypatch):
    """Processes for the smallest work."""
    monkeypatch.setattr(attempt_runner, "_WORTH_PROCESSES_S", -1.0)
    monkeypatch.setattr(attempt_runner, "_UNSTOPPABLE_S", -1.0)
    monkeypatch.setattr(sweeping, "_WORTH_PROCESSES_S", -1.0)


def told(found):
    schedule = found.schedule
    columns = [schedule.chunk, schedule.link, schedule.op]
    return schedule.method, schedule.collective, schedule.chunk_bytes, [one.tobytes() for one in columns]


@pytest.mark.parametrize("kind, size, seed", [("all_reduce", 1 << 16, 0), ("all_to_all", 1 << 20, 9)])
def test_the_choice_does_not_depend_on_the_number_of_processes(eager, kind, size, seed):
    request = Request(MESH, kind, size_bytes=size, seed=seed, solving=False)
    alone, together = synthesize(request), synthesize(Request(**{**vars(request), "jobs": 2}))
    assert told(alone) == told(together)
    assert alone.attempts == together.attempts
    assert together.schedule.network is MESH


def test_a_sweep_does_not_depend_on_it_either(eager):
    sizes = (1 << 10, 1 << 22)
    alone = synthesize(Request(MESH, "all_reduce", sizes=sizes)).schedule
    together = synthesize(Request(MESH, "all_reduce", jobs=2, sizes=sizes)).schedule
    assert len(alone.ranges) > 1
    assert (alone.ranges, alone.points) == (together.ranges, together.points)
    pairs = zip(alone.algorithms, together.algorithms, strict=True)
    assert all(np.array_equal(a.link, b.link) and np.array_equal(a.chunk, b.chunk) for a, b in pairs)


@pytest.mark.parametrize("jobs", [0, pytest.param(1, marks=pytest.mark.long), 2])
def test_without_any_time_the_first_schedule_is_taken(eager, jobs):
    request = Request(MESH, "all_reduce", size_bytes=1 << 24, time_limit_s=1e-9, jobs=jobs, solving=False)
    found = synthesize(request)
    everything = synthesize(Request(MESH, "all_reduce", size_bytes=1 << 24, solving=False))
    assert 1 <= len([one for one in found.attempts if one.time_s is not None]) < len(everything.attempts)
    assert found.schedule.outcome.time_s >= everything.schedule.outcome.time_s


@pytest.mark.parametrize("jobs", [0, 2])
def test_a_sweep_without_time_still_has_every_size(eager, jobs):
    sizes = (1 << 10, 1 << 16, 1 << 22)
    selection = synthesize(Request(MESH, "all_gather", time_limit_s=1e-9, jobs=jobs, sizes=sizes)).schedule
    assert [one.size_bytes for one in selection.points] == list(sizes)
    assert selection.problems() == []


class HandedOutError(Exception):
    """Stands for the start of processes."""


@pytest.mark.parametrize(("clock", "long"), [("perf_counter", False), ("thread_time", True)])
def test_processes_are_started_for_long_work_and_not_on_a_busy_machine(monkeypatch, clock, long):
    def refuse(jobs, work):
        raise HandedOutError

    # An hour passes on the clock from each look at it to the next.
    passing = itertools.count(0.0, 3600.0)
    clocks = {"perf_counter": time.perf_counter, "thread_time": lambda: 0.0, clock: lambda: next(passing)}
    monkeypatch.setattr(attempt_runner, "time", SimpleNamespace(**clocks))
    request = Request(MESH, "all_reduce", size_bytes=1 << 16, jobs=2, solving=False)
    with pytest.raises(HandedOutError) if long else nullcontext():
        fastest_plain(request, pools=refuse)
