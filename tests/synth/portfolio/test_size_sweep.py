"""The size sweep: ranges without gaps, schedules that hold, and never a worse choice than a candidate."""

from dataclasses import replace
from itertools import pairwise

import pytest
from drawn_examples import drawn
from hypothesis import given, settings, strategies as st
from measured_host import measured_host

from probes.base.columns import bytes_of, ints
from probes.base.errors import UsageError
from synth import Request, synthesize
from synth.check.schedule import check
from synth.collective import collective
from synth.errors import NotApplicableError
from synth.networks.families import family
from synth.portfolio import plain, size_sweep
from synth.portfolio.size_sweep import candidates_of, sizes_between, timed
from synth.prediction.run_time import is_clearly_sooner, schedule_run_s
from synth.schedules import Race, Raced
from synth.simulation.schedule import replay

SIZES = sizes_between(1 << 10, 1 << 26, 256)
MESH = family("mesh:2x2", [1e-6], [50e9])


@pytest.fixture(scope="module", params=["all_reduce", "all_to_all"])
def swept(request):
    return synthesize(Request(MESH, request.param, sizes=SIZES))


def test_ranges_follow_one_another_from_the_first_size_to_the_last(swept):
    selection = swept.schedule
    assert selection.problems() == []
    assert (selection.ranges[0].from_bytes, selection.ranges[-1].to_bytes) == (SIZES[0], SIZES[-1])
    neighbours = pairwise(selection.ranges)
    assert all(a.algorithm != b.algorithm and a.to_bytes + 1 == b.from_bytes for a, b in neighbours)


def test_every_schedule_is_stored_once_and_used(swept):
    selection = swept.schedule
    assert {one.algorithm for one in selection.ranges} == set(range(len(selection.algorithms)))
    orders = [(one.chunk.tobytes(), one.link.tobytes(), one.op.tobytes()) for one in selection.algorithms]
    assert len(set(orders)) == len(orders) <= swept.candidates


def test_what_is_chosen_holds_at_both_ends_of_its_range(swept):
    for one in swept.schedule.ranges:
        for size in (one.from_bytes, one.to_bytes):
            schedule = swept.schedule.choose(size)
            assert check(schedule) == []
            assert schedule.collective.total_bytes(schedule.chunk_bytes) >= size


def test_no_size_is_slower_than_its_own_synthesis_by_more_than_a_switch_is_worth(swept):
    for point in swept.schedule.points:
        request = Request(
            MESH, swept.schedule.collective.kind, size_bytes=point.size_bytes, solving=False, sweeping=True
        )
        alone = synthesize(request).schedule.outcome
        assert point.time_s <= alone.time_s * 1.006
        assert point.bound_s <= point.time_s * (1 + 1e-9)


def test_the_points_are_what_the_simulator_says(swept):
    assert timed(swept.schedule).points == swept.schedule.points
    for point in swept.schedule.points:
        assert replay(swept.schedule.choose(point.size_bytes)).time_s == point.time_s


def test_a_switch_is_where_the_next_winner_is_ahead(swept):
    selection = swept.schedule
    for before, after in pairwise(selection.ranges):
        old = selection.algorithms[before.algorithm].scheduled(MESH, after.from_bytes)
        assert replay(selection.choose(after.from_bytes)).time_s < replay(old).time_s


def test_the_same_seed_gives_the_same_selection():
    request = Request(MESH, "all_reduce", seed=7, sizes=(1 << 10, 1 << 14))
    first, second = (synthesize(request).schedule for _ in range(2))
    assert (first.ranges, first.points) == (second.ranges, second.points)


def test_beyond_the_ends_the_nearest_range_serves(swept):
    selection = swept.schedule
    assert selection.choose(1).method == selection.choose(SIZES[0]).method
    assert selection.choose(1 << 40).method == selection.choose(SIZES[-1]).method
    with pytest.raises(NotApplicableError):
        selection.choose(0)


@settings(max_examples=drawn(50))
@given(st.integers(1, 1 << 40), st.integers(0, 1 << 40), st.floats(1.03, 100))
def test_sizes_rise_from_end_to_end(low, more, factor):
    sizes = sizes_between(low, low + more, factor)
    assert (sizes[0], sizes[-1]) == (low, low + more)
    assert all(a < b for a, b in pairwise(sizes))


