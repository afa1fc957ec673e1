"""Plans of DS-Sync's groups: they agree, follow Sec. III-B, and change only where bandwidth has."""

from dataclasses import replace

import numpy as np
import pytest
from racked_networks import SIZE_BYTES, racked

from synth.check.groups import examine_groups
from synth.errors import NotApplicableError
from synth.groups.consensus_rate import average
from synth.groups.planner import PATTERNS, adjust_groups, plan_groups
from synth.networks.families import family

NETWORKS = {
    "two racks of four": racked([4, 4]),
    "no port shows the trunk": racked([4, 4], trunks=False),
    "four racks of eight": racked([8] * 4),
    "racks of two": racked([2] * 4),
    "two racks of two": racked([2, 2]),
    "a pair": racked([1, 1]),
    "racks of one": racked([1] * 5),
    "three racks of three": racked([3] * 3),
    "uneven": racked([7, 3, 2, 1]),
    "two, and four": racked([2, 4]),
    "one rack": racked([6]),
    "one rack, a slow rank": racked([6], slow_ranks=[2]),
    "a slow rank in five": racked([5, 3], slow_ranks=[4]),
    "a slow rank in a pair": racked([2, 4], slow_ranks=[1]),
    "three slow ranks": racked([8, 8], slow_ranks=[1, 2, 9]),
    "a slow rack": racked([4] * 4, slow_racks=[0]),
    "two slow racks of five": racked([3] * 5, slow_racks=[1, 3]),
    "a slow rack of three": racked([3] * 3, slow_racks=[2]),
    "all at once": racked([5, 4, 3, 2], slow_racks=[0], slow_ranks=[1]),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_every_plan_is_proven(name):
    network = NETWORKS[name]
    planned = plan_groups(network, SIZE_BYTES)
    groups = planned.groups
    assert groups.problems() == []
    verdict = examine_groups(groups)
    assert verdict.findings == ()
    assert groups.rho < 1 and verdict.lemma_from is not None
    # Averaging keeps the mean of the replicas, and brings them together.
    replicas = np.random.default_rng(3).normal(size=(network.ranks, 5))
    first = replicas
    for at in range(40 * groups.period):
        replicas = average(replicas, groups.iterations[at % groups.period])
        np.testing.assert_allclose(replicas.mean(axis=0), first.mean(axis=0), atol=1e-12)
    assert np.ptp(replicas, axis=0).max() < np.ptp(first, axis=0).max() * max(1e-9, 20 * groups.rho**39)


@pytest.mark.parametrize("racks, ranks, rho, distance", [(2, 4, 0.1975, 0.2963), (4, 8, 0.2914, 0.3399)])
def test_consensus_of_the_static_pattern(racks, ranks, rho, distance):
    groups = plan_groups(racked([ranks] * racks), SIZE_BYTES).groups
    assert (groups.pattern, groups.period) == ("representatives", ranks)
    assert (groups.rho, groups.distance) == (pytest.approx(rho, abs=1e-4), pytest.approx(distance, abs=1e-4))


def test_racks_of_two_are_refused_and_replaced():
    network = racked([2] * 4)
    with pytest.raises(NotApplicableError, match=r"rho = 1.*\(0, 2, 4, 6\).*\(1, 3, 5, 7\)"):
        plan_groups(network, SIZE_BYTES, pattern="representatives")
    planned = plan_groups(network, SIZE_BYTES)
    assert planned.groups.pattern != "representatives" and planned.groups.rho < 1
    assert "not the paper's pattern" in planned.remarks[0]


def test_one_group_of_all_ranks_is_replaced_where_small_groups_take_less():
    planned = plan_groups(racked([8]), SIZE_BYTES)
    assert planned.groups.pattern == "butterfly" and planned.groups.rho == 0
    assert "all ranks in one group" in planned.remarks[0]
    whole = plan_groups(racked([8]), SIZE_BYTES, pattern="representatives")
    assert whole.groups.iterations == ((tuple(range(8)),),) and whole.remarks == ()
    assert planned.groups.predicted_s < whole.groups.predicted_s
    # Five ranks divide into no equal groups, so one group is as fast as any.
    assert plan_groups(racked([5]), SIZE_BYTES).remarks == ()


def test_the_papers_pattern_stays_where_another_takes_less_time():
    planned = plan_groups(racked([4, 4]), SIZE_BYTES)
    alternating = plan_groups(racked([4, 4]), SIZE_BYTES, pattern="alternating")
    assert planned.groups.pattern == "representatives"
    assert alternating.groups.predicted_s < planned.groups.predicted_s
    assert alternating.groups.rho > planned.groups.rho


def test_a_period_too_short_to_agree_is_refused():
    with pytest.raises(NotApplicableError, match="rho = 1"):
        plan_groups(racked([4, 4]), SIZE_BYTES, period=1)
    assert plan_groups(racked([4, 4]), SIZE_BYTES, period=2).groups.rho < 1
    with pytest.raises(NotApplicableError, match="period"):
        plan_groups(racked([4, 4]), SIZE_BYTES, period=0)


@pytest.mark.parametrize("name", PATTERNS)
def test_each_pattern_that_fits_is_proven(name):
    groups = plan_groups(racked([4, 4]), SIZE_BYTES, pattern=name).groups
    assert examine_groups(groups).findings == ()
    if name in ("butterfly", "mixed_radix"):
        assert (groups.period, groups.rho, groups.distance) == (3, 0.0, 0.0)


def test_mixed_radix_is_exact_for_any_equal_racks():
    groups = plan_groups(racked([6] * 5), SIZE_BYTES, pattern="mixed_radix").groups
    assert [max(map(len, division)) for division in groups.iterations] == [2, 3, 5]
    assert groups.distance == 0.0
    with pytest.raises(NotApplicableError, match="powers of two"):
        plan_groups(racked([6] * 5), SIZE_BYTES, pattern="butterfly")
    with pytest.raises(NotApplicableError, match="one size"):
        plan_groups(racked([4, 2]), SIZE_BYTES, pattern="mixed_radix")


def test_a_rank_with_a_slow_nic_stays_in_a_pair_of_its_rack():
    groups = plan_groups(racked([6, 4], slow_ranks=[4]), SIZE_BYTES).groups
    assert groups.slow_ranks == (4,)
    partners = {groups.group_of(4, at) for at in range(groups.period)}
    assert all(len(pair) == 2 and set(pair) <= set(range(6)) for pair in partners)
    assert len(partners) == 5, "the large group exchanges ranks with the small one"


def test_a_slow_racks_representative_meets_one_other_each_time():
    groups = plan_groups(racked([4] * 4, slow_racks=[1]), SIZE_BYTES).groups
    assert groups.slow_racks == (1,)
    met = set()
    for division in groups.iterations:
        [crossing] = [g for g in division if {r // 4 for r in g} >= {1} and len({r // 4 for r in g}) > 1]
        assert len(crossing) == 2
        met |= {rank // 4 for rank in crossing}
    assert met == {0, 1, 2, 3}


def test_groups_stay_while_bandwidth_does():
    planned = plan_groups(racked([5] * 3), SIZE_BYTES)
    noise = 1 + 0.1 * np.random.default_rng(1).random(planned.groups.network.links)
    network = planned.groups.network
    again = adjust_groups(planned.groups, replace(network, beta_s_per_byte=network.beta_s_per_byte * noise))
    assert not again.changed and again.groups.iterations == planned.groups.iterations
    assert again.groups.predicted_s > planned.groups.predicted_s
    assert examine_groups(again.groups).findings == ()


def test_groups_change_with_bandwidth_and_come_back_with_hysteresis():
    before = plan_groups(racked([5] * 3), SIZE_BYTES).groups
    slow = adjust_groups(before, racked([5] * 3, slow_ranks=[2], slow_racks=[1]))
    assert slow.changed and (slow.groups.slow_ranks, slow.groups.slow_racks) == ((2,), (1,))
    assert examine_groups(slow.groups).findings == ()
    nearly = adjust_groups(slow.groups, racked([5] * 3, slow_ranks=[2], slow_racks=[1], slowness=1.4))
    assert not nearly.changed, "slower by 1.4 is not enough to become slow, but enough to stay so"
    assert not adjust_groups(before, racked([5] * 3, slow_ranks=[2], slowness=1.4)).changed
    healed = adjust_groups(slow.groups, racked([5] * 3))
    assert healed.changed and healed.groups.iterations == before.iterations


def test_other_hosts_than_before_are_refused():
    groups = plan_groups(racked([4, 4]), SIZE_BYTES).groups
    with pytest.raises(NotApplicableError, match="same hosts"):
        adjust_groups(groups, racked([4, 5]))


def test_a_network_with_ranks_that_no_link_joins_is_refused():
    with pytest.raises(NotApplicableError, match="from each rank to each other, found none from 0 to 2"):
        plan_groups(family("ring:6", [0.0], [1e9]), SIZE_BYTES)


def test_adjusted_groups_take_less_than_those_that_know_nothing():
    network = racked([4] * 4, slow_racks=[0])
    from synth.groups.costs import AveragingCosts
    from synth.groups.patterns import RackLayout, representatives

    groups = plan_groups(network, SIZE_BYTES).groups
    costs = AveragingCosts(network, groups.racks, SIZE_BYTES)
    assert groups.predicted_s < costs.mean_s(representatives(RackLayout(groups.racks)))
