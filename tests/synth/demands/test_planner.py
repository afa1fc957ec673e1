"""Demand plans: all data goes, no port is busier than said, the time is near the bound, the judge agrees."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st

from ccctl.arguments import load_network
from probes.base import UsageError
from synth import DemandPlanner, NotApplicableError, family, simulate, verify
from synth.collective import uneven
from synth.demands import serves, synthesize

MIB = 1 << 20
NETWORKS = {
    "rails": lambda: load_network("dgx-h100:2/rail/2", None, None)[0],
    "hosts": lambda: load_network("dgx-a100/4x200:2", None, None)[0],
    "leaves": lambda: family("fat_tree:4x3/2", [1e-6], [25e9]),
    "levels": lambda: family("fat_tree:2x2x3/2", [2e-6], [12e9]),
    "switch": lambda: family("switch:5", [1e-6], [10e9]),
    "no ports": lambda: family("fully_connected:4", [1e-6], [10e9]),
}


@pytest.fixture(scope="module")
def planners():
    return {name: DemandPlanner(network()) for name, network in NETWORKS.items()}


def drawn(ranks, shape, seed):
    rng = np.random.default_rng(seed)
    pairs = ranks**2
    weight = {
        "zipf": lambda: rng.permutation(1 / (1.0 + np.arange(pairs)) ** 1.2),
        "giant": lambda: np.where(np.arange(pairs) == rng.integers(pairs), 4.0 * ranks, 1.0),
        "sparse": lambda: (rng.random(pairs) < 0.25) * rng.random(pairs),
    }[shape]()
    return np.round(weight / max(weight.sum(), 1e-9) * ranks * 16 * MIB).astype(np.int64).reshape(ranks, -1)


def held_s(network, plan):
    """Return the seconds for which the paths hold the busiest port or link, counted hop by hop."""
    rows = {
        (s, d): e for e, (s, d) in enumerate(zip(network.src.tolist(), network.dst.tolist(), strict=True))
    }
    ports, links = np.zeros(len(network.ports) + 1), np.zeros(network.links)
    stops = zip(plan.source, plan.leaves, plan.enters, plan.target, plan.size_bytes, strict=True)
    for *path, size in stops:
        for src, dst in pairwise(path):
            if src != dst:
                link = rows[int(src), int(dst)]
                links[link] += size * network.beta_s_per_byte[link]
                ports[network.ports_of(link)] += size * network.beta_s_per_byte[link]
    return max(ports.max(), links.max())


@given(
    name=st.sampled_from(sorted(NETWORKS)),
    shape=st.sampled_from(["zipf", "giant", "sparse"]),
    seed=st.integers(0, 10**6),
)
@settings(max_examples=40, deadline=None)
@example(name="levels", shape="sparse", seed=313765)
def test_all_data_goes_and_no_port_is_busier_than_said(planners, name, shape, seed):
    planner = planners[name]
    demand = drawn(planner.network.ranks, shape, seed)
    plan = planner.plan(demand)
    np.fill_diagonal(demand, 0)
    sent = np.zeros(demand.shape)
    np.add.at(sent, (plan.source, plan.target), plan.size_bytes)
    assert np.allclose(sent, demand, rtol=1e-9, atol=1e-3)
    if demand.any():
        assert plan.busiest_s == pytest.approx(held_s(planner.network, plan))
        assert plan.bound.time_s <= plan.time_s * (1 + 1e-9) and plan.time_s <= plan.direct_s


@given(
    name=st.sampled_from(sorted(NETWORKS)),
    shape=st.sampled_from(["zipf", "giant", "sparse"]),
    seed=st.integers(0, 10**6),
    chunk_bytes=st.sampled_from([3 * MIB, MIB, 300_000]),
)
@settings(max_examples=30, deadline=None)
def test_the_schedule_of_a_plan_is_proven_and_takes_its_time(planners, name, shape, seed, chunk_bytes):
    network = planners[name].network
    sizes = drawn(network.ranks, shape, seed)
    if not sizes.any():
        return
    collective = uneven("all_to_all", network.ranks, sizes.ravel(), chunk_bytes)
    assert serves(network, collective)
    schedule = synthesize(network, collective, chunk_bytes)
    assert verify(schedule) == []
    assert collective.blocks is not None
    chunks = collective.blocks.chunks.reshape(network.ranks, -1).astype(float)
    plan = planners[name].plan(chunks * chunk_bytes)
    # Whole chunks cannot be divided among paths, and the last of a relayed path arrives some chunks later.
    slack_s = 12 * (network.beta_s_per_byte.max() * chunk_bytes + network.alpha_s.max())
    assert simulate(schedule).time_s <= 1.25 * plan.time_s + slack_s


def test_data_that_stays_on_its_rank_needs_no_sends():
    network = family("fully_connected:3", [1e-6], [10e9])
    collective = uneven("all_to_all", 3, np.diag([MIB, 0, 3 * MIB]).ravel(), MIB)
    schedule = synthesize(network, collective, MIB)
    assert schedule.sends == 0 and verify(schedule) == []


@pytest.mark.parametrize(
    ("spec", "least"), [("dgx-h100:8", 95), ("dgx-h100:8/rail/2", 95), ("fat_tree:16x4/2", 90)]
)
@pytest.mark.parametrize("shape", ["zipf", "giant", "sparse"])
def test_plans_for_64_ranks_are_near_the_bound(spec, least, shape):
    network = family(spec, [1e-6], [25e9]) if "tree" in spec else load_network(spec, None, None)[0]
    planner = DemandPlanner(network)
    for seed in range(3):
        assert planner.plan(drawn(64, shape, seed)).percent_of_optimal > least


def test_one_giant_leaves_its_host_over_all_nics(planners):
    planner = planners["rails"]
    demand = np.zeros((16, 16))
    demand[0, 9] = 256 * MIB
    plan = planner.plan(demand)
    assert plan.relays and set(plan.leaves.tolist()) == set(range(8))
    assert plan.direct_s > 6 * plan.time_s and "times as long" in plan.why


def test_direct_sends_where_relays_gain_nothing(planners):
    plan = planners["switch"].plan(drawn(5, "zipf", 1))
    assert not plan.relays and plan.time_s == plan.direct_s and plan.why.startswith("direct sends")
    # A relay costs latency, so few bytes go directly even where one NIC is the bottleneck.
    demand = np.zeros((16, 16))
    demand[0, 9] = 1000
    assert not planners["rails"].plan(demand).relays


def test_no_demand_takes_no_time(planners):
    plan = planners["leaves"].plan(np.zeros((12, 12)))
    assert plan.time_s == 0.0 and not plan.relays and plan.percent_of_optimal == 100.0


@pytest.mark.parametrize("wrong", [np.zeros((3, 4)), np.full((5, 5), -1.0), np.full((5, 5), np.nan)])
def test_matrices_of_another_shape_or_below_0_are_refused(planners, wrong):
    with pytest.raises(UsageError):
        planners["switch"].plan(wrong)


def test_networks_without_a_link_between_some_ranks_are_refused():
    network = family("ring:4", [1e-6], [25e9])
    with pytest.raises(NotApplicableError, match="needs a link from rank 0 to rank 2"):
        DemandPlanner(network)
    assert not serves(network, uneven("all_to_all", 4, [MIB] * 16, MIB))
    with pytest.raises(NotApplicableError):
        synthesize(network, uneven("all_gather", 4, [MIB] * 4, MIB), MIB)
