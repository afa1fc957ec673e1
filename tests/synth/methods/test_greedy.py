"""The greedy near the bounds on named networks, its starts, and its time limit."""

from __future__ import annotations

import pytest
from drawn_examples import chessboard

from synth.bounds.lower_bounds import bounds
from synth.check.schedule import check
from synth.collective import collective
from synth.methods import greedy
from synth.networks.families import family
from synth.schedules import COPY
from synth.simulation.schedule import replay

GIB = 2.0**30


@pytest.mark.parametrize(
    ("case", "kind"),
    chessboard(
        [
            ("dragonfly:9x8", [50 * GIB], 0.95),
            ("dragonfly:9x8", [400e9, 200e9], 0.95),
            ("torus:5x5x5", [50 * GIB], 0.99),
            ("mesh:10x10", [50 * GIB], 0.99),
            ("hypercube:64", [50 * GIB], 0.99),
            ("switch_switch:8x8", [200e9, 50e9], 0.95),
        ],
        ["all_gather", "reduce_scatter"],
    ),
)
def test_the_best_policy_is_near_the_bound(case, kind):
    spec, rates, least = case
    network = family(spec, [5e-7], rates)
    shape = collective(kind, network.ranks)
    bound_s = bounds(network, shape, 1 << 20)[0].time_s
    found = [greedy.synthesize(network, shape, 1 << 20, policy=each) for each in greedy.policies(network)]
    best = min(found, key=lambda schedule: replay(schedule).time_s)
    assert check(best) == []
    assert bound_s / replay(best).time_s >= least


def test_policies_that_prefer_clusters_are_tried_once_where_all_ranks_are_one_cluster():
    def distinct(spec, rates):
        found = greedy.policies(family(spec, [5e-7], rates))
        assert len(set(found)) == len(found)
        return {(each.sample, each.rotate) for each in found}, len(found)

    alike, one_level = distinct("torus:4x4", [50 * GIB])
    every, several_levels = distinct("switch_switch:4x4", [200e9, 50e9])
    assert alike == every
    assert (one_level, several_levels) == (3, len(greedy.POLICIES))


@pytest.mark.parametrize("spec", ["torus:4x4x4", "switch:64", "fat_tree:8x8/2"])
def test_searching_once_for_both_halves_of_an_all_reduce_costs_no_time(spec, monkeypatch):
    network, shape = family(spec, [5e-7], [50 * GIB]), collective("all_reduce", 64)
    twice_s = replay(greedy.synthesize(network, shape, 1 << 20)).time_s
    monkeypatch.setattr(greedy, "_MOST_SENDS", 1)
    once = greedy.synthesize(network, shape, 1 << 20)
    assert check(once) == []
    assert replay(once).time_s <= twice_s * 1.02


def test_sums_of_a_short_buffer_are_owned_by_ranks_near_all_others():
    """The far corner of a mesh is twice as far from a corner as from the middle."""
    network, shape = family("mesh:3x5", [1e-6], [1e9]), collective("all_reduce", 15)
    counts = greedy.centre_counts(network, 64)
    assert counts == [7, 3, 1]
    everywhere, *central = (greedy.synthesize(network, shape, 64, centres=count) for count in (None, *counts))
    for found in central:
        assert check(found) == []
    assert replay(central[-1]).time_s < 0.6 * replay(everywhere).time_s
    middle = central[-1].link[central[-1].op == COPY]
    assert set(network.src[middle[:4]].tolist()) == {7}


@pytest.mark.parametrize("spec", ["torus:3x5", "switch:6", "hypercube:8"])
def test_no_rank_of_a_symmetric_network_is_more_central(spec):
    assert greedy.centre_counts(family(spec, [1e-6], [1e9]), 64) == []


def test_after_the_time_limit_the_first_start_is_the_answer(monkeypatch):
    network = family("dragonfly:5x4", [5e-7], [50 * GIB])
    shape = collective("all_gather", network.ranks)
    limited = greedy.synthesize(network, shape, 1 << 20, seed=3, time_limit_s=0.0)
    whole = greedy.synthesize(network, shape, 1 << 20, seed=3)
    monkeypatch.setattr(greedy, "_MOST_STARTS", 1)
    first = greedy.synthesize(network, shape, 1 << 20, seed=3)
    assert (limited.chunk == first.chunk).all()
    assert (limited.link == first.link).all()
    assert replay(whole).time_s <= replay(first).time_s
    assert check(limited) == []
