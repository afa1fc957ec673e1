"""DeAR's equations agree with each other, and a ring on a network costs what they say."""

import pytest
from drawn_examples import drawn
from hypothesis import given, settings, strategies as st

from synth.fusion.costs import RingCosts, speedup_max
from synth.fusion.network_costs import ring_costs
from synth.networks.families import family

SECONDS = st.floats(1e-4, 10.0)


def test_an_all_reduce_is_its_two_halves():
    costs = RingCosts(4, 1e-5, 1e-9)
    assert costs.reduce_scatter_s(4e6) == pytest.approx(3 * (1e-5 + 1e-3))
    assert costs.all_reduce_s(4e6) == pytest.approx(2 * 3 * 1e-5 + 2 * 3 / 4 * 4e6 * 1e-9)
    assert costs.startup_s == pytest.approx(6e-5)
    assert RingCosts(64, 1e-6, 0.0).negotiation_s == pytest.approx(12e-6)


@pytest.mark.parametrize("spec", ["ring:5", "switch:4"])
def test_the_costs_of_a_ring_are_those_of_its_links(spec):
    costs = ring_costs(family(spec, [2e-6], [1e9]))
    assert costs.alpha_s == pytest.approx(2e-6, rel=1e-3)
    assert costs.beta_s_per_byte == pytest.approx(1e-9, rel=1e-6)


@settings(max_examples=drawn(40))
@given(st.integers(2, 512), SECONDS, SECONDS, SECONDS, SECONDS)
def test_equation_6_is_equation_7_as_a_speed_up(ranks, forward_s, backward_s, scatter_s, gather_s):
    most = speedup_max(ranks, forward_s, backward_s, scatter_s, gather_s)
    whole_s = max(forward_s, gather_s) + max(backward_s, scatter_s)
    assert most == pytest.approx(ranks * (forward_s + backward_s) / whole_s)
    assert most <= ranks * (1 + 1e-9)
