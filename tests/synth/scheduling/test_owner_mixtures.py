"""Mixtures by owner are right, and share links in time where schedules of one kind do not."""

import numpy as np
import pytest
from drawn_examples import drawn
from hypothesis import HealthCheck, given, settings, strategies as st
from sample_networks import networks

from synth.bounds import bounds
from synth.check import check
from synth.methods import greedy, paths
from synth.networks import family
from synth.portfolio.planning import planned
from synth.portfolio.request import Request, cut
from synth.scheduling import mixed_by_owner
from synth.simulation import replay

KINDS = ["all_gather", "reduce_scatter", "all_to_all"]


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=drawn(15), suppress_health_check=[HealthCheck.too_slow])
@given(network=networks(), split=st.integers(1, 5), size=st.sampled_from([1 << 12, 1 << 16, 1 << 20]))
def test_mixtures_are_proven_and_no_bound_is_above_them(kind, network, split, size):
    request = Request(network, kind, size)
    whole = cut(request, 1)
    methods = [paths] if kind == "all_to_all" else [paths, greedy]
    schedules = [method.synthesize(network, *whole) for method in methods]
    shape, chunk_bytes = cut(request, split)
    slowest_s = 2 * max(replay(schedule).time_s for schedule in schedules)
    for found in mixed_by_owner(schedules, shape, chunk_bytes, slowest_s):
        timing = replay(found)
        assert check(found, timing) == []
        assert found.collective == shape
        proven = bounds(network, shape, chunk_bytes, fluid=True)
        assert all(bound.time_s <= timing.time_s * (1 + 1e-9) for bound in proven)


def test_each_chunk_takes_a_plan_of_its_owner():
    network = family("ring:5", [1e-6], [50e9])
    request = Request(network, "all_gather", 1 << 16)
    shape, chunk_bytes = cut(request, 1)
    made = greedy.synthesize(network, shape, chunk_bytes)
    found = next(mixed_by_owner([made], *cut(request, 3), 3 * replay(made).time_s))
    for chunk in range(found.collective.chunks):
        links = np.sort(found.link[found.chunk == chunk])
        assert np.array_equal(links, np.sort(made.link[made.chunk == chunk // 3]))


def test_an_all_to_all_takes_paths_in_time():
    """Without mixtures by owner it is at 94 % of the bound: all shortest paths need some links at once."""
    network = family("torus:3x4", [0.7e-6], [50e9])
    found = planned(Request(network, "all_to_all", 1 << 18, jobs=0, solving=False))
    assert found.schedule.outcome.percent_of_optimal > 98
