"""Rules of times with noise: only what is surely faster takes over."""

from itertools import pairwise

import numpy as np
from hypothesis import given, strategies as st

from exec.library_rules.choice import (
    AlgorithmTimes,
    MedianTime,
    Rule,
    disturbed,
    next_size,
    rules_of,
    timing_of,
)
from exec.library_rules.sweep import OWN, UNTOUCHED, Sweep


def point(size, **times):
    return AlgorithmTimes(
        size,
        {
            name: MedianTime(*time) if isinstance(time, tuple) else MedianTime(time)
            for name, time in times.items()
        },
    )


def test_the_choice_changes_between_the_sizes():
    points = [point(1000, own=1.0, ring=2.0), point(4000, own=2.0, ring=1.0)]
    assert rules_of(points, "own") == (Rule(0, "own"), Rule(2000, "ring"))


def test_a_gain_within_the_noise_changes_nothing():
    points = [point(1000, own=(1.0, 0.2), ring=(0.7, 0.2)), point(4000, own=1.0, ring=0.99)]
    assert rules_of(points, "own") == (Rule(0, "own"),)


def test_the_librarys_choice_comes_back_where_nothing_beats_it():
    points = [point(1, own=2.0, ring=1.0), point(4, own=1.0, ring=1.01), point(16, own=2.0, ring=1.0)]
    assert [rule.algorithm for rule in rules_of(points, "own")] == ["own", "ring", "own", "ring"]


def test_what_is_as_fast_as_the_one_before_does_not_take_over():
    points = [point(1, own=9.0, ring=1.0, tree=1.2), point(4, own=9.0, ring=1.0, tree=0.99)]
    assert rules_of(points, "own") == (Rule(0, "own"), Rule(1, "ring"))


def test_below_the_smallest_size_the_librarys_choice_stays():
    points = [point(1 << 16, own=2.0, ring=1.0)]
    assert rules_of(points, "own") == (Rule(0, "own"), Rule(1 << 16, "ring"))
    assert rules_of(points) == (Rule(0, "ring"),)


def test_a_size_slower_than_a_larger_one_by_far_is_a_disturbance():
    points = [point(64, a=0.05), point(512, a=15.7, b=12.0), point(1024, a=0.61), point(2048, a=1.0)]
    assert disturbed(points) == [1]
    assert disturbed([point(64, a=1.5), point(128, a=1.0)]) == []


def test_a_rule_must_beat_the_untouched_library_by_its_noise_too():
    timings = {
        OWN: MedianTime(18e-3, 1e-3),
        UNTOUCHED: MedianTime(15.7e-3, 2.18e-3),
        "ring": MedianTime(12.0e-3, 1.46e-3),
    }
    sweep = Sweep("x", 2, ("vm",), {"all_reduce": (AlgorithmTimes(1 << 19, timings),)}, {}, {}, {})
    assert sweep.rules() == {"all_reduce": (Rule(0, OWN),)}
    sure = timings | {"ring": MedianTime(5e-3, 1e-3)}
    sweep = Sweep("x", 2, ("vm",), {"all_reduce": (AlgorithmTimes(1 << 19, sure),)}, {}, {}, {})
    assert sweep.rules() == {"all_reduce": (Rule(0, OWN), Rule(1 << 19, "ring"))}


def test_where_the_choice_changes_is_looked_for_until_the_sizes_are_close():
    crossing = 5000
    points = [point(size, own=size, ring=(crossing + size) / 2) for size in (1000, 1 << 20)]
    while (size := next_size(points, "own")) is not None:
        points = sorted(
            [*points, point(size, own=size, ring=(crossing + size) / 2)], key=lambda one: one.size_bytes
        )
    assert len(points) <= 7
    (_, rule) = rules_of(points, "own")
    assert crossing / 2 <= rule.from_bytes <= crossing * 2


def test_the_error_of_a_median_falls_with_the_number_of_times():
    few, many = (timing_of(np.tile([1.0, 2.0, 3.0], times)) for times in (1, 100))
    assert (few.time_s, many.time_s) == (2.0, 2.0)
    assert many.error_s * 9 < few.error_s


@given(st.lists(st.tuples(st.floats(0.1, 9), st.floats(0.1, 9)), min_size=1, max_size=9))
def test_rules_rise_and_differ_from_one_to_the_next(times):
    rules = rules_of([point(4**at, own=own, ring=ring) for at, (own, ring) in enumerate(times, 1)], "own")
    assert rules[0].from_bytes == 0
    for before, after in pairwise(rules):
        assert before.from_bytes < after.from_bytes
        assert before.algorithm != after.algorithm
