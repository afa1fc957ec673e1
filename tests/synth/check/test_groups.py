"""The judge of groups: it finds each kind of lie, and proves Lemma IV.1 where numbers bear it out."""

from dataclasses import replace

import numpy as np
import pytest
from racked_networks import SIZE_BYTES, racked

from synth.check.groups import examine_groups
from synth.groups.consensus_rate import consensus, lemma_holds_from, mixing_product
from synth.groups.planner import plan_groups

GROUPS = plan_groups(racked([5] * 3, slow_ranks=[4], slow_racks=[1]), SIZE_BYTES).groups


def findings(**changes):
    return "\n".join(examine_groups(replace(GROUPS, **changes)).findings)


def test_what_is_right_is_proven():
    assert findings() == ""


@pytest.mark.parametrize("name", ["rho", "distance", "predicted_s"])
def test_claims_are_recomputed(name):
    assert findings(**{name: getattr(GROUPS, name) * 0.9}).startswith(name)


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
    assert verdict.findings == () and "average with none" in verdict.cautions[0]


@pytest.mark.parametrize("sizes", [[4, 4], [3, 3, 3], [7, 2], [1, 1, 1], [2, 2]])
def test_the_lemma_in_numbers(sizes):
    groups = plan_groups(racked(sizes), SIZE_BYTES).groups
    first = lemma_holds_from(groups.ranks, groups.iterations, groups.rho)
    assert first is not None
    period = mixing_product(groups.ranks, groups.iterations)
    start = np.random.default_rng(5).normal(size=(groups.ranks, 20))
    values, mean = start, start.mean(axis=0)
    for k in range(1, 12):
        values = period @ values
        worst = ((values - mean) ** 2).max(axis=0)
        assert k < first or (worst <= groups.rho**k * (start**2).sum(axis=0) + 1e-24).all()


def test_a_lemma_that_numbers_do_not_bear_out_is_not_proven():
    groups = plan_groups(racked([4, 4]), SIZE_BYTES).groups
    too_good = consensus(groups.ranks, groups.iterations).rho ** 2.1
    assert lemma_holds_from(groups.ranks, groups.iterations, too_good) is None
