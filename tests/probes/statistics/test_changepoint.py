import ast
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from probes.statistics.changepoint import LEARN, WINDOW, Steady, shifts

TRACES = Path(__file__).parents[4] / "shared" / "data" / "topologies" / "traces"


def noisy(levels, seed, spread=0.03):
    """Values around each (level, how many), in order."""
    rng = np.random.default_rng(seed)
    return np.concatenate([level * np.exp(rng.normal(0, spread, count)) for level, count in levels])


@given(st.integers(0, 2**32), st.floats(0.001, 0.3))
def test_a_steady_series_has_no_shifts(seed, spread):
    assert shifts(noisy([(10.0, 600)], seed, spread)) == []


@given(st.integers(0, 2**32), st.floats(0.2, 0.8))
def test_a_sustained_drop_and_its_end_are_two_shifts(seed, share):
    found = shifts(noisy([(10.0, 100), (10.0 * share, 120), (10.0, 100)], seed))
    assert len(found) == 2
    assert [shift.at for shift in found] == pytest.approx([100, 220], abs=6)
    assert found[0].ratio == pytest.approx(share, rel=0.1)
    assert found[1].now == pytest.approx(10.0, rel=0.1)


@given(st.integers(0, 2**32), st.integers(1, WINDOW // 2))
def test_a_few_bad_values_are_no_shift(seed, length):
    values = noisy([(10.0, 300)], seed)
    values[150 : 150 + length] *= 0.1
    values[LEARN // 2] *= 0.1
    assert shifts(values) == []


def test_a_change_within_what_the_series_wanders_is_none():
    assert shifts(noisy([(10.0, 200), (8.5, 200)], 1, spread=0.3)) == []
    assert len(shifts(noisy([(10.0, 200), (8.5, 200)], 1, spread=0.01))) == 1
    assert shifts(noisy([(10.0, 200), (9.5, 200)], 1, spread=0.001)) == []


def test_values_may_come_one_by_one():
    steady = Steady()
    values = noisy([(10.0, 100), (5.0, 60)], 3)
    answers = [steady.add(value) for value in values]
    assert [answer for answer in answers if answer] == shifts(values)
    told = next(at for at, answer in enumerate(answers) if answer)
    assert 100 <= told < 100 + WINDOW
    assert steady.level == pytest.approx(5.0, rel=0.05)
    assert Steady().level is None


@given(st.integers(0, 2**32), st.floats(0.001, 0.05))
def test_a_level_that_is_known_need_not_be_learned(seed, spread):
    values = noisy([(10.0, 8), (5.0, 8)], seed, spread)
    known = Steady(window=6, level=10.0, sigma=spread)
    answers = [known.add(value) for value in values]
    (shift,) = (answer for answer in answers if answer)
    assert (shift.before, shift.at) == (pytest.approx(10.0), 8)
    assert known.level == pytest.approx(5.0, rel=0.2)
    assert not any(map(Steady(window=6, level=10.0, sigma=0.5).add, values))


def trace(name):
    path = TRACES / name
    if not path.exists():
        pytest.skip(f"{path} is not there")
    return path.read_text()


def test_a_cloud_host_that_uses_up_its_burst_drops_once():
    lines = trace("adapcc-bandwidth-c5large-group.txt").splitlines()
    (shift,) = shifts(float(re.search(r"([\d.]+) Gbits/sec", line)[1]) for line in lines)
    assert (shift.at, shift.before) == (579, pytest.approx(9.54))
    assert shift.now == pytest.approx(4.98, rel=0.01)


def test_a_noisy_cloud_link_is_told_for_its_one_long_dip_and_not_for_hundreds_of_short_ones():
    values = np.array(ast.literal_eval(trace("adapcc-bandwidth-hw.txt")))
    # Values over 25 are Mbit/s.
    values = np.where(values > 25, values / 1000, values)
    assert (values < 0.6 * np.median(values)).sum() > 300
    drop, back = shifts(values)
    assert drop.ratio < 0.6 < 1.6 < back.ratio
    assert 10 < back.at - drop.at < 60
    assert np.median(values[drop.at : back.at]) < 0.6 * np.median(values)


def test_a_cloud_latency_keeps_its_level():
    values = np.array(ast.literal_eval(trace("adapcc-latency-hw.txt")))
    assert values.max() > 2 * np.median(values)
    assert shifts(values) == []
