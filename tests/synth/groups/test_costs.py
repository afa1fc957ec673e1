"""Costs on a network: Table I where all is even, and what ports and trunks add."""

import pytest
from racked_networks import SIZE_BYTES, racked

from synth.groups.costs import AveragingCosts
from synth.networks.families import family

ALPHA_S, BETA, RANKS, LAYERS = 5e-6, 1e-9, 8, 16
EVEN = AveragingCosts(
    family(f"switch:{RANKS}", [ALPHA_S], [1 / BETA]), (tuple(range(RANKS)),), SIZE_BYTES, LAYERS
)


def test_an_even_network_has_the_times_of_table_one():
    latency_s, each_s = LAYERS * ALPHA_S, SIZE_BYTES * BETA
    rounds = 2 * (RANKS - 1)
    assert EVEN.ring_s() == pytest.approx(rounds * latency_s + rounds * each_s / RANKS)
    # One parameter server on each rank: P = N.
    assert EVEN.parameter_server_s() == pytest.approx(rounds * latency_s + rounds * each_s / RANKS)
    best = min(2 * (3 + k) * (latency_s + each_s / k) for k in range(1, 2000))
    assert EVEN.double_tree_s() == pytest.approx(best, rel=0.3)
    assert EVEN.gossip_s() == pytest.approx(2 * latency_s + each_s)


def test_a_pair_sends_half_of_what_two_of_a_long_ring_do():
    pair, whole = EVEN.division_s(((0, 1), tuple(range(2, 8))))
    assert pair == pytest.approx(2 * LAYERS * ALPHA_S + SIZE_BYTES * BETA)
    assert whole > pair


def test_groups_of_racks_have_the_consistent_times_of_table_two():
    network = racked([4, 4], inside=BETA, across=2 * BETA, alpha_s=ALPHA_S)
    costs = AveragingCosts(network, ((0, 1, 2, 3), (4, 5, 6, 7)), SIZE_BYTES)
    crossing, one, other = costs.division_s(((0, 4), (1, 2, 3), (5, 6, 7)))
    # S·beta2 for two on a ring (the table prints 2), 2(G − 2)/(G − 1)·S·beta1 and 2(G − 2) alphas inside.
    assert crossing == pytest.approx(2 * ALPHA_S + SIZE_BYTES * 2 * BETA)
    assert one == other == pytest.approx(4 * ALPHA_S + 4 / 3 * SIZE_BYTES * BETA)
    assert costs.ring_s() == pytest.approx(14 * ALPHA_S + 14 / 8 * SIZE_BYTES * 2 * BETA)
    serial_s = 2 * (4 + 2 - 2) * ALPHA_S + 6 / 4 * SIZE_BYTES * BETA + SIZE_BYTES * 2 * BETA
    assert costs.hierarchical_s() == pytest.approx(serial_s)


def test_groups_that_share_a_trunk_wait_for_each_other():
    costs = AveragingCosts(racked([4, 4]), ((0, 1, 2, 3), (4, 5, 6, 7)), SIZE_BYTES)
    one = costs.iteration_s(((0, 4), (1, 2, 3), (5, 6, 7)))
    both = costs.iteration_s(((0, 4), (1, 5), (2, 3), (6, 7)))
    assert both == pytest.approx(2 * one, rel=0.01)


@pytest.mark.parametrize("factor", [2, 10])
def test_times_scale_with_bytes_and_latency(factor):
    network = racked([4, 4], alpha_s=0.0)
    racks, division = ((0, 1, 2, 3), (4, 5, 6, 7)), ((0, 4), (1, 2, 3), (5, 6, 7))
    one, more = (AveragingCosts(network, racks, SIZE_BYTES * by) for by in (1, factor))
    assert more.iteration_s(division) == pytest.approx(factor * one.iteration_s(division))
    for name, time_s in one.peers_s().items():
        assert more.peers_s()[name] == pytest.approx(factor * time_s), name
    assert one.asp_s() <= one.parameter_server_s()
