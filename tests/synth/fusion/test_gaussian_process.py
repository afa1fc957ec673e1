"""A Gaussian process passes near what it was told, is unsure elsewhere, and hopes where it is unsure."""

import numpy as np

from synth.fusion.gaussian_process import expected_improvement, posterior


def test_it_passes_near_a_smooth_curve_and_is_surest_where_it_was_told():
    at = np.linspace(0, 1, 8)
    curve = np.cos(3 * at)
    observed = (curve - curve.mean()) / curve.std()
    mean, deviation = posterior(at, observed, at)
    np.testing.assert_allclose(mean, observed, atol=0.05)
    between = np.array([0.5 * (at[3] + at[4]), 3.0])
    told, unsure = posterior(at, observed, between)
    wanted = (np.cos(3 * between[0]) - curve.mean()) / curve.std()
    assert abs(told[0] - wanted) < 0.05
    assert unsure[1] > 5 * unsure[0] > 0
    assert (deviation < unsure[1]).all()


def test_expected_improvement_is_the_mean_of_what_is_gained():
    mean, deviation, least = np.array([0.0, 1.0, -0.5]), np.array([1.0, 0.5, 1e-6]), 0.3
    drawn = np.random.default_rng(1).normal(mean, deviation, (200_000, 3))
    gained = np.maximum(least - 0.1 - drawn, 0).mean(axis=0)
    np.testing.assert_allclose(expected_improvement(mean, deviation, least, 0.1), gained, atol=5e-3)