@pytest.mark.parametrize("low, high, factor", [(0, 8, 2.0), (8, 4, 2.0), (1, 8, 1.0), (1, 8, float("nan"))])
def test_sizes_that_make_no_sense_are_refused(low, high, factor):
    with pytest.raises(UsageError, match=r"^(sizes|factor): "):
        sizes_between(low, high, factor)


@pytest.mark.parametrize(("high", "factor"), [(1 << 30, 1.0000001), (1 << 50, 1.01), (1 << 30, 1 + 2**-52)])
def test_a_sweep_has_a_bound_on_its_sizes(high, factor):
    with pytest.raises(UsageError, match="more than the 1000 sizes"):
        sizes_between(1 << 10, high, factor)


def test_what_a_selection_says_of_itself_fits(swept):
    selection = swept.schedule
    first = selection.points[0]
    others = [
        replace(selection, points=(replace(first, bound_s=2 * first.time_s),)),
        replace(selection, points=(replace(first, time_s=float("nan")),)),
        replace(selection, points=(first, first)),
    ]
    stray = replace(selection.algorithms[0], collective=collective("reduce", MESH.ranks, 1), chunk=ints([]))
    stray = replace(stray, link=ints([]), op=bytes_of([]))
    others.append(replace(selection, algorithms=(*selection.algorithms, stray)))
    if len(selection.algorithms) > 1:
        wrong = next(one for one in range(len(selection.algorithms)) if one != first.algorithm)
        others.append(replace(selection, points=(replace(first, algorithm=wrong),)))
    assert all(other.problems() for other in others)


def test_measured_winners_make_ranges_that_meet_between_their_sizes():
    full = family("fully_connected:4", [1e-6], [50e9])
    found = candidates_of(Request(full, "all_reduce", sizes=SIZES), library=True)
    methods = {one.method for one in found.at(SIZES[0])}
    # Both of these are the same sends of an all_reduce.
    assert "ring" in methods and methods & {"direct", "all_pairs"}
    winners = [0, *[1] * (len(SIZES) - 1)]
    races = [Race(size, ("here",), "library", 1, (Raced("any", 1, 1, 1.0, 1.0, 1.0, 1.0),)) for size in SIZES]
    libraries = [*[""] * (len(SIZES) - 1), "mpi"]
    selection = found.decided(list(zip(winners, libraries, races, strict=True))).schedule
    assert selection.problems() == []
    assert [(one.algorithm, one.library) for one in selection.ranges] == [(0, ""), (1, ""), (1, "mpi")]
    assert [selection.library(size) for size in SIZES] == libraries
    assert SIZES[0] < selection.ranges[1].from_bytes <= SIZES[1]
    assert [point.race for point in selection.points] == races


def test_on_one_host_what_is_too_long_to_predict_is_not_chosen(monkeypatch):
    # So two ranks try what is too long for it, as four do otherwise.
    most_sends = 3000
    monkeypatch.setattr(size_sweep, "MOST_SENDS", most_sends)
    monkeypatch.setattr(plain, "MOST_SENDS", most_sends)
    network = measured_host(2)
    sizes = (1 << 16, 1 << 24)
    found = synthesize(Request(network, "all_reduce", sizes=sizes))
    for size_bytes in sizes:
        alone = synthesize(Request(network, "all_reduce", size_bytes=size_bytes)).listed
        chosen = found.schedule.choose(size_bytes)
        assert alone.sends <= most_sends and chosen.sends <= most_sends
        assert not is_clearly_sooner(schedule_run_s(alone), schedule_run_s(chosen)), size_bytes


def test_on_one_host_no_method_by_name_is_predicted_clearly_sooner_than_what_a_sweep_chooses():
    request = Request(measured_host(), "all_reduce")
    selection = synthesize(replace(request, sizes=SIZES)).schedule
    for size_bytes in SIZES:
        chosen_s = schedule_run_s(selection.choose(size_bytes))
        for method in ("exchange", "ring", "direct", "tree"):
            other = synthesize(replace(request, method=method, size_bytes=size_bytes)).schedule
            assert not is_clearly_sooner(schedule_run_s(other), chosen_s), (method, size_bytes)
