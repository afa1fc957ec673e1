"""Operations of switches: their times, what the judge refuses, and how near schedules come to the bound."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from probes.base import UsageError, ints
from synth.check import check
from synth.check.times import on_lanes, replay as judged_times
from synth.collective import collective, custom
from synth.methods import nvls
from synth.multimem import laned, operations
from synth.networks.dgx import pod
from synth.rank_sets import every
from synth.relays.chunk_trees import chunk_trees
from synth.schedules import COPY, REDUCE
from synth.simulation import replay, replay_in_simgrid
from synth.traces.operations import operations_of

KINDS = ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce")
HOSTS = ("dgx-h100+nvls", "dgx-h100+nvls:2", "dgx-h100+nvls:3/rail", "nvl36+nvls")
ALPHA_S = 0.7e-6


def made(spec="dgx-h100+nvls", kind="all_reduce", laps=2, chunk_bytes=1 << 20):
    network = pod(spec)
    shape = collective(kind, network.ranks, laps * (1 if kind == "all_gather" else network.ranks))
    return nvls.synthesize(network, shape, chunk_bytes)


def only(schedule, rows):
    columns = {name: getattr(schedule, name)[rows] for name in ("chunk", "link", "op", "multimem")}
    return replace(schedule, **columns)


@pytest.mark.parametrize("spec", HOSTS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_judge_accepts_and_times_what_the_method_makes(spec, kind):
    if kind in ("broadcast", "reduce") and ":" in spec:
        pytest.skip("nvls serves these within one host")
    schedule = made(spec, kind)
    timing = replay(schedule)
    assert check(schedule) == check(schedule, timing) == []
    np.testing.assert_allclose(judged_times(on_lanes(schedule)).arrival_s, timing.arrival_s)
    assert (np.diff(timing.start_s) >= -1e-15).all()


@pytest.mark.parametrize(
    ("kind", "shares", "latencies"),
    [
        ("all_reduce", (9, 9), 3),
        ("reduce_scatter", (8,), 2),
        ("all_gather", (8,), 1),
        ("broadcast", (1,), 1),
        ("reduce", (1,), 2),
    ],
)
def test_operations_of_all_ranks_share_the_busiest_port(kind, shares, latencies):
    network = pod("dgx-h100+nvls")
    chunks = network.ranks if kind in ("all_reduce", "reduce_scatter") else 1
    schedule = nvls.synthesize(network, collective(kind, network.ranks, chunks), 1 << 20)
    each_s = (1 << 20) * network.multimem_s_per_byte
    expected_s = sum(shares) * each_s + latencies * ALPHA_S
    assert replay(schedule).time_s == pytest.approx(expected_s)


def test_a_sum_starts_when_all_ranks_hold_their_parts():
    schedule = made("dgx-h100+nvls:2", laps=1)
    timing, (first, end) = replay(schedule), operations(schedule)
    for row in np.flatnonzero(first < np.arange(schedule.sends)).tolist():
        assert timing.start_s[row] == timing.start_s[first[row]]
        assert timing.arrival_s[row] == timing.arrival_s[first[row]]
        assert end[row] == end[first[row]]
    of_copies = (schedule.op == COPY) & (schedule.multimem >= 0)
    assert timing.start_s[of_copies].min() >= timing.arrival_s[~of_copies & (schedule.op == REDUCE)].min()


def test_ports_are_busy_for_what_operations_cost_them():
    schedule = made(laps=4)
    network, port_s = schedule.network, np.zeros(len(schedule.network.ports))
    np.add.at(port_s, network.link_port, schedule.busy_s[network.port_user])
    each_s = schedule.chunk_bytes * network.multimem_s_per_byte
    used = port_s[port_s > 0]
    assert len(used) == 2 * 8
    np.testing.assert_allclose(used, 4 * 9 * each_s)


def test_a_schedule_without_operations_stays_as_it_is():
    schedule = replace(made(), multimem=ints([]))
    assert laned(schedule) is schedule
    first, end = operations(schedule)
    assert (first == np.arange(schedule.sends)).all() and (end == first + 1).all()


def test_other_machines_have_no_such_switches():
    with pytest.raises(UsageError, match="no switch of dgx-a100 sums or copies") as raised:
        pod("dgx-a100+nvls:2")
    assert "dgx-h100" in raised.value.hint and "gb200-nvl72" in raised.value.hint
    network = pod("dgx-a100")
    with pytest.raises(UsageError, match="nvls needs switches that sum and copy"):
        nvls.synthesize(network, collective("all_reduce", 8), 1)


def test_those_that_know_only_ranks_refuse_them():
    schedule = made()
    for refuses in (operations_of, partial(replay_in_simgrid, turns=True), chunk_trees):
        with pytest.raises(UsageError, match="switches"):
            refuses(schedule)


def test_a_network_that_queues_has_none():
    network = pod("dgx-h100+nvls")
    assert network.problems() == []
    for wrong in ({"queues": True}, {"hold_alpha": True}, {"multimem_s_per_byte": 1e-12}):
        (problem,) = replace(network, **wrong).problems()
        assert problem.startswith("multimem_s_per_byte: expected 0, or no queues")


def _first_of(schedule, op):
    return int(np.flatnonzero((schedule.op == op) & (schedule.multimem >= 0))[0])


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        (lambda one: {"multimem": one.multimem[:-1]}, "multimem: expected no values, or 224"),
        (lambda one: {"multimem": ints(one.multimem - 3)}, "expected -1 or more, found -3"),
        (lambda one: {"multimem": ints(np.arange(one.sends))}, "is between other ranks"),
        (lambda one: {"multimem": ints(one.multimem // 2)}, "has sends of several chunks"),
        (lambda one: {"multimem": ints(one.multimem % 16)}, "has other sends before it"),
        (lambda one: {"op": (one.op + (np.arange(one.sends) == 0)).astype(np.uint8) % 2}, "copies and sums"),
        (lambda one: {"network": replace(one.network, multimem_s_per_byte=0.0)}, "as no switch of"),
    ],
)
def test_what_is_no_operation_is_named(change, finding):
    schedule = made()
    found = replace(schedule, **change(schedule)).problems()
    assert any(finding in one for one in found), found


def test_operations_of_a_host_are_between_the_same_ranks():
    schedule = made()
    row = _first_of(schedule, REDUCE)
    fewer = only(schedule, np.arange(schedule.sends) != row)
    assert any("other ranks than those before it" in one for one in fewer.problems())


def test_sends_that_share_a_port_with_operations_are_found():
    schedule = made(kind="all_gather")
    plain = schedule.multimem.copy()
    plain[schedule.chunk == 3] = -1
    found = check(replace(schedule, multimem=ints(plain)))
    assert any("shares a port with operations of the switch" in one for one in found)


def test_a_reader_must_hold_its_own_part():
    schedule = made(kind="reduce", laps=1)
    others = every(np.arange(1, 8), schedule.collective.chunks)
    shape = custom(8, others, schedule.collective.targets, np.ones(schedule.collective.chunks, bool))
    lacking = replace(schedule, collective=shape)
    assert any("does not hold chunk 0 when it starts" in one for one in check(lacking))
    assert any("rank 0 reads a sum without its own part" in one for one in check(lacking, replay(schedule)))


def test_claimed_times_that_no_switch_keeps_are_found():
    schedule = made()
    timing = replay(schedule)
    row = _first_of(schedule, COPY)
    late_s = timing.start_s.copy()
    late_s[row] += 1e-6
    apart = replace(timing, start_s=late_s, arrival_s=timing.arrival_s + 1e-6, time_s=timing.time_s + 1e-6)
    assert any("is not at the same time as operation" in one for one in check(schedule, apart))
    faster = replace(timing, arrival_s=timing.start_s + (timing.arrival_s - timing.start_s) * 0.9)
    assert any("arrives sooner than its link allows" in one for one in check(schedule, faster))


def _mutant(schedule, draw):
    """Return the schedule with a row, or a whole operation, dropped, doubled, moved, or changed."""
    rows = np.arange(schedule.sends)
    number = schedule.multimem[draw.randrange(schedule.sends)]
    mine = schedule.multimem == number
    other = int(draw.choice(rows[~mine]))
    match draw.randrange(6):
        case 0:
            return only(schedule, ~mine)
        case 1:
            return only(schedule, np.concatenate([rows[mine], rows[~mine]]))
        case 2:
            return only(schedule, np.delete(rows, other))
        case 3:
            return replace(schedule, chunk=ints(np.where(mine, schedule.chunk[other], schedule.chunk)))
        case 4:
            flipped = np.where(mine, COPY + REDUCE - schedule.op, schedule.op).astype(np.uint8)
            return replace(schedule, op=flipped)
        case _:
            return replace(schedule, link=ints(np.where(rows == other, schedule.link[0], schedule.link)))


def _sums(schedule):
    """Return the ranks' contributions at the end, or None if a switch would refuse a row: an own model."""
    network, shape = schedule.network, schedule.collective
    if schedule.problems():
        return None
    counts = np.zeros((shape.chunks, network.ranks, network.ranks), int)
    counts[:, np.arange(network.ranks), np.arange(network.ranks)] = 1
    first, end = operations(schedule)
    for row in np.flatnonzero(first == np.arange(schedule.sends)).tolist():
        rows = slice(row, end[row])
        src, dst = network.src[schedule.link[rows]], network.dst[schedule.link[rows]]
        here = counts[schedule.chunk[row]]
        sent = here[src].copy()
        if schedule.op[row] == REDUCE:
            here[dst[0]] += sent.sum(axis=0)
        else:
            here[dst] = sent
    return counts


def test_mutants_are_accepted_only_if_they_give_the_right_sums():
    schedule, draw, refused = made(laps=1), random.Random(41), 0
    for _ in range(200):
        changed = _mutant(schedule, draw)
        counts = _sums(changed)
        right = counts is not None and bool((counts == 1).all())
        assert (check(changed) == []) == right
        refused += not right
    assert refused > 150
