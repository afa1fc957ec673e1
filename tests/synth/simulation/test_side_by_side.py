"""Several schedules on shared links: alone like a replay, together within what links carry."""

from __future__ import annotations

import numpy as np
import pytest
from drawn_examples import drawn
from hypothesis import given, settings, strategies as st
from sample_networks import networks

from probes.base.columns import bytes_of, ints
from synth.collective import Collective, collective
from synth.methods import greedy
from synth.network import Link, build
from synth.schedules import COPY, Schedule
from synth.simulation.schedule import replay
from synth.simulation.side_by_side import replay_together

KINDS = ("all_gather", "reduce_scatter", "all_reduce", "broadcast")


@settings(deadline=None, max_examples=drawn(60))
@given(
    network=networks(most_ranks=5),
    kind=st.sampled_from(KINDS),
    chunks=st.integers(1, 3),
    seed=st.integers(0, 9),
)
def test_a_schedule_alone_takes_the_times_of_its_replay(network, kind, chunks, seed):
    schedule = greedy.synthesize(network, collective(kind, network.ranks, chunks), 5000, seed=seed)
    [timing] = replay_together(network, [schedule], [3e-6])
    alone = replay(schedule)
    assert np.allclose(timing.start_s, alone.start_s + 3e-6)
    assert np.allclose(timing.arrival_s, alone.arrival_s + 3e-6)


@settings(deadline=None, max_examples=drawn(60))
@given(data=st.data(), network=networks(most_ranks=5))
def test_together_all_end_and_no_link_carries_more_than_it_can(data, network):
    schedules = [
        greedy.synthesize(network, collective(kind, network.ranks, chunks), size, seed=chunks)
        for kind, chunks, size in data.draw(
            st.lists(
                st.tuples(st.sampled_from(KINDS), st.integers(1, 2), st.sampled_from([10, 5000])),
                min_size=2,
                max_size=3,
            )
        )
    ]
    timings = replay_together(network, schedules, [0.0] * len(schedules))
    whole_s = max(timing.time_s for timing in timings)
    busy_s = sum(
        np.bincount(one.link, minlength=network.links) * network.hold_s(one.chunk_bytes) for one in schedules
    )
    assert np.isfinite(whole_s)
    assert whole_s >= busy_s.max() * (1 - 1e-9)


def line(sends, chunk_bytes, network):
    chunk, link = zip(*sends, strict=True)
    shape = Collective("broadcast", network.ranks, max(chunk) + 1)
    return Schedule(
        network, shape, chunk_bytes, "hand", 0, ints(chunk), ints(link), bytes_of([COPY] * len(chunk))
    )


def test_two_sends_through_one_port_halve_and_the_rest_goes_at_full_speed():
    links = [Link(0, 1, 0, 1e-9, ("nic",)), Link(0, 2, 0, 1e-9, ("nic",))]
    network = build("nic", ["a", "b", "c"], links)
    long, short = line([(0, 0)], 3000, network), line([(0, 1)], 1000, network)
    together = replay_together(network, [long, short], [0.0, 0.0])
    assert [timing.time_s for timing in together] == pytest.approx([4e-6, 2e-6])
    later = replay_together(network, [long, short], [0.0, 2e-6])
    assert [timing.time_s for timing in later] == pytest.approx([4e-6, 4e-6])
    after = replay_together(network, [long, short], [0.0, 3e-6])
    assert [timing.time_s for timing in after] == pytest.approx([3e-6, 4e-6])
