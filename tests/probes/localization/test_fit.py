"""Causes: the fewest that explain the deviations, with their severities."""

import itertools

import numpy as np
import pytest
from drawn_examples import drawn
from hypothesis import given, settings, strategies as st

from probes.localization.fit import Ceiling, Family, Sum, explain

HOSTS = 8
PAIRS = np.array(list(itertools.permutations(range(HOSTS), 2)))
SRC, DST = PAIRS.T


def families() -> list[Family]:
    every = np.ones(HOSTS, dtype=np.bool_)
    pair = np.minimum(SRC, DST) * HOSTS + np.maximum(SRC, DST)
    measured = np.bincount(pair, minlength=HOSTS * HOSTS) > 0

    def name(part: int) -> tuple[str, ...]:
        return (str(part),)

    return [
        Family("host", (SRC, DST), HOSTS, name, 0.05, 0.0, every, "{0}"),
        Family("egress", (SRC,), HOSTS, name, 0.05, 0.0, every, "{0}"),
        Family("pair", (pair,), HOSTS * HOSTS, name, 0.1, 4.0, measured, "{0}"),
    ]


def ceiling(values: np.ndarray, sigma: float = 0.02) -> Ceiling:
    return Ceiling(values, np.full(len(values), sigma))


def causes(model: Ceiling | Sum) -> list[tuple[str, int]]:
    return sorted((cause.kind, cause.part) for cause in explain(model, families()).causes)


def test_a_slow_host_is_one_cause_with_its_severity():
    values = np.where((SRC == 3) | (DST == 3), -0.5, 0.0)
    (cause,) = explain(ceiling(values), families()).causes
    assert (cause.kind, cause.part, cause.severity) == ("host", 3, pytest.approx(0.5))
    assert sorted(cause.links.tolist()) == np.flatnonzero(values).tolist()


def test_a_slow_pair_of_a_slow_host_is_a_second_cause_only_if_it_is_slower():
    values = np.where((SRC == 3) | (DST == 3), -0.5, 0.0)
    pair = ((SRC == 3) & (DST == 5)) | ((SRC == 5) & (DST == 3))
    values[pair] = -0.55
    assert causes(ceiling(values)) == [("host", 3)]
    values[pair] = -1.5
    assert causes(ceiling(values)) == [("host", 3), ("pair", 3 * HOSTS + 5)]


def test_of_two_far_hosts_the_latencies_add_up():
    normal = np.full(len(SRC), 1e-5)
    extra = np.array([0, 2e-5, 0, 0, 5e-5, 0, 0, 0])
    model = Sum(normal + extra[SRC] + extra[DST], normal, np.full(len(SRC), 0.03))
    found = {cause.part: cause.severity for cause in explain(model, families()).causes}
    assert found == {1: pytest.approx(2e-5), 4: pytest.approx(5e-5)}


def test_a_difference_that_does_not_matter_is_no_cause():
    values = np.where(SRC == 3, -0.04, 0.0)
    assert causes(ceiling(values, 0.001)) == []


def test_many_slow_links_of_a_host_do_not_make_it_slow_if_others_are_fast():
    values = np.zeros(len(SRC))
    values[np.flatnonzero(SRC == 3)[:4]] = -0.5
    assert ("egress", 3) not in causes(ceiling(values))
    assert ("host", 3) not in causes(ceiling(values))


@settings(max_examples=drawn(60), deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_normal_noise_has_no_cause(seed):
    noise = np.random.default_rng(seed).normal(0, 0.02, len(SRC))
    assert causes(ceiling(noise)) == []


@settings(max_examples=drawn(60), deadline=None)
@given(st.sets(st.integers(0, HOSTS - 1), max_size=5), st.floats(0.2, 2.0), st.integers(0, 2**32 - 1))
def test_slow_hosts_are_named_however_many_they_are(slow, severity, seed):
    mine = np.isin(SRC, list(slow)) | np.isin(DST, list(slow))
    noise = np.random.default_rng(seed).normal(0, 0.02, len(SRC))
    values = np.where(mine, -severity, 0.0) + noise
    assert causes(ceiling(values)) == [("host", host) for host in sorted(slow)]
