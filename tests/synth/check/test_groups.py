"""The judge of groups: it finds each kind of lie, and proves Lemma IV.1 where numbers bear it out."""

from dataclasses import replace

import numpy as np
import pytest
from racked_networks import SIZE_BYTES, racked

from synth.check.groups import examine_groups, lemma_holds_from
from synth.groups.consensus_rate import consensus, mixing_product
from synth.groups.planner import plan_groups
from synth.network import Link, build

GROUPS = plan_groups(racked([5] * 3, slow_ranks=[4], slow_racks=[1]), SIZE_BYTES).groups


def findings(**changes):
    return "\n".join(examine_groups(replace(GROUPS, **changes)).findings)


def test_what_is_right_is_proven():
    assert findings() == ""


@pytest.mark.parametrize("name", ["rho", "distance", "predicted_s"])
def test_claims_are_recomputed(name):
    assert findings(**{name: getattr(GROUPS, name) * 0.9}).startswith(name)


@pytest.mark.parametrize("sizes", [[5] * 3, [2, 2], [7, 2], [1, 1, 1]])
@pytest.mark.parametrize("layers", [1, 20])
def test_the_time_is_the_planners_which_shares_no_code(sizes, layers):
    groups = plan_groups(racked(sizes), SIZE_BYTES, layers=layers).groups
    assert groups.layers == layers and groups.predicted_s > 0
    assert examine_groups(groups).findings == ()
    slow = examine_groups(replace(groups, predicted_s=groups.predicted_s * (1 + 1e-5))).findings
    assert [finding.split(":")[0] for finding in slow] == ["predicted_s"]


def test_a_network_without_all_links_is_refused():
    network = build("line", ["a", "b", "c"], [Link(0, 1, 0, 1e-9), Link(1, 2, 0, 1e-9), Link(2, 0, 0, 1e-9)])
    groups = plan_groups(racked([1, 1, 1]), SIZE_BYTES).groups
    assert "line: expected a link from each rank to each other, found none from 0 to 2" in "\n".join(
        examine_groups(replace(groups, network=network)).findings
    )


def test_ranks_that_never_meet_are_named():
    alone = tuple((rank,) for rank in range(1, 15))
    apart = tuple(((0,), *alone) for _ in range(2))
    assert "rank 1 never hears of rank 0" in findings(iterations=apart)


def test_the_rules_of_representatives():
    together = ((tuple(range(15))),)
    told = findings(iterations=(together,))
    for words in ("rack 0 has 5 representatives", "rank 4 represents its rack", "slow rack 1 is in"):
        assert words in told


def test_ranks_that_average_with_none_are_a_caution():
    groups = plan_groups(racked([2, 2]), SIZE_BYTES).groups
    verdict = examine_groups(groups)
    assert verdict.findings == () and "average alone" in verdict.cautions[0]


@pytest.mark.parametrize("sizes", [[4, 4], [3, 3, 3], [7, 2], [1, 1, 1], [2, 2]])
def test_the_lemma_in_numbers(sizes):
    groups = plan_groups(racked(sizes), SIZE_BYTES).groups
    period = mixing_product(groups.ranks, groups.iterations)
    first = lemma_holds_from(period, groups.rho)
    assert first is not None
    start = np.random.default_rng(5).normal(size=(groups.ranks, 20))
    values, mean = start, start.mean(axis=0)
    for k in range(1, 12):
        values = period @ values
        worst = ((values - mean) ** 2).max(axis=0)
        assert k < first or (worst <= groups.rho**k * (start**2).sum(axis=0) + 1e-24).all()


def test_a_lemma_that_numbers_do_not_bear_out_is_not_proven():
    groups = plan_groups(racked([4, 4]), SIZE_BYTES).groups
    too_good = consensus(groups.ranks, groups.iterations).rho ** 2.1
    assert lemma_holds_from(mixing_product(groups.ranks, groups.iterations), too_good) is None
