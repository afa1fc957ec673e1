"""Groups of a step: what they lose to each other, and plans that are right."""

from __future__ import annotations

import pytest
from drawn_examples import drawn
from hypothesis import given, settings, strategies as st
from sample_networks import named, networks

from probes.base.errors import UsageError
from synth.bounds import upgraded
from synth.check import check
from synth.network import Link, build
from synth.portfolio.request import CollectiveRequest
from synth.side_by_side import StepGroup, routed, side_by_side

KINDS = ("all_gather", "reduce_scatter", "all_reduce", "broadcast", "all_to_all")


@st.composite
def steps(draw, ranks):
    """Return two or three groups with ranks, sizes and releases of their own."""
    found = []
    for number in range(draw(st.integers(2, 3))):
        members = tuple(sorted(draw(st.sets(st.integers(0, ranks - 1), min_size=2))))
        request = CollectiveRequest(draw(st.sampled_from(KINDS)), members[0], members)
        size, release_s = draw(st.sampled_from([4096, 100_000])), draw(st.sampled_from([0.0, 2e-5]))
        found.append(StepGroup(f"g{number}", request, size, release_s))
    return found


@settings(deadline=None, max_examples=3)
@given(data=st.data(), network=networks(most_ranks=4))
def test_plans_are_proven_and_the_whole_is_no_slower_than_unaware(data, network):
    groups = data.draw(steps(network.ranks))
    found = side_by_side(network, groups)
    for group, schedule in zip(groups, found.schedules, strict=True):
        assert check(schedule) == []
        assert schedule.network is network
        assert set(schedule.collective.participants) == set(group.request.members or range(network.ranks))
    assert found.together_s <= found.ignoring_s * (1 + 1e-9)
    assert found.together_s <= max(routed(network, groups)[1]) * (1 + 2e-3)
    assert found.together_s >= max(group.release_s for group in groups)
    assert [price.saves_s for price in found.prices] == sorted(
        (price.saves_s for price in found.prices), reverse=True
    )


def test_groups_that_share_nothing_lose_nothing():
    halves = [CollectiveRequest("all_reduce", 0, (0, 1)), CollectiveRequest("all_gather", 3, (2, 3, 4, 5))]
    found = side_by_side(
        named("switch"), [StepGroup("a", halves[0], 1 << 20), StepGroup("b", halves[1], 1 << 16)]
    )
    assert [times.lost for times in found.times] == pytest.approx([1.0, 1.0])


def test_two_groups_on_one_link_take_twice_as_long_unless_one_goes_another_way():
    direct = [Link(0, 1, 0.0, 1e-9), Link(1, 0, 0.0, 1e-9)]
    pair = CollectiveRequest("broadcast", 0, (0, 1))
    groups = [StepGroup("a", pair, 1 << 20), StepGroup("b", pair, 1 << 20)]
    found = side_by_side(build("pair", ["a", "b"], direct), groups)
    assert [times.lost for times in found.times] == pytest.approx([2.0, 2.0])
    later = [groups[0], StepGroup("b", pair, 1 << 20, release_s=1.0)]
    apart = side_by_side(build("pair", ["a", "b"], direct), later)
    assert [times.lost for times in apart.times] == pytest.approx([1.0, 1.0])
    assert apart.together_s == pytest.approx(1.0 + apart.times[1].alone_s)


def test_groups_with_equal_links_take_over_each_others_plans():
    sets = [(0, 1, 2), (3, 4, 5)]
    groups = [
        StepGroup(f"{kind} {at}", CollectiveRequest(kind, members[1], members), 1 << 16, release_s=number)
        for number, kind in enumerate(KINDS)
        for at, members in enumerate(sets)
    ]
    found = side_by_side(named("switch"), groups)
    for one, other in zip(found.singly[::2], found.singly[1::2], strict=True):
        assert check(other) == []
        assert other.method == one.method
        assert (named("switch").src[other.link] == named("switch").src[one.link] + 3).all()
    assert [times.alone_s for times in found.times[::2]] == [times.alone_s for times in found.times[1::2]]


def test_a_step_without_groups_is_refused():
    with pytest.raises(UsageError, match="at least one group"):
        side_by_side(named("pair"), [])


def test_a_price_is_what_the_step_planned_again_saves(monkeypatch):
    monkeypatch.setattr("synth.side_by_side._FEW_GROUPS", 0)
    links = [Link(a, b, 1e-6, 1e-9 * (1 + (a + b) % 3)) for a in range(3) for b in range(3) if a != b]
    network = build("three", list("abc"), links)
    groups = [
        StepGroup("all", CollectiveRequest("all_reduce"), 1 << 16),
        StepGroup("pair", CollectiveRequest("all_gather", 0, (0, 1)), 1 << 15),
    ]
    found = side_by_side(network, groups)
    assert found.prices
    for price in found.prices:
        faster = upgraded(network, price.part, price.more_bytes_per_s)
        schedules, ends_s = routed(faster, groups)
        assert [check(schedule) for schedule in schedules] == [[], []]
        assert 0 < found.together_s - price.saves_s <= max(ends_s) * 1.05


@settings(deadline=None, max_examples=drawn(40))
@given(data=st.data(), network=networks(most_ranks=6))
def test_plans_along_the_routes_of_a_step_are_right(data, network):
    groups = data.draw(steps(network.ranks))
    schedules, ends_s = routed(network, groups)
    for group, schedule, end_s in zip(groups, schedules, ends_s, strict=True):
        assert check(schedule) == []
        assert schedule.collective.total_bytes(schedule.chunk_bytes) >= group.size_bytes
        assert end_s >= group.release_s


def test_along_their_routes_groups_end_near_the_time_of_perfect_sharing(monkeypatch):
    monkeypatch.setattr("synth.side_by_side._FEW_GROUPS", 0)
    pairs = [(0, 1, 8), (1, 2, 2), (3, 4, 1), (4, 5, 8), (0, 3, 8), (1, 4, 8), (2, 5, 4)]
    links = [Link(*way, 5e-6, 1e-9 / rate) for a, b, rate in pairs for way in ((a, b), (b, a))]
    network = build("mesh", list("abcdef"), links)
    groups = [
        StepGroup("moe", CollectiveRequest("all_to_all", 0, (0, 2, 3)), 8 << 20),
        StepGroup("gather", CollectiveRequest("all_gather", 0, (0, 1, 2, 3, 5)), 8 << 20, 2e-3),
        StepGroup("data", CollectiveRequest("all_reduce"), 8 << 20, 2e-3),
    ]
    found = side_by_side(network, groups)
    assert max(routed(network, groups)[1]) <= found.least_s * 1.05
    assert found.together_s <= found.least_s * 1.05
