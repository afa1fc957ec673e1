import numpy as np
import pytest
from hypothesis import given, strategies as st

from probes.base.numbers import LEAST_BETA_S_PER_BYTE
from probes.statistics.alpha_beta_fit import fit, fit_paces, theil_sen

SIZES = [128 << 10 << step for step in range(6)]


def timed(alpha_s, beta, rng, *, count=20, noise=0.3, spoiled=()):
    """Messages that are only ever late; every one of a ``spoiled`` size is late by more than half."""
    late = {size: rng.exponential(noise, count) for size in SIZES}
    for values in late.values():
        values[rng.integers(count)] = rng.uniform(0, 0.01)
    for size in spoiled:
        late[size] += 0.6
    return {size: list((alpha_s + beta * size) * (1 + late[size])) for size in SIZES}


@given(st.floats(1e-7, 1e-4), st.floats(1e-11, 1e-8), st.integers(0, 2**32))
def test_one_sided_noise_leaves_beta_within_three_percent(alpha_s, beta, seed):
    found = fit(timed(alpha_s, beta, np.random.default_rng(seed)))
    # A hundredth of a late message is a hundredth of its time in flight, too.
    slack = 0.03 + 0.01 * alpha_s / (beta * SIZES[0])
    assert found.sound
    assert found.beta_s_per_byte == pytest.approx(beta, rel=slack)
    assert found.beta_low_s_per_byte <= found.beta_s_per_byte <= found.beta_high_s_per_byte
    assert found.beta_median_s_per_byte >= found.beta_s_per_byte
    assert found.samples == 20 * len(SIZES)


@given(st.sampled_from(SIZES), st.integers(0, 2**32))
def test_a_spoiled_size_does_not_move_beta(spoiled, seed):
    found = fit(timed(1e-6, 1e-9, np.random.default_rng(seed), noise=0.02, spoiled=[spoiled]))
    assert found.beta_s_per_byte == pytest.approx(1e-9, rel=0.1)


def test_exact_times_give_the_exact_line():
    line = theil_sen(SIZES, [2e-6 + 3e-10 * size for size in SIZES])
    assert line.intercept == pytest.approx(2e-6)
    assert line.slope == pytest.approx(3e-10)
    assert fit({size: [2e-6 + 3e-10 * size] for size in SIZES}).residual == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize(
    "seconds",
    [
        {1024: [4e-6], 2048: [3e-6], 4096: [2e-6]},
        {1024: [1e-6], 2048: [1e-6]},
        {4096: [2e-6, 3e-6]},
    ],
)
def test_a_slope_that_is_not_positive_is_refused(seconds):
    found = fit(seconds)
    largest = max(seconds)
    assert not found.sound
    assert found.beta_s_per_byte == pytest.approx(min(seconds[largest]) / largest)


def test_a_line_that_does_not_describe_the_times_leaves_a_residual():
    bent = {size: [1e-9 * size if size < 1 << 20 else 20e-9 * size] for size in SIZES}
    assert fit(bent).residual > 0.2


def test_the_same_samples_give_the_same_interval():
    samples = timed(1e-6, 1e-9, np.random.default_rng(7))
    assert fit(samples) == fit(samples)


def test_the_worst_tenth_is_no_better_than_the_middle_and_the_middle_than_the_best():
    found = fit(timed(1e-6, 1e-9, np.random.default_rng(5)))
    assert found.beta_s_per_byte <= found.beta_median_s_per_byte <= found.beta_p90_s_per_byte
    assert found.beta_p90_s_per_byte == pytest.approx(1.7e-9, rel=0.2)


def test_paces_err_both_ways_and_take_the_middle():
    found = fit_paces(1e-8 * np.random.default_rng(3).normal(1, 0.05, 25))
    assert found.beta_s_per_byte == pytest.approx(1e-8, rel=0.03)
    assert found.beta_low_s_per_byte <= found.beta_s_per_byte <= found.beta_high_s_per_byte
    assert found.beta_s_per_byte < found.beta_p90_s_per_byte
    assert (found.samples, found.sound) == (25, True)


def test_a_pace_that_is_not_positive_is_refused():
    found = fit_paces([-1e-9, -2e-9, 1e-9])
    assert not found.sound
    assert found.beta_s_per_byte == pytest.approx(2e-9)


def test_an_interval_that_reaches_below_nothing_ends_where_profiles_do():
    # Late messages of the smaller sizes only: most slopes that are drawn are negative.
    seconds = {1000: [9e-3, 1e-3, 9e-3, 9e-3], 2000: [2e-3] * 4, 4000: [3e-3, 9e-3, 9e-3, 9e-3]}
    for found in (fit(seconds), fit_paces([-1e-9, -1e-9, 1e-9, 2e-9, 2e-9])):
        assert found.sound
        assert found.beta_low_s_per_byte == LEAST_BETA_S_PER_BYTE
