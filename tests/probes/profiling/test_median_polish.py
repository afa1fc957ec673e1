import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from probes.profiling.median_polish import Suspects, find, matrix_of, polish

SIZES = [3, 4, 5, 8, 16]


def uniform(size, seed, noise=0.01):
    values = np.random.default_rng(seed).normal(np.log(12e9), noise, (size, size))
    np.fill_diagonal(values, np.nan)
    return values


@settings(max_examples=60)
@given(st.sampled_from(SIZES), st.integers(0, 2**32))
def test_a_uniform_cluster_raises_no_alarm(size, seed):
    assert find(uniform(size, seed)) == Suspects()


@settings(max_examples=60)
@given(st.sampled_from(SIZES), st.integers(0, 2**32), st.floats(0.1, 0.8))
def test_a_slow_nic_is_a_sender_or_a_receiver_and_no_link(size, seed, ratio):
    values = uniform(size, seed)
    values[1, :] += np.log(ratio)
    found = find(values)
    assert (set(found.senders), found.receivers, found.links) == ({1}, {}, {})
    assert found.senders[1] == pytest.approx(ratio, rel=0.05)
    found = find(values.T)
    assert (found.senders, set(found.receivers), found.links) == ({}, {1}, {})


@settings(max_examples=60)
@given(st.sampled_from(SIZES), st.integers(0, 2**32), st.floats(0.1, 0.75))
def test_a_slow_link_is_a_link_and_no_nic(size, seed, ratio):
    values = uniform(size, seed)
    values[0, 2] += np.log(ratio)
    found = find(values)
    assert (found.senders, found.receivers, set(found.links)) == ({}, {}, {(0, 2)})
    assert found.links[0, 2] == pytest.approx(ratio, rel=0.08)


def test_a_slow_link_on_a_slow_nic_is_told_from_it():
    values = uniform(8, 1)
    values[3, :] += np.log(0.5)
    values[3, 5] += np.log(0.5)
    found = find(values)
    assert (set(found.senders), set(found.links)) == ({3}, {(3, 5)})
    measured = np.isfinite(values)
    assert set(found.pairs(measured)) == {(3, other) for other in range(8) if other != 3}


@pytest.mark.parametrize(("size", "noise", "ratio"), [(2, 0.01, 0.2), (8, 0.01, 0.95), (8, 0.5, 0.7)])
def test_too_few_too_little_or_too_noisy_is_no_finding(size, noise, ratio):
    values = uniform(size, 1, noise)
    values[0, 1] += np.log(ratio)
    assert find(values) == Suspects()


def test_what_is_within_the_noise_of_one_value_is_no_finding():
    values = uniform(8, 1)
    values[0, 1] += np.log(0.6)
    assert set(find(values, noise=0.05).links) == {(0, 1)}
    assert find(values, noise=0.15) == Suspects()


def test_links_that_were_not_measured_are_no_part_of_it():
    values = uniform(16, 4)
    stride = (np.arange(16)[None, :] - np.arange(16)[:, None]) % 16
    values[~np.isin(stride, [1, 2, 4, 8, 12, 14, 15])] = np.nan
    values[:, 7] += np.log(0.6)
    found = find(values)
    assert (found.senders, set(found.receivers), found.links) == ({}, {7}, {})


@given(st.integers(3, 9), st.integers(0, 2**32))
def test_the_parts_add_up_to_the_whole(size, seed):
    values = uniform(size, seed, noise=0.4)
    parts = polish(values)
    assert np.median(parts.rows) == pytest.approx(0, abs=1e-9)
    total = parts.overall + parts.rows[:, None] + parts.columns[None, :] + parts.residual
    np.testing.assert_allclose(total, values)


def test_a_matrix_holds_logarithms_where_there_are_values():
    values = matrix_of({(0, 1): np.e, (1, 2): 1.0}, 3)
    assert (values[0, 1], values[1, 2]) == (1.0, 0.0)
    assert np.isnan(values).sum() == 7
