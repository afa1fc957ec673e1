"""NCCL's choices are the best where links carry what it believes, and not where they do not."""

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from probes.base.columns import floats
from probes.base.errors import UsageError
from synth import family
from synth.nccl_tuning import NcclWorld, plan_tuning
from synth.nccl_tuning.cost_model import PROTOCOLS, BusRates, times_us
from synth.networks.dgx import pod
from synth.rank_order import algorithm_of, plan_order

SIZES = [1 << bit for bit in range(10, 33, 2)]


def slowed(network, factor, src, dst=None):
    """A network whose links from one host, or between two, carry less."""
    hosts, beta = network.host_of, network.beta_s_per_byte.copy()
    rows = (hosts[network.src] == src) & (hosts[network.dst] != src)
    if dst is not None:
        ends = [(src, dst), (dst, src)]
        rows = sum((hosts[network.src] == a) & (hosts[network.dst] == b) for a, b in ends).astype(bool)
    beta[rows] *= factor
    return replace(network, beta_s_per_byte=floats(beta))


@pytest.mark.parametrize("name", ["dgx-1", "dgx-a100:2", "dgx-h100:4", "dgx-b200"])
def test_on_nominal_links_the_default_is_the_best(name):
    network = pod(name)
    world = NcclWorld(network.ranks, len(set(network.hosts)), "hopper", channels=16)
    plan = plan_tuning(network, world, SIZES)
    assert (plan.changed, plan.most_gain) == (0, 1.0)


def test_one_slow_uplink_makes_trees_faster_than_the_ring_that_nccl_takes():
    network = pod("dgx-a100:4")
    plan = plan_tuning(
        slowed(network, 8, 0), NcclWorld(32, 4, "ampere", channels=24), SIZES, believed=network
    )
    large = plan.choices["all_reduce"][-1]
    assert (large.default, large.best) == ("ring:simple", "tree:simple")
    assert 1.5 < large.gain < 2.0
    # Rings must pass the slow uplink; half of a tree's data need not.
    assert plan.real.ring_gbs == pytest.approx(plan.believed.ring_gbs / 8, rel=0.01)
    assert plan.real.tree_gbs == pytest.approx(plan.believed.tree_gbs / 4, rel=0.01)


def test_an_order_that_avoids_the_slow_pair_leaves_nothing_to_tune_in_large_buffers():
    network = slowed(pod("dgx-a100:4"), 8, 0, 1)
    order = plan_order(network, algorithm_of("nccl", "all_reduce"), 1 << 32)
    world = NcclWorld(32, 4, "ampere", channels=24)
    assert order.gain > 4
    given = plan_tuning(network, world, [1 << 32])
    ordered = plan_tuning(network, world, [1 << 32], order=order.ranks)
    assert ordered.real.ring_gbs > 4 * given.real.ring_gbs
    assert ordered.changed == 0


def test_without_a_belief_links_are_thought_as_fast_as_the_fastest_of_their_kind():
    network = pod("dgx-a100:4")
    world = NcclWorld(32, 4, "ampere", channels=24)
    slow = slowed(network, 8, 0)
    assert plan_tuning(slow, world, SIZES) == plan_tuning(slow, world, SIZES, believed=network)


@given(
    ranks=st.integers(1, 4),
    hosts=st.integers(1, 9),
    ring=st.floats(1, 500),
    size=st.integers(1, 1 << 33),
    kind=st.sampled_from(("all_reduce", "all_gather", "reduce_scatter")),
)
def test_times_grow_with_the_size_and_fall_with_the_rate(ranks, hosts, ring, size, kind):
    world = NcclWorld(ranks * hosts + (ranks * hosts == 1), hosts, "ampere", channels=8)
    one = times_us(kind, world, BusRates(ring, ring), size)
    faster = times_us(kind, world, BusRates(2 * ring, 2 * ring), size)
    assert set(one) == {
        f"{algorithm}:{protocol}"
        for algorithm in (("ring", "tree") if kind == "all_reduce" else ("ring",))
        for protocol in PROTOCOLS
    }
    assert all(0 < faster[name] <= one[name] for name in one)
    slower = times_us(kind, world, BusRates(ring, ring), 8 * size)
    assert all(slower[name] > one[name] for name in one if name.startswith("ring"))


def test_hosts_with_different_numbers_of_ranks_are_refused():
    network = family("ring:3", [1e-6], [1e9])
    with pytest.raises(UsageError, match="equally many ranks"):
        plan_tuning(network, NcclWorld(3, 2, "ampere"), SIZES)
