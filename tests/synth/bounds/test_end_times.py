"""Bounds of whole chunks are raised to the next time at which a schedule can end."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from synth.bounds.end_times import next_end_s
from synth.bounds.lower_bounds import bounds
from synth.collective import collective
from synth.methods import greedy
from synth.network import Link, build
from synth.networks.families import family
from synth.simulation.schedule import replay


def ring(ranks, alpha_s, beta_s_per_byte, *, hold_alpha=False):
    ends = [(rank, (rank + step) % ranks) for rank in range(ranks) for step in (1, -1)]
    links = [Link(*pair, alpha_s, beta_s_per_byte) for pair in ends]
    return build("ring", ["h0"] * ranks, links, hold_alpha=hold_alpha)


@given(
    st.floats(0.0, 3.0),
    st.integers(1, 5),
    st.integers(1, 12),
    st.integers(0, 8),
    st.floats(-0.4, 0.0),
    st.booleans(),
)
def test_the_next_end_is_found_among_all(alpha_s, chunk_bytes, flights, more, short, hold_alpha):
    network = ring(4, alpha_s, 1.0, hold_alpha=hold_alpha)
    hold_s, flight_s = (chunk_bytes + alpha_s, 0.0) if hold_alpha else (chunk_bytes, alpha_s)
    bound_s = (flights + more) * hold_s + flights * flight_s + short
    ends_s = [i * hold_s + j * flight_s for j in range(1, 60) for i in range(j, 90)]
    later_s = [end_s for end_s in ends_s if end_s >= bound_s * (1 - 1e-6)]
    assert next_end_s(network, chunk_bytes, bound_s) == pytest.approx(max(bound_s, min(later_s)))


def test_a_bound_that_a_solver_rounded_up_is_not_raised():
    assert next_end_s(ring(4, 0.5, 1.0), 10, 31.5 * (1 + 1e-7)) == 31.5 * (1 + 1e-7)
    assert next_end_s(ring(4, 0.5, 1.0), 10, 31.5 * (1 + 1e-5)) == 40.5


def test_links_that_differ_leave_bounds_as_they_are():
    links = [Link(0, 1, 1.0, 1.0), Link(1, 0, 1.5, 1.0)]
    assert next_end_s(build("pair", ["h0"] * 2, links), 10, 12.3) == 12.3
    assert next_end_s(ring(4, 0.5, 1.0), 10, np.inf) == np.inf


@given(
    st.sampled_from(["ring:5", "mesh:2x3", "switch:4", "switch:5", "hypercube:8"]),
    st.sampled_from(["all_reduce", "all_gather", "broadcast", "reduce_scatter"]),
    st.integers(1, 4),
    st.sampled_from([0.0, 0.3e-6, 1e-6, 4.1e-6]),
    st.booleans(),
)
def test_schedules_end_at_such_times_and_not_before(spec, kind, share, alpha_s, hold_alpha):
    network = family(spec, [alpha_s], [1e9], hold_alpha=hold_alpha)
    shape = collective(kind, network.ranks, share * (1 if kind == "broadcast" else network.ranks))
    made = greedy.synthesize(network, shape, 1000)
    time_s = replay(made).time_s
    assert next_end_s(network, 1000, time_s) == pytest.approx(time_s, rel=1e-8)
    assert all(bound.time_s <= time_s * (1 + 1e-8) for bound in bounds(network, shape, 1000))
