"""The time-expanded network holds every start that a schedule needs; parallel links are one bundle."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from drawn_examples import drawn
from hypothesis import given, settings, strategies as st
from sample_networks import named, networks

from synth.collective import collective
from synth.methods import greedy
from synth.network import Link, build
from synth.networks.families import family
from synth.simulation.schedule import replay
from synth.tacos_ilp.time_expanded_network import UNREACHED, bundle, expand, grid_of


def test_links_alike_are_one_bundle_and_others_are_not():
    links = [Link(0, 1, 0, 1e-9), Link(0, 1, 0, 1e-9), Link(0, 1, 0, 2e-9), Link(1, 0, 0, 1e-9)]
    found = bundle(build("parallel", ["a", "b"], links))
    assert sorted(len(rows) for rows in found.links) == [1, 1, 2]
    assert sorted(np.concatenate(found.links).tolist()) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("alpha_s", "beta", "exact"), [(0.0, 1e-9, True), (5e-7, 1e-9, True), (1e-6 / 3, 1.234567891e-9, False)]
)
def test_a_grid_is_exact_where_one_tick_divides_all_times(alpha_s, beta, exact):
    found = bundle(build("pair", ["a", "b"], [Link(0, 1, alpha_s, beta), Link(1, 0, 0.0, 2e-9)]))
    grid = grid_of(found, 1000, 1e-4)
    assert grid.exact is exact
    rounded_s = grid.travel * grid.tick_s
    assert (rounded_s <= found.network.travel_s(1000)[found.first] * (1 + 1e-6)).all()


def test_ranks_without_a_way_are_out_of_reach():
    network = build("one way", ["a", "b"], [Link(0, 1, 0, 1e-9)])
    grid = grid_of(bundle(network), 1000, 1e-3)
    assert grid.distance[1, 0] == UNREACHED
    assert grid.distance[0, 1] * grid.tick_s == pytest.approx(1e-6)


@settings(max_examples=drawn(40))
@given(network=networks(most_ranks=5), chunk_bytes=st.sampled_from([1000, 1 << 16]))
def test_every_start_of_a_schedule_is_an_instant(network, chunk_bytes):
    # The program holds ports for as long as links.
    network = replace(network, queues=False)
    shape = collective("all_gather", network.ranks)
    schedule = greedy.synthesize(network, shape, chunk_bytes)
    timing = replay(schedule)
    bundles = bundle(network)
    grid = grid_of(bundles, chunk_bytes, timing.time_s)
    expansion = expand(grid, shape.held(), grid.ticks(timing.time_s), most=100_000)
    if not grid.exact or expansion is None:
        return
    of_link = {int(link): at for at, rows in enumerate(bundles.links) for link in rows}
    for link, start_s in zip(schedule.link.tolist(), timing.start_s.tolist(), strict=True):
        ticks = expansion.starts[of_link[link]] * grid.tick_s
        assert np.abs(ticks - start_s).min() <= 1e-6 * timing.time_s


def test_too_many_instants_are_refused_and_thinning_keeps_the_first():
    network = named("ring of 5")
    shape = collective("all_gather", 5)
    grid = grid_of(bundle(network), 1 << 20, 1.0)
    assert expand(grid, shape.held(), grid.ticks(1.0), most=4) is None
    expansion = expand(grid, shape.held(), grid.ticks(6e-3))
    thin = expansion.thinned(1)
    assert 0 < thin.instants <= expansion.instants
    for some, every in zip(thin.starts, expansion.starts, strict=True):
        assert set(some.tolist()) <= set(every.tolist())
        assert some[0] == every[0]


def test_nothing_arrives_after_the_horizon():
    network = family("mesh:3x3", [5e-7], [50e9])
    grid = grid_of(bundle(network), 1 << 20, 1e-4)
    expansion = expand(grid, collective("all_gather", 9).held(), grid.ticks(1e-4))
    assert expansion.arrivals.max() <= expansion.horizon
    assert (np.diff(expansion.arrivals) > 0).all()
