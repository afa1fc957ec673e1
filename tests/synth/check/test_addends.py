"""Schedules with addends: what is right is accepted, and every mutation that is wrong is caught."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from drawn_examples import drawn
from hypothesis import given, settings, strategies as st

from probes.base.columns import bytes_of, floats, ints
from synth.check.schedule import check
from synth.collective import collective
from synth.network import Link, build
from synth.networks.families import family
from synth.schedules import COPY, REDUCE, Schedule
from synth.scheduling import block_exchange as exchange
from synth.simulation.schedule import replay

PAIR = build("pair", ["a", "b"], [Link(0, 1, 1e-6, 1e-9), Link(1, 0, 1e-6, 1e-9)])


def by_hand(rows, addends, network=PAIR):
    """Rows of (chunk, link, op), and what each carries."""
    chunk, link, op = zip(*rows, strict=True)
    start = np.cumsum([0, *map(len, addends)])
    return Schedule(
        network,
        collective("all_reduce", network.ranks, 1 + max(chunk)),
        100,
        "hand",
        0,
        ints(chunk),
        ints(link),
        bytes_of(op),
        addend_start=ints(start),
        addend=ints([part for parts in addends for part in parts]),
    )


def test_two_ranks_may_exchange_their_contributions():
    schedule = by_hand([(0, 0, REDUCE), (0, 1, REDUCE)], [[-1], [-1]])
    assert check(schedule) == []
    assert replay(schedule).start_s.tolist() == [0.0, 0.0]


def test_what_came_in_between_is_carried_where_nothing_else_is_said():
    late = by_hand([(0, 0, REDUCE), (0, 1, REDUCE)], [[-1], []])
    assert replay(late).start_s[1] > 0
    assert any("already has a contribution" in finding for finding in check(late))


@pytest.mark.parametrize(
    ("rows", "addends", "why"),
    [
        ([(0, 0, REDUCE)], [[-1]], "rank 0 ends without"),
        ([(0, 0, REDUCE), (0, 0, REDUCE), (0, 1, REDUCE)], [[-1], [-1], [-1]], "already has a contribution"),
        ([(0, 0, REDUCE), (0, 1, REDUCE)], [[-1], [-1, 0]], "already has a contribution"),
        ([(0, 0, REDUCE), (0, 1, COPY), (0, 0, REDUCE)], [[-1], [-1, 0], [-1]], "does not hold"),
        ([(0, 0, REDUCE), (0, 1, REDUCE)], [[-1], [1]], "expected -1 … 0"),
        ([(0, 0, REDUCE), (0, 0, REDUCE)], [[-1], [0]], "reduces no part of chunk 0"),
        ([(0, 0, REDUCE), (1, 1, REDUCE)], [[-1], [0]], "reduces no part of chunk 1"),
    ],
)
def test_wrong_addends_are_named(rows, addends, why):
    found = check(by_hand(rows, addends))
    assert any(why in finding for finding in found), found


def test_a_send_may_not_start_before_what_it_carries_has_come():
    schedule = exchange.synthesize(family("hypercube:4", [1e-6], [1e9]), collective("all_reduce", 4, 1), 100)
    timing = replay(schedule)
    row = int(np.argmax(timing.start_s))
    start_s = timing.start_s.copy()
    start_s[row] *= 0.9
    found = check(schedule, replace(timing, start_s=floats(start_s)))
    assert any("does not hold" in finding for finding in found)


@settings(max_examples=drawn(40))
@given(st.sampled_from(["ring:5", "hypercube:8", "mesh:2x3", "switch:6"]), st.integers(1, 2), st.data())
def test_addends_left_out_doubled_or_exchanged_are_caught(spec, chunks, data):
    network = family(spec, [1e-6], [1e9])
    right = exchange.synthesize(network, collective("all_reduce", network.ranks, chunks), 100)
    assert check(right) == []
    at = data.draw(st.integers(0, len(right.addend) - 1))
    row = int(np.searchsorted(right.addend_start, at, side="right")) - 1
    start, addend = right.addend_start.copy(), right.addend
    if data.draw(st.booleans()):
        # Without any addend a send carries all that there is, which may be the same.
        if right.addend_start[row + 1] - right.addend_start[row] == 1:
            return
        addend = np.delete(addend, at)
        start[row + 1 :] -= 1
    else:
        addend = np.insert(addend, at, addend[at])
        start[row + 1 :] += 1
    assert check(replace(right, addend_start=ints(start), addend=ints(addend))) != []
