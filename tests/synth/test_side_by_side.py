"""Groups of a step: what they lose to each other, and plans that are right."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st
from sample_networks import named, networks

from probes.base.errors import UsageError
from synth.bounds import parts_of, upgraded
from synth.check import check
from synth.network import Link, build
from synth.portfolio.request import CollectiveRequest
from synth.side_by_side import StepGroup, replanned, side_by_side
from synth.simulation import replay_together

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
@given(data=st.data(), network=networks(most_ranks=5))
def test_plans_are_proven_and_the_whole_is_no_slower_than_unaware(data, network):
    groups = data.draw(steps(network.ranks))
    found = side_by_side(network, groups)
    for group, schedule in zip(groups, found.schedules, strict=True):
        assert check(schedule) == []
        assert schedule.network is network
        assert set(schedule.collective.participants) == set(group.request.members or range(network.ranks))
    assert found.together_s <= found.ignoring_s * (1 + 1e-9)
    assert found.together_s >= max(group.release_s for group in groups)
    assert [price.saves_s for price in found.prices] == sorted(
        (price.saves_s for price in found.prices), reverse=True
    )


def test_groups_that_share_nothing_lose_nothing():
    halves = [CollectiveRequest("all_reduce", 0, (0, 1, 2)), CollectiveRequest("all_reduce", 3, (3, 4, 5))]
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


def test_a_step_without_groups_is_refused():
    with pytest.raises(UsageError, match="at least one group"):
        side_by_side(named("pair"), [])


def test_plans_for_a_faster_link_are_right_and_no_slower():
    links = [Link(a, b, 1e-6, 1e-9 * (1 + (a + b) % 3)) for a in range(4) for b in range(4) if a != b]
    network = build("four", list("abcd"), links)
    groups = [
        StepGroup("all", CollectiveRequest("all_reduce"), 1 << 20),
        StepGroup("pair", CollectiveRequest("all_gather", 0, (0, 1)), 1 << 20),
    ]
    found = side_by_side(network, groups)
    for part in parts_of(network)[:2]:
        faster = upgraded(network, part, 1e9)
        again = replanned(faster, groups, found.schedules)
        assert [check(schedule) for schedule in again] == [[], []]
        ends_s = [timing.time_s for timing in replay_together(faster, again, [0.0, 0.0])]
        assert max(ends_s) <= found.together_s * (1 + 1e-9)
