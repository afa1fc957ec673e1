"""Times of runs that scatter are no change; a step up or down is one, and is told once."""

import math
import random

import pytest
from drawn_examples import drawn
from hypothesis import given, settings, strategies as st

from exec.adaptive.drift import Level

NOISES = {
    "even": lambda chance: math.exp(chance.uniform(-0.15, 0.15)),
    "normal": lambda chance: math.exp(chance.gauss(0, 0.08)),
    # Now and then something else has the cores, or a segment is lost.
    "held up": lambda chance: math.exp(chance.gauss(0, 0.04)) * (2.5 if chance.random() < 0.05 else 1),
}


def alarms(runs_s, level=None):
    """After which runs the level was left, and the last level."""
    level, told = level or Level(), []
    for at, run_s in enumerate(runs_s):
        if level.take(run_s):
            told.append(at)
            level = level.left()
    return told, level


def noisy(chance, noise, usual_s, count):
    return [usual_s * NOISES[noise](chance) for _ in range(count)]


@pytest.mark.parametrize("noise", NOISES)
def test_noise_is_hardly_ever_a_change(noise):
    # An alarm costs a measurement: one in 500 runs is a tenth of those that come in turn every 50.
    runs = 0, 0
    for seed in range(drawn(60)):
        told, _ = alarms(noisy(random.Random(seed), noise, 0.4, 500))
        runs = runs[0] + len(told), runs[1] + 500
    assert runs[0] <= runs[1] / 500


@settings(deadline=None)
@given(
    st.sampled_from(sorted(NOISES)),
    st.integers(0, 10_000),
    st.sampled_from([1 / 4, 1 / 2, 2 / 3, 1.5, 2.0, 4.0]),
    st.integers(12, 60),
)
def test_a_step_is_told_within_few_runs_and_few_times(noise, seed, step, before):
    chance = random.Random(seed)
    _, level = alarms(noisy(chance, noise, 0.4, before))
    told, level = alarms(noisy(chance, noise, 0.4 * step, 60), level)
    # The runs that were held up put it off, those of a level that is not yet learned add one.
    assert told
    assert told[0] < 30
    assert len(told) <= 3
    assert 0.6 < level.usual_s / (0.4 * step) < 1.6


@pytest.mark.parametrize("step", [0.5, 2.0])
def test_a_step_without_noise_is_told_after_three_runs_and_once(step):
    _, level = alarms([0.4] * 9)
    told, level = alarms([0.4 * step] * 100, level)
    assert told == [2]
    assert level.usual_s == pytest.approx(0.4 * step)


def test_two_runs_and_runs_on_both_sides_are_no_change():
    _, level = alarms([0.4] * 9)
    told, level = alarms([1.0, 1.0, 0.4, 0.1, 1.0, 0.1] * 10, level)
    assert not told


def test_small_steps_add_up():
    told, _ = alarms([0.4 * 1.02**at for at in range(40)])
    assert told


def test_what_is_far_from_the_prediction_is_told_once():
    usual = alarms([0.4] * 5)[1]
    told, level = alarms([0.4] * 50, usual.changed(2.0))
    assert told == [2]
    assert level.usual_s == pytest.approx(0.4)
    assert not alarms([0.25] * 50, usual.changed(2.0))[0]


def test_runs_are_held_against_the_prediction_where_they_are_far_from_it():
    level = Level(0.2)
    assert [level.take(0.4) for _ in range(3)] == [False, False, True]
    assert (level.expected_s, level.left().expected_s) == (0.2, pytest.approx(0.4))


def test_what_is_expected_to_take_no_time_is_held_against_nothing():
    level = Level(0.0)
    assert not any(level.take(1e-5) for _ in range(20))


def test_a_level_that_was_learned_from_two_rates_is_left_all_the_same():
    told, level = alarms([0.4, 0.9, 0.5, *[0.9] * 10])
    assert told == [5]
    assert level.usual_s == pytest.approx(0.9)
