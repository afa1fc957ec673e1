"""The judge accepts what is right, and every mutation of it that is wrong is caught."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from drawn_examples import drawn
from hypothesis import assume, given, settings, strategies as st
from sample_networks import networks

from probes.base.columns import bytes_of, floats, ints
from synth.check.contributions import by_the_table, by_the_times
from synth.check.linear_pass import is_delivered, takes_turns
from synth.check.schedule import check
from synth.collective import Collective, collective, custom
from synth.methods import greedy
from synth.network import Link, build
from synth.rank_sets import of_sets
from synth.schedules import COPY, REDUCE, Schedule, Timing
from synth.simulation.schedule import replay

KINDS = ("all_gather", "reduce_scatter", "all_reduce", "broadcast", "reduce")


def _hand(rows, shape, network):
    chunk, link, op = zip(*rows, strict=True)
    return Schedule(network, shape, 1000, "hand", 0, ints(chunk), ints(link), bytes_of(op))


@pytest.fixture
def triangle():
    pairs = [(0, 1), (1, 2), (2, 0), (1, 0), (2, 1), (0, 2)]
    return build("triangle", ["a", "b", "c"], [Link(s, d, 1e-6, 1e-9) for s, d in pairs])


def _drop(schedule, row):
    kept = np.arange(schedule.sends) != row
    return replace(
        schedule,
        chunk=ints(schedule.chunk[kept]),
        link=ints(schedule.link[kept]),
        op=bytes_of(schedule.op[kept]),
    )


@settings(max_examples=drawn(60))
@given(networks(), st.sampled_from(KINDS), st.integers(1, 3), st.data())
def test_a_dropped_send_is_always_caught(network, kind, chunks, data):
    schedule = greedy.synthesize(network, collective(kind, network.ranks, chunks), 1000)
    assert check(schedule) == []
    row = data.draw(st.integers(0, schedule.sends - 1))
    assert check(_drop(schedule, row)) != []


@settings(max_examples=drawn(60))
@given(networks(), st.sampled_from(("reduce_scatter", "all_reduce", "reduce")), st.data())
def test_a_reduce_that_is_done_twice_is_always_caught(network, kind, data):
    schedule = greedy.synthesize(network, collective(kind, network.ranks, 2), 1000)
    row = data.draw(st.sampled_from(np.flatnonzero(schedule.op == REDUCE).tolist()))
    twice = replace(
        schedule,
        chunk=ints(np.insert(schedule.chunk, row, schedule.chunk[row])),
        link=ints(np.insert(schedule.link, row, schedule.link[row])),
        op=bytes_of(np.insert(schedule.op, row, REDUCE)),
    )
    assert any("again" in finding for finding in check(twice))


def _fits(schedule, timing, row, start_s):
    """Whether ``row`` could start at ``start_s`` among the others: its wires free, its chunk there."""
    network = schedule.network
    hold_s = network.hold_s(schedule.chunk_bytes)[schedule.link]
    src, dst = network.src[schedule.link], network.dst[schedule.link]

    def wires(send):
        link = schedule.link[send]
        first, end = network.link_port_start[link : link + 2]
        return {("link", int(link))} | {("port", int(port)) for port in network.link_port[first:end]}

    for other in set(range(schedule.sends)) - {row}:
        there_s = timing.start_s[other]
        overlaps = there_s < start_s + hold_s[row] and start_s < there_s + hold_s[other]
        brings = dst[other] == src[row] and schedule.chunk[other] == schedule.chunk[row]
        too_late = start_s < timing.arrival_s[other] <= timing.start_s[row]
        if (overlaps and wires(other) & wires(row)) or (brings and too_late):
            return False
    return True


@settings(max_examples=drawn(60))
@given(networks(), st.sampled_from(KINDS), st.data())
def test_a_send_that_is_claimed_earlier_is_always_caught(network, kind, data):
    schedule = greedy.synthesize(network, collective(kind, network.ranks, 2), 1 << 16)
    timing = replay(schedule)
    later = np.flatnonzero(timing.start_s > 0).tolist()
    if not later:
        return
    row = data.draw(st.sampled_from(later))
    start_s = timing.start_s.copy()
    start_s[row] *= data.draw(st.sampled_from([0.0, 0.5, 0.99]))
    claimed = Timing(floats(start_s), timing.arrival_s, timing.time_s)
    honest = start_s + network.travel_s(schedule.chunk_bytes)[schedule.link]
    early = Timing(floats(start_s), floats(np.where(start_s < timing.start_s, honest, timing.arrival_s)), 1.0)
    # Replay keeps the order on every wire, so that a send may fit into a gap before its turn.
    assume(not _fits(schedule, timing, row, start_s[row]))
    assert check(schedule, early) != [] or check(schedule, claimed) != []


@settings(max_examples=drawn(60))
@given(networks(), st.sampled_from(KINDS), st.data())
def test_a_swapped_chunk_is_always_caught(network, kind, data):
    schedule = greedy.synthesize(network, collective(kind, network.ranks, 4), 1000)
    first = data.draw(st.integers(0, schedule.sends - 1))
    others = np.flatnonzero(schedule.chunk != schedule.chunk[first]).tolist()
    if not others:
        return
    chunk = schedule.chunk.copy()
    chunk[first] = chunk[data.draw(st.sampled_from(others))]
    # One rank is left without what that send brought it: a greedy schedule brings nothing twice.
    assert check(replace(schedule, chunk=ints(chunk))) != []


@settings(max_examples=drawn(60))
@given(networks(), st.sampled_from(("all_gather", "broadcast")), st.data())
def test_the_quick_proof_never_passes_what_following_every_chunk_refuses(network, kind, data):
    schedule = greedy.synthesize(network, collective(kind, network.ranks, 2), 1000)
    timing = replay(schedule)
    assert takes_turns(schedule, timing, 1e-9)
    assert is_delivered(schedule, timing, 1e-9)
    row = data.draw(st.integers(0, schedule.sends - 1))
    start_s, chunk = timing.start_s.copy(), schedule.chunk.copy()
    start_s[row] *= data.draw(st.sampled_from([0.0, 0.5, 1.0]))
    chunk[row] = data.draw(st.integers(0, schedule.collective.chunks - 1))
    changed = replace(schedule, chunk=ints(chunk))
    claimed = replace(timing, start_s=floats(start_s))
    if is_delivered(changed, claimed, 1e-9):
        assert not len(by_the_times(changed, claimed))
        assert not len(by_the_table(changed))


@settings(max_examples=drawn(200))
@given(networks(), st.sampled_from(("reduce_scatter", "all_reduce", "reduce")), st.data())
def test_the_quick_proof_of_sums_never_passes_what_following_every_chunk_refuses(network, kind, data):
    schedule = greedy.synthesize(network, collective(kind, network.ranks, 2), 1000)
    timing = replay(schedule)
    assert is_delivered(schedule, timing, 1e-9)
    rows = st.integers(0, schedule.sends - 1)
    start_s, arrival_s = timing.start_s.copy(), timing.arrival_s.copy()
    chunk, link, op = schedule.chunk.copy(), schedule.link.copy(), schedule.op.copy()
    for what in data.draw(st.lists(st.sampled_from(("time", "later", "chunk", "link", "op", "order")))):
        row, other = data.draw(rows), data.draw(rows)
        if what == "time":
            start_s[row] *= data.draw(st.sampled_from([0.0, 0.5, 1.0, 2.0]))
        elif what == "later":
            arrival_s[row] = data.draw(st.sampled_from([start_s[row], arrival_s[other], np.inf, np.nan]))
        elif what == "chunk":
            chunk[row] = chunk[other]
        elif what == "link":
            link[row] = data.draw(st.integers(0, network.links - 1))
        elif what == "op":
            op[row] = COPY + REDUCE - op[row]
        else:
            for column in (chunk, link, op, start_s, arrival_s):
                column[[row, other]] = column[[other, row]]
    changed = replace(schedule, chunk=ints(chunk), link=ints(link), op=bytes_of(op))
    claimed = replace(timing, start_s=floats(start_s), arrival_s=floats(arrival_s))
    if is_delivered(changed, claimed, 1e-9):
        assert not len(by_the_times(changed, claimed))
        assert not len(by_the_table(changed))


def test_names_the_send_and_the_rank(triangle):
    gather = Collective("all_gather", 3, 3)
    rows = [(0, 1, COPY), (0, 0, COPY), (1, 1, COPY), (1, 3, COPY), (2, 4, COPY), (2, 2, COPY)]
    found = check(_hand(rows, gather, triangle))
    assert "send 0 (chunk 0 over 1→2): rank 1 does not hold chunk 0 when it starts" in found
    assert "rank 2 ends without the complete chunk 0" in found


def test_overwriting_a_partial_sum_loses_contributions(triangle):
    reduce = Collective("reduce", 3, 1, root=2)
    right = [(0, 0, REDUCE), (0, 1, REDUCE)]
    assert check(_hand(right, reduce, triangle)) == []
    wrong = [(0, 0, COPY), (0, 1, REDUCE)]
    assert check(_hand(wrong, reduce, triangle)) == ["rank 2 ends without the complete chunk 0"]


def test_a_slot_that_changes_while_it_is_sent_is_a_race(triangle):
    reduce = Collective("reduce", 3, 1, root=2)
    rows = [(0, 1, REDUCE), (0, 0, REDUCE), (0, 1, REDUCE)]
    claimed = Timing(floats([0.0, -0.0, 2e-6]), floats([2e-6, 2e-6, 4e-6]), 4e-6)
    found = check(_hand(rows, reduce, triangle), claimed)
    assert any("again" in finding for finding in found)
    slow = replace(triangle, beta_s_per_byte=floats([1e-9, 9e-9, 1e-9, 1e-9, 1e-9, 1e-9]))
    found = check(_hand([(0, 1, REDUCE), (0, 0, REDUCE)], reduce, slow))
    assert any("changes at rank 1 while it is being sent" in finding for finding in found)


@pytest.mark.parametrize("time_s", [-np.inf, np.nan])
@pytest.mark.parametrize("claim", ["start_s", "arrival_s", "time_s"])
def test_a_claim_that_is_no_time_proves_nothing(triangle, claim, time_s):
    schedule = _hand([(0, 0, COPY), (0, 5, COPY)], Collective("broadcast", 3, 1), triangle)
    timing = replay(schedule)
    assert check(schedule, timing) == []
    wrong = time_s if claim == "time_s" else floats([time_s, getattr(timing, claim)[1]])
    assert check(schedule, replace(timing, **{claim: wrong})) != []


def test_two_sends_on_one_link_or_port_at_once():
    links = [Link(0, 1, 0, 1e-9, ("nic",)), Link(0, 2, 0, 1e-9, ("nic",))]
    network = build("nic", ["a", "b", "c"], links)
    schedule = _hand(
        [(0, 0, COPY), (1, 0, COPY), (0, 1, COPY), (1, 1, COPY)], Collective("broadcast", 3, 2), network
    )
    together = Timing(floats([0, 0, 1e-6, 2e-6]), floats([1e-6, 1e-6, 2e-6, 3e-6]), 3e-6)
    found = check(schedule, together)
    assert any(finding.startswith("link 0→1 carries sends 0 and 1") for finding in found)
    assert any(finding.startswith("port nic carries sends 0 and 1") for finding in found)


def test_impossible_times(triangle):
    schedule = _hand([(0, 0, COPY), (0, 5, COPY)], Collective("broadcast", 3, 1), triangle)
    fine = replay(schedule)
    assert check(schedule, fine) == []
    hurried = replace(fine, arrival_s=floats(fine.arrival_s * 0.9))
    assert any("arrives sooner" in finding for finding in check(schedule, hurried))
    boast = replace(fine, time_s=fine.time_s / 2)
    assert any("after the claimed" in finding for finding in check(schedule, boast))
    assert any(
        "before time 0" in finding for finding in check(schedule, replace(fine, start_s=floats([-1e-6, 0])))
    )


def test_a_file_that_contradicts_itself_is_not_replayed(triangle):
    schedule = _hand([(7, 0, COPY)], Collective("broadcast", 3, 1), triangle)
    assert check(schedule) == ["chunk[0]: expected 0 … 0, found 7"]


def test_a_large_schedule_of_64_and_more_ranks_uses_several_words():
    pairs = [(rank, (rank + 1) % 81) for rank in range(81)]
    chain = build("chain", ["host"] * 81, [Link(s, d, 0, 1e-9) for s, d in pairs])
    shape = Collective("reduce", 81, 1, root=80)
    rows = [(0, rank, REDUCE) for rank in range(80)]
    assert check(_hand(rows, shape, chain)) == []
    assert check(_hand(rows[1:], shape, chain)) == ["rank 80 ends without the complete chunk 0"]


def test_what_only_the_times_make_right_is_refused():
    # The times make the first link so slow that send 1 leaves rank 1 after send 2 arrives; a program
    # carries out the table, in which send 1 is first.
    links = [Link(1, 2, 0.0, 1e-6), Link(0, 1, 0.0, 1e-9)]
    network = build("slow", ["a", "b", "c"], links)
    rows = [(0, 0, COPY), (1, 0, REDUCE), (1, 1, REDUCE)]
    from_one = custom(3, of_sets([[1], [0, 1, 2]]), of_sets([[2], [2]]), [False, True])
    found = check(_hand(rows, from_one, network))
    assert found == ["in the order of the table, rank 2 ends without the complete chunk 1"]
    assert check(_hand([rows[0], rows[2], rows[1]], from_one, network)) == []
