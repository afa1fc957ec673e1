from __future__ import annotations

import numpy as np
import pytest
from drawn_examples import drawn
from hypothesis import given, settings, strategies as st
from sample_networks import networks

from probes.base.columns import bytes_of, floats, ints
from synth.collective import Collective, collective
from synth.methods import greedy
from synth.network import Link, build
from synth.schedules import COPY, Schedule
from synth.simulation.schedule import replay, utilization


def _broadcast(rows, network, chunks):
    chunk, link = zip(*rows, strict=True)
    shape = Collective("broadcast", network.ranks, chunks)
    return Schedule(network, shape, 1000, "hand", 0, ints(chunk), ints(link), bytes_of([COPY] * len(chunk)))


@pytest.mark.parametrize(
    ("hold_alpha", "starts_us", "total_us"), [(False, [0, 1, 3, 4], 7), (True, [0, 3, 3, 6], 9)]
)
def test_chunks_follow_each_other_down_a_line(hold_alpha, starts_us, total_us):
    links = [Link(0, 1, 2e-6, 1e-9), Link(1, 2, 2e-6, 1e-9)]
    network = build("line", ["a", "b", "c"], links, hold_alpha=hold_alpha)
    timing = replay(_broadcast([(0, 0), (1, 0), (0, 1), (1, 1)], network, 2))
    assert np.allclose(timing.start_s, np.array(starts_us) * 1e-6)
    assert timing.time_s == pytest.approx(total_us * 1e-6)


def test_links_that_share_a_port_take_turns():
    links = [Link(0, 1, 0, 1e-9, ("nic",)), Link(0, 2, 0, 1e-9, ("nic",))]
    network = build("nic", ["a", "b", "c"], links)
    schedule = _broadcast([(0, 0), (0, 1)], network, 1)
    assert np.allclose(replay(schedule).start_s, [0, 1e-6])
    free = build("free", ["a", "b", "c"], [Link(0, 1, 0, 1e-9), Link(0, 2, 0, 1e-9)])
    assert np.allclose(replay(schedule, free).start_s, [0, 0])


def test_a_send_of_what_is_never_held_never_starts():
    network = build("line", ["a", "b", "c"], [Link(0, 1, 0, 1e-9), Link(1, 2, 0, 1e-9)])
    timing = replay(_broadcast([(0, 1), (0, 0)], network, 1))
    assert timing.start_s.tolist() == [np.inf, 0.0]
    assert timing.time_s == np.inf


@settings(max_examples=drawn(40))
@given(networks(), st.integers(1, 4))
def test_replay_gives_greedy_its_own_times_back_or_better(network, chunks):
    shape = collective("all_gather", network.ranks, chunks)
    schedule = greedy.synthesize(network, shape, 1000)
    timing = replay(schedule)
    # The search holds ports for as long as links.
    if not network.queues:
        assert (timing.start_s[1:] >= timing.start_s[:-1] - 1e-15).all()
    assert (utilization(schedule, timing) <= 1 + 1e-9).all()


def test_twice_the_bandwidth_is_half_the_time_without_alpha():
    network = build("pair", ["a", "b"], [Link(0, 1, 0, 1e-9)])
    schedule = _broadcast([(0, 0), (1, 0)], network, 2)
    from dataclasses import replace

    faster = replace(network, beta_s_per_byte=floats([0.5e-9]))
    assert replay(schedule, faster).time_s == pytest.approx(replay(schedule).time_s / 2)
    assert replay(schedule, chunk_bytes=500).time_s == pytest.approx(replay(schedule).time_s / 2)
