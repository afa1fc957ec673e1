"""Streams share links and ports by rates that these can carry, and what is simulated of them agrees."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from drawn_examples import drawn
from hypothesis import assume, given, settings, strategies as st
from sample_networks import networks

from probes.base.columns import floats, ints
from synth.check.schedule import check
from synth.collective import collective
from synth.compiler.lowering import lower
from synth.errors import NotApplicableError
from synth.methods import forest
from synth.network import Link, build
from synth.simulation.fair_program import fair_time_s
from synth.simulation.program import Costs, simulate_program
from synth.simulation.schedule import replay
from synth.streams import busiest_s_per_byte, divided


def _streamed(network, chunks, chunk_bytes=1 << 16):
    try:
        return forest.synthesize(network, collective("all_reduce", network.ranks, chunks), chunk_bytes)
    except NotApplicableError:
        assume(False)
        raise


@pytest.fixture
def uneven():
    """Four hosts behind NICs, one of which is slow, and a pair that is slower one way."""
    rate = [100e6, 100e6, 40e6, 100e6]
    links = [
        Link(a, b, 2e-5, 1 / (20e6 if (a, b) == (3, 1) else min(rate[a], rate[b])), (f"{a} out", f"{b} in"))
        for a in range(4)
        for b in range(4)
        if a != b
    ]
    return replace(build("uneven", [f"h{rank}" for rank in range(4)], links), queues=True)


@settings(max_examples=drawn(25), deadline=None)
@given(networks().filter(lambda network: network.queues), st.integers(1, 9))
def test_streams_of_a_forest_are_proven(network, chunks):
    schedule = _streamed(network, chunks)
    assert len(schedule.stream) == schedule.sends
    assert check(schedule) == []
    apart = divided(schedule)
    assert (apart.network.src[apart.link] == network.src[schedule.link]).all()
    assert replay(schedule).time_s >= busiest_s_per_byte(schedule) * schedule.chunk_bytes * (1 - 1e-9)


def test_the_busiest_port_has_no_time_to_spare_and_the_pipeline_nears_it(uneven):
    schedule = _streamed(uneven, 512)
    busiest_s = busiest_s_per_byte(schedule) * schedule.chunk_bytes
    assert busiest_s < replay(schedule).time_s < 1.05 * busiest_s


def test_every_model_of_time_agrees_on_streams(uneven):
    schedule = _streamed(uneven, 256)
    program = lower(schedule)
    expected_s = replay(schedule).time_s
    given_s = uneven, schedule.chunk_bytes, Costs(fifo=8)
    assert simulate_program(program, *given_s).time_s == pytest.approx(expected_s, rel=0.02)
    assert fair_time_s(program, *given_s) == pytest.approx(expected_s, rel=0.02)


def test_each_stream_has_a_connection_of_its_own(uneven):
    schedule = _streamed(uneven, 64)
    program = lower(schedule)
    sending = program.tb_send >= 0
    ends = {*zip(program.tb_rank, program.tb_send, program.tb_channel, strict=True)}
    assert sending.sum() == len(np.unique(schedule.stream))
    assert len([end for end in ends if end[1] >= 0]) == sending.sum()


def test_rates_follow_the_network_that_a_schedule_is_timed_on(uneven):
    schedule = _streamed(uneven, 256)
    slower = replace(uneven, beta_s_per_byte=floats(uneven.beta_s_per_byte * 2))
    assert replay(schedule, slower).time_s == pytest.approx(2 * replay(schedule).time_s, rel=0.01)


def test_a_stream_on_two_links_is_refused(uneven):
    schedule = _streamed(uneven, 8)
    wrong = replace(schedule, stream=ints(np.zeros(schedule.sends)))
    assert any("is on another link as well" in problem for problem in check(wrong))
    assert any("stream: expected" in problem for problem in check(replace(schedule, stream=ints([0]))))
