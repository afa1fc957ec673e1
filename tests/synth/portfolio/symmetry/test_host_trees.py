"""All_reduces on machines with failed ranks and links: proven for the other ranks, near the bound."""

from __future__ import annotations

import functools

import pytest
from symmetric_samples import folded

from synth.bounds.lower_bounds import bounds
from synth.check.schedule import check
from synth.collective import collective
from synth.errors import NotApplicableError
from synth.networks.dgx import pod
from synth.networks.failures import Failures, without
from synth.portfolio.symmetry.host_trees import (
    all_reduce_with_failures,
    bounds_with_failures,
    serves_failures,
)
from synth.schedules import PeriodicSchedule

HIT = (
    Failures(),
    Failures((9,)),
    Failures((9, 17, 30), ((0, 1),)),
    Failures((8, 9, 10, 11, 12, 13, 14, 15)),
    Failures((1, 2, 3, 4, 5, 6, 7), ((16, 17), (17, 16), (18, 16))),
)


@functools.cache
def _made(failures: Failures) -> PeriodicSchedule:
    return all_reduce_with_failures(folded("dgx-a100:4"), failures, 64 << 20)


@pytest.mark.parametrize("failures", HIT, ids=str)
def test_it_is_proven_and_uses_nothing_that_has_failed(failures: Failures) -> None:
    found = _made(failures)
    assert check(found) == []
    network = found.network
    pairs = set(zip(network.src.tolist(), network.dst.tolist(), strict=True))
    assert not pairs & set(failures.links)
    assert not {rank for pair in pairs for rank in pair} & set(failures.ranks)
    for periods in (1, 3):
        assert check(found.expanded(periods)) == []


@pytest.mark.parametrize("failures", HIT, ids=str)
def test_bounds_are_no_more_than_those_of_the_plain_network(failures: Failures) -> None:
    size_bytes = 64 << 20
    left = without(pod("dgx-a100:4"), failures)
    members = [rank for rank in range(32) if rank not in failures.ranks]
    theirs = bounds(left, collective("all_reduce", 32, 1, members[0], members), size_bytes, fluid=True)
    ours = bounds_with_failures(folded("dgx-a100:4"), failures, size_bytes)
    found = _made(failures)
    assert found.outcome is not None
    assert max(bound.time_s for bound in ours) <= found.outcome.time_s
    assert theirs[0].time_s <= found.outcome.time_s


def test_three_ranks_of_many_cost_little() -> None:
    found = all_reduce_with_failures(folded("dgx-h100:32"), Failures((9, 30, 50), ((16, 17),)), 1 << 30)
    assert found.outcome is not None
    assert found.outcome.percent_of_optimal >= 95


@pytest.mark.parametrize("failures", HIT, ids=str)
def test_rails_bound_it_by_the_nics_as_one_switch_does(failures: Failures) -> None:
    rails, switch = (
        bounds_with_failures(folded(spec), failures, 64 << 20) for spec in ("dgx-a100:4/rail", "dgx-a100:4")
    )
    assert [(one.name, one.time_s) for one in rails] == [(one.name, one.time_s) for one in switch]
    assert len(rails) == 2
    oversubscribed = bounds_with_failures(folded("dgx-a100:4/rail/2"), failures, 64 << 20)
    assert [one.time_s for one in oversubscribed] == [one.time_s for one in switch]


@pytest.mark.parametrize(("spec", "percent"), [("dgx-a100:4/rail", 80), ("dgx-h100:16/rail/2", 70)])
def test_trees_on_rails_avoid_the_spine(spec: str, percent: int) -> None:
    found = all_reduce_with_failures(folded(spec), Failures((9, 17), ((0, 1),)), 256 << 20)
    assert check(found) == []
    assert found.outcome is not None and found.outcome.percent_of_optimal > percent
    assert not [port for port in found.network.ports if port.startswith(("up", "down"))]


def test_a_rank_without_links_in_its_host_is_told() -> None:
    cut = tuple((0, rank) for rank in range(1, 8))
    with pytest.raises(NotApplicableError, match="inside its host"):
        all_reduce_with_failures(folded("dgx-a100:4"), Failures((), cut), 1 << 20)
    with pytest.raises(NotApplicableError, match="fewer than two"):
        all_reduce_with_failures(folded("dgx-a100:2"), Failures(tuple(range(1, 16))), 1 << 20)


def test_what_is_served_is_known_beforehand() -> None:
    assert serves_failures(folded("dgx-h100:512"), "all_reduce")
    assert not serves_failures(folded("dgx-h100:512"), "all_gather")
    assert not serves_failures(folded("dgx-h100:4"), "all_reduce")
    assert not serves_failures(folded("torus:64x32x32"), "all_reduce")
