import ast
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from probes.statistics import Steady

# Values that are judged, values from which a level is learned, and the least share that counts.
WINDOW, LEARN, EFFECT = 12, 40, 0.10
TRACES = Path(__file__).parents[4] / "shared" / "data" / "topologies" / "traces"


def noisy(levels, seed, spread=0.03):
    """Values around each (level, how many), in order."""
    rng = np.random.default_rng(seed)
    return np.concatenate([level * np.exp(rng.normal(0, spread, count)) for level, count in levels])


def shifts(values):
    """Each change of the level: the number of the value that completes it, the level before and after."""
    values = list(values)
    first = np.log(values[:LEARN])
    level = np.median(first)
    sigma = 1.4826 * np.median(np.abs(first - level))
    steady = Steady(window=WINDOW, learn=LEARN, effect=EFFECT, level=np.exp(level), sigma=sigma)
    found = []
    for at, value in enumerate(values):
        before = steady.level
        if steady.add(value):
            found.append((at, before, steady.level))
    return found


@given(st.integers(0, 2**32), st.floats(0.001, 0.3))
def test_a_steady_series_has_no_shifts(seed, spread):
    assert shifts(noisy([(10.0, 600)], seed, spread)) == []


@given(st.integers(0, 2**32), st.floats(0.2, 0.8))
def test_a_sustained_drop_and_its_end_are_two_shifts(seed, share):
    drop, back = shifts(noisy([(10.0, 100), (10.0 * share, 120), (10.0, 100)], seed))
    assert [drop[0], back[0]] == pytest.approx([108, 228], abs=6)
    assert drop[2] / drop[1] == pytest.approx(share, rel=0.1)
    assert back[2] == pytest.approx(10.0, rel=0.1)


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


@given(st.integers(0, 2**32), st.floats(0.001, 0.05))
def test_six_values_are_enough_if_their_deviation_is_known(seed, spread):
    def known(sigma):
        return Steady(window=6, learn=LEARN, effect=EFFECT, level=10.0, sigma=sigma)

    values = noisy([(10.0, 8), (5.0, 8)], seed, spread)
    steady = known(spread)
    assert [at for at, value in enumerate(values) if steady.add(value)] == [12]
    assert steady.level == pytest.approx(5.0, rel=0.2)
    assert not any(map(known(0.5).add, values))


def trace(name):
    path = TRACES / name
    if not path.exists():
        pytest.skip(f"{path} is not there")
    return path.read_text()


def test_a_cloud_host_that_uses_up_its_burst_drops_once():
    lines = trace("adapcc-bandwidth-c5large-group.txt").splitlines()
    ((at, before, now),) = shifts(float(re.search(r"([\d.]+) Gbits/sec", line)[1]) for line in lines)
    assert 579 <= at < 579 + WINDOW
    assert (before, now) == (pytest.approx(9.54), pytest.approx(4.98, rel=0.01))


def test_a_noisy_cloud_link_is_told_for_its_one_long_dip_and_not_for_hundreds_of_short_ones():
    values = np.array(ast.literal_eval(trace("adapcc-bandwidth-hw.txt")))
    # Values over 25 are Mbit/s.
    values = np.where(values > 25, values / 1000, values)
    assert (values < 0.6 * np.median(values)).sum() > 300
    drop, back = shifts(values)
    assert drop[2] / drop[1] < 0.6 < 1.6 < back[2] / back[1]
    assert 10 < back[0] - drop[0] < 60
    assert np.median(values[drop[0] : back[0] - WINDOW]) < 0.6 * np.median(values)


def test_a_cloud_latency_keeps_its_level():
    values = np.array(ast.literal_eval(trace("adapcc-latency-hw.txt")))
    assert values.max() > 2 * np.median(values)
    assert shifts(values) == []
