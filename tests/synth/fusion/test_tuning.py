"""Searches stay in their range, go on as if never interrupted, and find the valley of a curve."""

from dataclasses import replace

import numpy as np
import pytest

from probes.base.columns import floats, longs
from synth.fusion.tuning import STRATEGIES, begun

MIB = 1 << 20


def valley(size_bytes):
    """Seconds with a least at 9 MiB, in the logarithm."""
    return 0.2 + 0.05 * np.log(size_bytes / (9 * MIB)) ** 2


def searched(search, trials, cost=valley):
    for _ in range(trials):
        size = search.next_bytes()
        search = search.then(size, float(cost(size)))
    return search


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_search_begins_as_the_paper_does_and_tries_nothing_twice(strategy):
    found = searched(begun(strategy, seed=3), 12)
    assert found.problems() == []
    assert found.buffer_bytes[0] == 25 * MIB
    assert len(set(found.buffer_bytes.tolist())) == found.trials == 12
    assert found.best == (int(found.buffer_bytes[found.seconds.argmin()]), float(found.seconds.min()))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_an_interrupted_search_goes_on_as_the_whole(strategy):
    whole = searched(begun(strategy, seed=3), 8)
    again = searched(searched(begun(strategy, seed=3), 5), 3)
    assert again.buffer_bytes.tolist() == whole.buffer_bytes.tolist()


@pytest.mark.parametrize("strategy", ["bo", "paper", "grid"])
def test_the_valley_is_found(strategy):
    found = searched(begun(strategy), 21)
    assert found.best[1] <= 1.02 * 0.2
    if strategy == "bo":
        assert searched(begun(strategy), 8).best[1] <= 1.02 * 0.2


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_constant_and_wild_times_are_searched_too(strategy):
    flat = searched(begun(strategy), 6, lambda size: 0.5)
    assert len(set(flat.buffer_bytes.tolist())) == 6
    rng = np.random.default_rng(1)
    wild = searched(begun(strategy), 6, lambda size: 10.0 ** rng.uniform(-8, 8))
    assert wild.problems() == []


def test_a_range_of_few_buffers_is_exhausted_without_an_end():
    found = searched(begun("grid", low_bytes=1, high_bytes=3, first_bytes=2), 5)
    assert set(found.buffer_bytes.tolist()) == {1, 2, 3}
    assert searched(begun("bo", low_bytes=1, high_bytes=3, first_bytes=2), 5).problems() == []


def test_the_seed_decides_what_is_drawn():
    one, two = (searched(begun("random", seed=seed), 5).buffer_bytes.tolist() for seed in (1, 2))
    assert one[1:] != two[1:]


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"low_bytes": 0}, "low_bytes: expected 1"),
        ({"first_bytes": 1}, "first_bytes: expected 1048576"),
        ({"seed": -1}, "seed: expected at least 0"),
        ({"seconds": floats([1.0])}, "seconds: expected 2 values, as many as buffer_bytes"),
        ({"seconds": floats([1.0, 0.0])}, "seconds[1]: expected more than 0"),
        ({"seconds": floats([1.0, np.inf])}, "seconds[1]: expected more than 0"),
        ({"buffer_bytes": longs([25 * MIB, 1])}, "buffer_bytes[1]: expected 1048576 to"),
    ],
)
def test_what_is_wrong_is_told_by_its_path(samples, change, path):
    assert any(problem.startswith(path) for problem in replace(samples["tuning"], **change).problems())
