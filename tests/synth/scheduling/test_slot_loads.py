"""Loads of slots: costs follow prices exactly, and sends arrive in time."""

from __future__ import annotations

import numpy as np
import pytest
from drawn_examples import drawn
from hypothesis import given, settings, strategies as st
from sample_networks import networks

from synth.network import Link, build
from synth.scheduling.slot_loads import add, held_by, slots_s, timed_links, unloaded


@settings(max_examples=drawn(40))
@given(networks(), st.integers(1, 100_000), st.lists(st.tuples(st.integers(0), st.integers(0)), max_size=30))
def test_sends_that_are_taken_away_leave_no_trace(network, chunk_bytes, sends):
    """Overfull slots have prices of e²⁰⁰, which would leave rounding errors above all other prices."""
    begin_s, held = slots_s(network, chunk_bytes, 1e-4), held_by(network, chunk_bytes)
    load, fresh = (unloaded(network, begin_s, held) for _ in range(2))
    rows = [(link % network.links, slot % (len(begin_s) - 1)) for link, slot in sends]
    for times in (1.0, -1.0):
        for link, slot in rows:
            add(link, slot, held, load, times)
    assert load.cost == pytest.approx(fresh.cost, rel=1e-6)


def test_a_send_raises_the_cost_of_all_that_share_a_port_with_it():
    links = [Link(0, 1, 1e-6, 1e-9, ("out",)), Link(0, 2, 1e-6, 1e-9, ("out",)), Link(1, 2, 1e-6, 1e-9, ())]
    network = build("three", ["h"] * 3, links)
    begin_s, held = slots_s(network, 100, 5e-6), held_by(network, 100)
    load = unloaded(network, begin_s, held)
    before = load.cost.copy()
    add(0, 1, held, load, 1.0)
    assert np.argwhere(load.cost > before).tolist() == [[0, 1], [1, 1]]


@settings(max_examples=drawn(40))
@given(networks(), st.integers(1, 100_000), st.floats(2e-5, 1e-3))
def test_slots_begin_at_the_start_and_sends_in_them_arrive_in_time(network, chunk_bytes, within_s):
    begin_s = slots_s(network, chunk_bytes, within_s)
    links = timed_links(network, begin_s, within_s)
    assert begin_s[0] == pytest.approx(0, abs=1e-12) and (np.diff(begin_s) > 0).all()
    for latency in range(len(links.last)):
        alpha_s = network.alpha_s[links.latency == latency].max()
        last = links.last[latency]
        assert begin_s[last] + alpha_s <= within_s * (1 + 1e-9)
        then = links.next[latency, : last + 1]
        arrive_s = begin_s[: last + 1] + alpha_s
        assert (begin_s[then] <= arrive_s + 1e-11).all()
