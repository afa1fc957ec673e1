import itertools

import numpy as np
import pytest

from probes.columns import floats
from probes.findings import asymmetric, describe, noisy, outliers

PAIRS = list(itertools.permutations(range(6), 2))


def betas(seed=1, spread=0.01):
    return 1e-10 * np.random.default_rng(seed).uniform(1, 1 + spread, len(PAIRS))


@pytest.mark.parametrize(
    ("factor", "found"), [(1.0, False), (1.08, False), (1.3, True), (5.0, True), (0.5, False)]
)
def test_an_outlier_is_slow_beyond_noise_and_by_a_tenth(factor, found):
    beta = betas()
    beta[7] *= factor
    assert outliers(floats(beta), ["host"] * len(PAIRS)) == ([7] if found else [])


def test_a_wide_spread_hides_a_small_effect():
    beta = betas(spread=1.0)
    beta[7] = 1.3 * np.median(beta)
    assert outliers(floats(beta), ["host"] * len(PAIRS)) == []


def test_links_are_judged_among_their_kind():
    kinds = ["network" if 5 in pair else "host" for pair in PAIRS]
    beta = betas() * [10.0 if kind == "network" else 1.0 for kind in kinds]
    assert outliers(floats(beta), kinds) == []


def test_few_links_have_no_outliers():
    assert outliers(floats([1e-10, 5e-10]), ["host", "host"]) == []


@pytest.mark.parametrize(
    ("best", "middle", "high", "found"),
    [
        (1.5, 1.5, 1.01, [0]),
        (1.5, 1.5, 1.6, []),
        (1.5, 1.0, 1.01, []),
        (1.05, 1.5, 1.01, []),
    ],
)
def test_a_pair_is_asymmetric_at_best_in_the_middle_and_beyond_its_intervals(best, middle, high, found):
    columns = [floats([first, 1.0]) for first in (best, middle, best)]
    assert asymmetric([(0, 1), (1, 0)], *columns, floats([best, high])) == found


def test_a_link_without_its_way_back_is_not_asymmetric():
    one = floats([1.0])
    assert asymmetric([(0, 1)], one, one, one, one) == []


def test_noisy_is_twice_its_best():
    assert noisy(floats([1, 1, 1]), floats([1, 2.5, 1]), floats([1.5, 2.5, 3])) == [1, 2]


def test_a_sentence_names_the_worst_first_and_counts_the_rest():
    times = floats(np.linspace(1, 3, len(PAIRS)))
    text = describe("slow", range(len(PAIRS)), PAIRS, times)
    assert text.startswith(f"{len(PAIRS)} links slow: 5 → 4 (3.00 times)")
    assert text.endswith(f"and {len(PAIRS) - 6} more")
    assert describe("slow", [0], PAIRS, times) == "1 link slow: 0 → 1 (1.00 times)"
