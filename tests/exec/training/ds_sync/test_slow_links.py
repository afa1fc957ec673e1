"""Slow links: noticed by the times of groups, named by timing one link at a time."""

import itertools

import pytest
from racked_networks import SIZE_BYTES, racked

from exec.training.ds_sync.slow_links import group_times, have_changed, measured, tournament
from synth.groups.planner import adjust_groups, plan_groups


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 8])
def test_each_two_meet_once_and_none_twice_at_a_time(count):
    players = [3 * at for at in range(count)]
    rounds = tournament(players)
    assert sorted(itertools.chain.from_iterable(rounds)) == list(itertools.combinations(players, 2))
    for pairs in rounds:
        met = list(itertools.chain.from_iterable(pairs))
        assert len(met) == len(set(met))


@pytest.mark.parametrize(
    "racks, slow",
    [([4, 4, 4], {"slow_racks": [1]}), ([5, 4], {"slow_ranks": [2]}), ([6], {"slow_ranks": [0]})],
)
def test_measured_links_tell_what_is_slow(racks, slow):
    """A clock that knows the network's links finds what the network's own adjustment finds."""
    now = racked(racks, **slow)
    cost = {
        (src, dst): (alpha_s, beta)
        for src, dst, alpha_s, beta in zip(now.src, now.dst, now.alpha_s, now.beta_s_per_byte, strict=True)
    }
    rack_of = {rank: at for at, rack in enumerate(plan_groups(now, SIZE_BYTES).groups.racks) for rank in rack}
    asked = []

    def time(pairs):
        asked.append(pairs)
        crossing = [{rack_of[a], rack_of[b]} for a, b in pairs if rack_of[a] != rack_of[b]]
        assert sum(map(len, crossing)) == len(set().union(*crossing)), "two links over one trunk"
        return {pair: cost[pair] for pair in pairs}

    before = plan_groups(racked(racks), SIZE_BYTES).groups
    found = adjust_groups(before, measured(before, time))
    expected = adjust_groups(before, now)
    assert found.changed
    assert found.groups.iterations == expected.groups.iterations
    assert len(asked) < 2 * max(*racks, len(racks)), "not every two ranks"


def test_a_groups_time_is_that_of_the_rank_that_came_last():
    groups = plan_groups(racked([2, 2]), SIZE_BYTES, pattern="butterfly").groups
    times = group_times(groups, [{0: 3.0, 1: 1.0}, {0: 2.0, 1: 1.5}, {0: 1.0}, {}])
    assert times == {(0, (0, 1)): 2.0, (0, (2, 3)): 1.0, (1, (0, 2)): 1.0, (1, (1, 3)): 1.5}
    assert not have_changed(times, {key: 1.2 * value for key, value in times.items()})
    assert have_changed(times, times | {(0, (2, 3)): 1.3})
    assert have_changed(times, times | {(0, (2, 3)): 0.7})
    assert not have_changed(times, {})
