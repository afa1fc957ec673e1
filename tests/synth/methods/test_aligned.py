"""Schedules with a fixed order of sums: right on any network, and never better than their bound."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from drawn_examples import drawn
from fixed_order import drawn_inputs, fixed_sum
from hypothesis import HealthCheck, given, settings, strategies as st
from sample_networks import networks

from exec.program.interpreter import interpret
from synth.bounds import ORDER_BOUND, bounds
from synth.check.program import examine
from synth.check.schedule import check
from synth.collective import REDUCING, collective, uneven
from synth.compiler.lowering import lower
from synth.errors import NotApplicableError
from synth.methods import aligned
from synth.networks.families import family
from synth.scheduling import block_exchange
from synth.simulation.schedule import replay


def ordered(kind, ranks, chunks, **how):
    return replace(collective(kind, ranks, chunks, **how), sum_order="aligned")


def assert_in_order(schedule):
    """The schedule and its program are proven, and give the bits of the fixed order."""
    assert check(schedule) == []
    program = lower(schedule)
    assert examine(program).findings == ()
    assert examine(program).other_bits == ()
    shape = schedule.collective
    inputs = drawn_inputs(shape.size, 60 * shape.size, "float32")
    by_rank = iter(inputs)
    given_ = [next(by_rank) if rank in shape.participants else inputs[0][:0] for rank in range(shape.ranks)]
    outputs, whole = interpret(program, given_), fixed_sum(inputs)
    if shape.kind == "reduce_scatter":
        assert np.concatenate(outputs).tobytes() == whole.tobytes()
        return
    wanted = [shape.root] if shape.kind == "reduce" else shape.participants.tolist()
    assert {outputs[rank].tobytes() for rank in wanted} == {whole.tobytes()}


@settings(max_examples=drawn(60), suppress_health_check=[HealthCheck.too_slow])
@given(networks(9), st.sampled_from(REDUCING), st.integers(1, 3), st.sampled_from([1, 1000, 1 << 20]))
def test_on_any_network_sums_have_the_fixed_order(network, kind, chunks, chunk_bytes):
    assert_in_order(aligned.synthesize(network, ordered(kind, network.ranks, chunks), chunk_bytes))


@settings(max_examples=drawn(20), suppress_health_check=[HealthCheck.too_slow])
@given(networks(8), st.data())
def test_other_ranks_may_relay(network, data):
    members = data.draw(st.sets(st.integers(0, network.ranks - 1), min_size=2))
    shape = ordered("all_reduce", network.ranks, 2, members=members, root=min(members))
    assert_in_order(aligned.synthesize(network, shape, 1000))


@pytest.mark.parametrize(("spec", "hops"), [("switch:16", 2), ("fat_tree:4x4/2", 6), ("torus:4x4", 8)])
def test_a_short_all_reduce_goes_to_where_it_is_summed_and_back(spec, hops):
    """It takes twice the latency of the longest path, however many sums the order has one after the other."""
    network = family(spec, [1e-6], [1e12])
    found = aligned.synthesize(network, ordered("all_reduce", 16, 16), 1)
    assert_in_order(found)
    assert replay(found).time_s < (hops + 0.1) * 1e-6


@settings(max_examples=drawn(30), suppress_health_check=[HealthCheck.too_slow])
@given(networks(9), st.integers(1, 3), st.sampled_from([1, 1000]))
def test_exchanges_keep_the_order_too(network, chunks, chunk_bytes):
    try:
        found = block_exchange.synthesize(network, ordered("all_reduce", network.ranks, chunks), chunk_bytes)
    except NotApplicableError:
        return
    assert_in_order(found)


@settings(max_examples=drawn(40), suppress_health_check=[HealthCheck.too_slow])
@given(networks(8), st.sampled_from(REDUCING), st.integers(1, 2))
def test_the_bound_of_the_order_holds(network, kind, chunks):
    shape = ordered(kind, network.ranks, chunks * network.ranks)
    time_s = replay(aligned.synthesize(network, shape, 5000)).time_s
    assert all(bound.time_s <= time_s * (1 + 1e-6) for bound in bounds(network, shape, 5000, fluid=True))


def test_blocks_of_an_uneven_reduce_scatter_have_the_order_too():
    network = family("ring:5", [1e-6], [1e9])
    shape = replace(uneven("reduce_scatter", 5, [300, 0, 100, 0, 200], 100), sum_order="aligned")
    schedule = aligned.synthesize(network, shape, 100)
    assert check(schedule) == []
    assert examine(lower(schedule)).findings == ()


@pytest.mark.parametrize(
    ("spec", "most"),
    [("switch:16", 1.02), ("switch:12", 1.02), ("fat_tree:4x4/2", 1.02), ("torus:4x4", 2.15)],
)
def test_links_carry_little_more_than_the_bound_demands(spec, most):
    """On torus:4x4 links between even and odd columns carry 8 chunks each, in any order 3.75."""
    network = family(spec, [1e-7], [50e9])
    shape = ordered("reduce_scatter", network.ranks, 4 * network.ranks)
    busiest_s = _busiest_s(aligned.synthesize(network, shape, 1 << 20))
    found = bounds(network, shape, 1 << 20, fluid=True)
    assert busiest_s <= most * max(bound.time_s for bound in found if bound.name != ORDER_BOUND)
    assert busiest_s >= max(bound.time_s for bound in found if bound.name == ORDER_BOUND)


@pytest.mark.parametrize("spec", ["torus:4x4", "hypercube:16", "ring:8"])
def test_the_bound_of_the_order_explains_the_busiest_link(spec):
    """With few steps the bound was a sixth below the load of the links between even and odd columns."""
    network = family(spec, [1e-7], [50e9])
    shape = ordered("reduce_scatter", network.ranks, 4 * network.ranks)
    found = bounds(network, shape, 1 << 20, fluid=True)
    ordered_s = max(bound.time_s for bound in found if bound.name == ORDER_BOUND)
    assert ordered_s >= 0.94 * _busiest_s(aligned.synthesize(network, shape, 1 << 20))


def _busiest_s(schedule):
    network = schedule.network
    uses = np.bincount(schedule.link, minlength=network.links)
    links_s = uses * network.hold_s(schedule.chunk_bytes)
    ports_s = np.bincount(
        network.link_port, links_s[network.port_user] * network.port_part, minlength=len(network.ports)
    )
    return max(links_s.max(), ports_s.max(initial=0.0))


def test_only_sums_are_served():
    with pytest.raises(NotApplicableError, match="fixed order, not all_gather"):
        aligned.synthesize(family("ring:4", [0.0], [1e9]), collective("all_gather", 4), 1)
