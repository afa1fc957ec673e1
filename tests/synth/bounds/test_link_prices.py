"""Savings of a faster link or NIC: by the program itself, and against cases with a known answer."""

from __future__ import annotations

import numpy as np
import pytest
from drawn_examples import chessboard, drawn
from hypothesis import given, settings, strategies as st
from sample_networks import named, networks

from synth.bounds import bounds
from synth.bounds.link_prices import StepDemand, parts_of, step_flow, upgraded, upgrades
from synth.collective import collective
from synth.network import Link, build


@pytest.mark.parametrize(
    ("name", "kind"),
    chessboard(
        ["ring of 5", "mesh", "torus", "switch", "fully connected", "hosts of two"],
        ["all_gather", "reduce_scatter", "all_reduce"],
    ),
)
def test_the_step_of_one_collective_takes_as_long_as_its_proven_bound(name, kind):
    network = named(name)
    shape = collective(kind, network.ranks, network.ranks)
    size = 1 << 20
    least_s = bounds(network, shape, size, fluid=True)[0].time_s - float(network.alpha_s.max())
    assert least_s * 0.99 <= step_flow(network, [StepDemand(shape, size)]).end_s <= least_s * 1.03


def nics(rates, names=None):
    """All pairs of ranks, each behind a NIC of its own rate."""
    ports = names or [f"nic{rank}" for rank in range(len(rates))]
    links = [
        Link(a, b, 0.0, 1 / min(rates[a], rates[b]), (f"{ports[a]} egress", f"{ports[b]} ingress"))
        for a in range(len(rates))
        for b in range(len(rates))
        if a != b
    ]
    return build("nics", [f"h{rank}" for rank in range(len(rates))], links)


def test_the_slow_nic_has_the_price_and_the_saving_is_that_of_its_rate():
    network = nics([4e9, 4e9, 1e9, 4e9])
    shape = collective("all_to_all", 4, 4)
    flow, found = upgrades(network, [StepDemand(shape, 1 << 20)], 1e9)
    assert flow.end_s == pytest.approx(3 * (1 << 20) / 1e9)
    assert [one.part.name for one in found] == ["nic2"]
    assert found[0].flow.end_s == pytest.approx(flow.end_s / 2)


def test_data_released_later_counts_only_from_then_on():
    network = build("pair", ["a", "b"], [Link(0, 1, 0.0, 1e-9), Link(1, 0, 0.0, 1e-9)])
    shape = collective("broadcast", 2, 1)
    demands = [StepDemand(shape, 1_000_000), StepDemand(shape, 1_000_000, release_s=3e-3)]
    flow, found = upgrades(network, demands, 1e9)
    assert flow.end_s == pytest.approx(4e-3)
    # Only the second half of the time is saved: the first collective ends before the second begins.
    assert [(one.part.name, one.flow.end_s) for one in found] == [("link 0-1", pytest.approx(3.5e-3))]


def test_an_upgrade_takes_routes_that_the_present_network_has_no_use_for():
    """The search on the faster network began at the known trees, and ended before it looked for others."""
    ends = [(0, 1, 2), (1, 2, 8), (3, 4, 1), (4, 5, 2), (0, 3, 1), (1, 4, 8), (2, 5, 2)]
    links = [Link(*way, 0.0, 1e-9 / rate) for a, b, rate in ends for way in ((a, b), (b, a))]
    network = build("mesh", list("abcdef"), links)
    pair, every = collective("all_to_all", 6, 1, 0, (0, 4)), collective("all_to_all", 6, 1)
    demands = [StepDemand(pair, 4 << 20, 2e-3), StepDemand(every, (8 << 20) // 6)]
    _, found = upgrades(network, demands, 1e9)
    assert {one.part.name for one in found} == {"link 0-1", "link 3-4"}
    # No end is earlier: rank 0 sends and receives 5/6 of 8 MiB and 4 MiB over links of 3 + 1 GB/s.
    assert all(one.flow.end_s == pytest.approx(3.8448e-3, rel=1e-3) for one in found)


@settings(deadline=None, max_examples=drawn(40))
@given(data=st.data(), network=networks(most_ranks=5))
def test_an_upgrade_slows_no_link_and_speeds_only_those_that_the_part_limits(data, network):
    base = upgraded(network, None, 0.0)
    assert base.problems() == []
    part = data.draw(st.sampled_from(parts_of(network)))
    faster = upgraded(network, part, 1e9)
    assert faster.problems() == []
    assert (faster.beta_s_per_byte <= base.beta_s_per_byte * (1 + 1e-9)).all()
    assert (faster.port_s_per_byte <= base.port_s_per_byte * (1 + 1e-9)).all()
    through = np.isin(network.link_resources[1], part.resources)
    users = np.repeat(np.arange(network.links), np.diff(network.link_resources[0]))[through]
    others = np.setdiff1d(np.arange(network.links), users)
    assert np.allclose(faster.beta_s_per_byte[others], base.beta_s_per_byte[others])


def test_parts_join_both_directions():
    assert [part.name for part in parts_of(nics([1e9, 2e9]))] == ["nic0", "nic1"]
    ring = {f"link {pair}" for pair in ("0-1", "0-4", "1-2", "2-3", "3-4")}
    assert {part.name for part in parts_of(named("ring of 5"))} == ring
