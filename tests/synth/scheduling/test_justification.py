"""Justified schedules have the same sends, are right, and never slower."""

from __future__ import annotations

import pytest
from drawn_examples import drawn
from hypothesis import HealthCheck, given, settings, strategies as st
from sample_networks import networks

from synth.check.schedule import check
from synth.collective import collective
from synth.errors import NotApplicableError
from synth.methods import greedy, paths, ring
from synth.network import Link, build
from synth.networks.families import family
from synth.schedules import COPY
from synth.scheduling import block_exchange
from synth.scheduling.justification import justified, least_s
from synth.scheduling.list_scheduling import Sends
from synth.simulation.schedule import replay


def _table(schedule):
    return sorted(zip(schedule.chunk.tolist(), schedule.link.tolist(), schedule.op.tolist(), strict=True))


@settings(max_examples=drawn(60), suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(
    networks(7),
    st.sampled_from(["all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all"]),
    st.integers(1, 4),
    st.sampled_from([1, 1000, 1 << 20]),
    st.sampled_from([greedy.synthesize, paths.synthesize, ring.synthesize]),
)
def test_the_same_sends_no_slower_and_still_right(network, kind, chunks, chunk_bytes, method):
    try:
        schedule = method(network, collective(kind, network.ranks, chunks), chunk_bytes)
    except NotApplicableError:
        return
    found = justified(schedule)
    assert _table(found) == _table(schedule)
    assert check(found) == []
    assert replay(found).time_s <= replay(schedule).time_s
    bound_s = least_s(schedule)
    assert bound_s <= replay(found).time_s * (1 + 1e-9)
    assert justified(schedule, bound_s) is schedule
    # More chunks hold a link longer only if each holds it for its latency as well.
    assert network.hold_alpha or least_s(schedule, 3) <= bound_s * (1 + 1e-9)


def test_what_others_wait_for_goes_first():
    """Rank 0 sends one chunk to its neighbour and one through it; the second way is the longer one."""
    links = [Link(0, 1, 0.0, 1.0), Link(1, 2, 5.0, 1.0)]
    network = build("line", ["a", "b", "c"], links)
    sends = Sends()
    sends.add(1, 0, COPY, 0)
    sends.add(2, 0, COPY, 1)
    sends.add(2, 1, COPY, 2)
    schedule = sends.schedule(network, collective("scatter", 3, 3), 1, "by hand")
    assert replay(schedule).time_s == 8
    # The longest path is that of chunk 2: 1 s, then 6 s.
    assert least_s(schedule) == 7
    found = justified(schedule)
    assert replay(found).time_s == 7
    assert found.chunk[0] == 2


def test_a_busy_link_bounds_the_time_of_any_order():
    """Two chunks take 1 s to the middle rank, 2 s of its link to the last one, and its latency of 5 s."""
    network = build("line", ["a", "b", "c"], [Link(0, 1, 0.0, 1.0), Link(1, 2, 5.0, 1.0)])
    sends = Sends()
    for chunk in (4, 5):
        sends.add(chunk, 0, COPY, 0)
        sends.add(chunk, 1, COPY, 1)
    schedule = sends.schedule(network, collective("scatter", 3, 6), 1, "by hand")
    assert least_s(schedule) == replay(schedule).time_s == 8
    assert justified(schedule) is schedule


def test_a_pipelined_all_reduce_gains():
    network = family("torus:4x4x4", [0.7e-6], [50e9])
    schedule = greedy.synthesize(network, collective("all_reduce", 64, 512), 2048)
    assert replay(justified(schedule)).time_s < 0.97 * replay(schedule).time_s


@pytest.mark.parametrize("chunks", [1, 4, 16])
def test_exchanges_are_no_slower_and_still_right(chunks):
    network = family("torus:3x4", [1e-6], [1e9])
    schedule = block_exchange.synthesize(network, collective("all_reduce", 12, chunks), 1000)
    found = justified(schedule)
    assert found.exchanges and _table(found) == _table(schedule)
    assert check(found) == []
    assert replay(found).time_s <= replay(schedule).time_s
