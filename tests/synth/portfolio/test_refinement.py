"""The best schedules of a search are made better, whatever the number of threads."""

import functools

import pytest

from synth import Request
from synth.check.schedule import check
from synth.networks.families import family
from synth.portfolio.attempts import plans
from synth.portfolio.refinement import Refinement
from synth.simulation.schedule import replay

CASES = [
    ("mesh:2x3", "all_reduce", 1 << 16),
    ("ring:8", "all_to_all", 1 << 16),
    ("switch:6", "broadcast", 1 << 16),
]


def refinement(name, kind, size, jobs):
    """A refinement of what one method finds on this network, the fastest time of that, and its request."""
    request = Request(family(name, [7e-7], [5e10]), kind, size_bytes=size, jobs=jobs)
    collected, best_s = Refinement(request), float("inf")
    for number, plan in enumerate(plans(request)):
        if plan.name == ("paths" if kind == "all_to_all" else "greedy"):
            schedule = plan.run(request, 0.0, number)
            time_s = replay(schedule).time_s
            collected.take(plan, schedule, time_s)
            best_s = min(best_s, time_s)
    return collected, best_s, request


@functools.cache
def refined(case):
    """All that comes out of a case in one thread, as far as the bound allows, and what it had to beat."""
    collected, best_s, request = refinement(*case, 1)
    return list(collected.refined(best_s, 0.0)), best_s, request


@pytest.mark.parametrize("case", CASES)
def test_what_comes_out_is_right_and_the_best_of_it_no_slower(case):
    found, best_s, request = refined(case)
    assert min(time_s for time_s, _, _ in found) <= best_s
    for time_s, plan, schedule in found:
        assert replay(schedule).time_s == time_s and check(schedule) == []
        assert schedule.chunk_bytes == plan.chunk_bytes and schedule.collective == plan.shape
        assert schedule.collective.chunks * schedule.chunk_bytes >= case[-1] // request.network.ranks


@pytest.mark.parametrize("case", CASES)
def test_threads_change_nothing(case):
    one, best_s, _ = refined(case)
    together, _, _ = refinement(*case, 3)
    other = list(together.refined(best_s, 0.0))
    assert [time_s for time_s, _, _ in one] == [time_s for time_s, _, _ in other]
    for (_, _, first), (_, _, second) in zip(one, other, strict=True):
        assert (first.chunk == second.chunk).all() and (first.link == second.link).all()


def test_parts_are_doubled_from_two_on_and_not_after_a_doubling_that_gained_nothing():
    """All ranks of a torus are alike, so no two whole schedules have the same number of chunks."""
    found, _, _ = refined(("torus:3x3", "all_reduce", 1 << 18))
    chunks = [schedule.collective.chunks for _, plan, schedule in found if plan.name != "mixture"]
    # The whole ones come first, and none of them has twice the chunks of one before it.
    first = next(row for row, count in enumerate(chunks) if count // 2 in chunks[:row])
    runs, last = 0, None
    for count in chunks[first:]:
        if last is None or count != 2 * last:
            runs += 1
            assert count // 2 in chunks[:first]
        last = count
    assert 1 <= runs <= 3


def test_at_the_bound_it_is_over():
    collected, best_s, _ = refinement(*CASES[0], 1)
    every, _, _ = refined(CASES[0])
    bound_s = min(time_s for time_s, _, _ in every)
    few = list(collected.refined(best_s, bound_s))
    assert min(time_s for time_s, _, _ in few) < 1.03 * bound_s
    assert [time_s for time_s, _, _ in few] == [time_s for time_s, _, _ in every[: len(few)]]
