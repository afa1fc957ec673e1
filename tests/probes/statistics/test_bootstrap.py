import numpy as np
import pytest
from hypothesis import given, strategies as st

from probes.statistics.bootstrap import in_random_order, least, lowered


def trials(levels, noise=0.01, repetitions=7, seed=1):
    random = np.random.default_rng(seed)
    return {key: level * (1 + noise * random.standard_normal(repetitions)) for key, level in levels.items()}


@pytest.mark.parametrize(
    ("levels", "low"),
    [
        ({"a": 0.5, "b": 1.0, "c": 0.98}, "a"),
        ({"a": 0.5, "b": 0.52, "c": 0.98, "d": 1.0}, "ab"),
        ({"a": 0.5, "b": 0.85, "c": 0.86, "d": 0.84, "e": 1.0, "f": 1.0}, "a"),
        ({"a": 0.99, "b": 1.0, "c": 1.01}, ""),
        ({"a": 0.92, "b": 0.93, "c": 0.94}, ""),
        ({"a": 0.12, "b": 0.5, "c": 1.0, "d": 1.0}, "ab"),
        ({"a": 0.5, "b": 0.5, "c": 0.51}, "abc"),
        ({"a": 0.5}, "a"),
        ({"a": 0.97}, ""),
    ],
)
def test_what_is_lowered_is_told_from_what_is_not(levels, low):
    verdict = lowered(trials(levels), seed=3)
    assert verdict.chosen == set(low)
    assert all(share > 0.9 for share in verdict.confidence.values())
    assert verdict.median.keys() == levels.keys()


def test_a_gap_within_the_spread_is_no_gap():
    noisy = trials({"a": 0.85, "b": 1.0, "c": 1.02}, noise=0.3)
    assert lowered(noisy, seed=3).chosen == frozenset()
    assert min(lowered(noisy, seed=3).confidence.values()) < 1


@pytest.mark.parametrize(
    ("levels", "low"),
    [
        ({0: 10.0, 1: 12.0}, {0}),
        ({0: 14.0, 1: 10.0, 2: 11.0, 3: 11.1, 4: 14.1}, {1}),
        ({0: 10.0, 1: 10.001}, set()),
        ({0: 10.0}, {0}),
    ],
)
def test_the_least_is_told_where_it_stands_apart(levels, low):
    assert least(trials(levels, noise=0.002), seed=3).chosen == low
    assert len(least(trials(levels, noise=0.5), seed=3).chosen) <= 1


@given(
    st.lists(st.floats(0.3, 0.6), min_size=1, max_size=6),
    st.lists(st.floats(0.93, 1.05), min_size=1, max_size=20),
    st.integers(0, 99),
)
def test_two_groups_far_apart_are_always_found(low, high, seed):
    # However uneven the groups: a shared switch halves what is left, and noise is small beside that.
    levels = {**{("low", n): value for n, value in enumerate([low[0]] * len(low))}}
    levels |= {("high", n): value for n, value in enumerate(high)}
    assert lowered(trials(levels, 0.005, seed=seed), seed).chosen == {("low", n) for n in range(len(low))}


@given(st.lists(st.integers(), min_size=1, max_size=9, unique=True), st.integers(1, 9), st.integers(0, 99))
def test_every_key_comes_once_a_repetition_in_an_order_that_the_seed_decides(keys, repetitions, seed):
    order = in_random_order(keys, repetitions, seed)
    assert order == in_random_order(keys, repetitions, seed)
    for at in range(repetitions):
        assert sorted(order[at * len(keys) : (at + 1) * len(keys)]) == sorted(keys)


def test_orders_differ_from_repetition_to_repetition():
    order = in_random_order(range(10), 7, 0)
    assert len({tuple(order[at : at + 10]) for at in range(0, 70, 10)}) > 1
