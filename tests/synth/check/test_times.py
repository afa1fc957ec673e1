"""The judge's clock: what it shows is what the simulator says, which shares no code with it."""

from dataclasses import replace

import numpy as np
import pytest
from drawn_examples import drawn
from hypothesis import given, settings, strategies as st
from sample_networks import networks

from probes.base.columns import bytes_of, ints
from synth.check.times import on_lanes, replay, starts
from synth.collective import KINDS, collective
from synth.networks.families import family
from synth.schedules import COPY, REDUCE, Schedule
from synth.scheduling import block_exchange as exchange
from synth.simulation import schedule as simulator


@st.composite
def tables(draw):
    """A table of any sends at all, right or wrong, some of them in streams."""
    network = draw(networks(6).filter(lambda one: one.links > 0))
    shape = collective(draw(st.sampled_from(KINDS)), network.ranks, draw(st.integers(1, 3)))
    count = draw(st.integers(0, 40))
    rng = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    link = rng.integers(0, network.links, count)
    two_a_link = 2 * link + rng.integers(0, 2, count)
    streams = np.unique(two_a_link, return_inverse=True)[1] if draw(st.booleans()) else []
    return Schedule(
        network,
        shape,
        draw(st.sampled_from([1, 4096, 1 << 20])),
        "chance",
        0,
        ints(rng.integers(0, max(1, shape.chunks), count) if shape.chunks else []),
        ints(link),
        bytes_of(rng.choice([COPY, REDUCE], count)),
        stream=ints(streams),
    )


@settings(max_examples=drawn(300), deadline=None)
@given(tables())
def test_any_table_takes_what_the_simulator_says(schedule):
    assert schedule.problems() == []
    ours, simulated = replay(on_lanes(schedule)), simulator.replay(schedule)
    np.testing.assert_allclose(ours.start_s, simulated.start_s, rtol=1e-12)
    np.testing.assert_allclose(ours.arrival_s, simulated.arrival_s, rtol=1e-12)
    assert ours.time_s == pytest.approx(simulated.time_s, rel=1e-12)


@pytest.mark.parametrize("spec", ["ring:5", "hypercube:8", "mesh:2x3", "switch:6"])
def test_sends_of_addends_wait_for_these_alone(spec):
    network = family(spec, [1e-6], [1e9])
    schedule = exchange.synthesize(network, collective("all_reduce", network.ranks, 2), 1000)
    assert schedule.exchanges
    np.testing.assert_allclose(replay(schedule).start_s, simulator.replay(schedule).start_s, rtol=1e-12)


@settings(max_examples=drawn(60), deadline=None)
@given(tables())
def test_larger_chunks_start_later_by_the_slope(schedule):
    schedule = on_lanes(replace(schedule, chunk_bytes=1 << 20))
    start_s, slope = starts(schedule)
    larger_s, _ = starts(replace(schedule, chunk_bytes=(1 << 20) + 1))
    came = np.isfinite(start_s)
    # The longest path may be another one byte further on, and then it grows faster.
    assert (larger_s[came] >= (start_s + slope)[came] * (1 - 1e-12)).all()
    smaller_s, _ = starts(replace(schedule, chunk_bytes=(1 << 20) - 1))
    assert (smaller_s[came] >= (start_s - slope)[came] * (1 - 1e-12)).all()


@settings(max_examples=drawn(60), deadline=None)
@given(tables().filter(lambda schedule: len(schedule.stream)))
def test_streams_overload_no_link_and_no_port(schedule):
    network, lanes = schedule.network, on_lanes(schedule).network
    rate = np.zeros(network.links)
    link = np.zeros(lanes.links, dtype=int)
    link[schedule.stream] = schedule.link
    np.add.at(rate, link, 1 / lanes.beta_s_per_byte)
    assert (rate * network.beta_s_per_byte <= 1 + 1e-9).all()
    ports = np.zeros(len(network.ports))
    np.add.at(ports, network.link_port, network.held_s_per_byte * rate[network.port_user])
    assert (ports <= 1 + 1e-9).all()
