"""A core that carries less than all hosts send together is found, though each pair alone is normal."""

from dataclasses import replace

import numpy as np
import pytest
from accepted_clusters import BETA, cluster_profile

from exec.acceptance import Measured, Terms, bought, judge
from exec.acceptance.concurrent import crowded_flows, expected_s
from probes.base import floats, ints
from probes.link_costs import ConcurrentFlows
from probes.localization import Bought, FabricPlan, Fault
from probes.profiling import flows_of

HOSTS = tuple(f"gpu{at + 1}" for at in range(8))
PLAN = FabricPlan({"a": HOSTS[:4], "b": HOSTS[4:]})
SIZE = 1 << 20


def measured(level=1.0, slots=1, waited=0.0, **faulty):
    """A profile of sound links, whose flows across the middle reach a share of the normal rate."""
    profile = cluster_profile(HOSTS, slots, **faulty)
    hosts = [rank.host for rank in profile.ranks]
    found = []
    for name, pairs in flows_of(hosts, {}).items():
        src, dst = map(ints, map(list, zip(*pairs, strict=True)))
        times = np.full(len(pairs), BETA * SIZE * slots / (1.0 if name == "all NICs" else level))
        found.append(ConcurrentFlows(name, src, dst, SIZE, floats(times), waited))
    return replace(profile, concurrent=tuple(found))


def found(profile, spec=None, plan=None, faults=()):
    return [(one.severity, one.text) for one in crowded_flows(profile, spec, plan, faults)]


def test_a_sound_core_has_no_culprit():
    assert found(measured()) == found(measured(), plan=PLAN) == []
    assert list(measured().problems()) == []


def test_an_oversubscribed_core_is_a_remark_and_against_a_plan_a_fault():
    said = found(measured(0.5))
    assert [severity for severity, _ in said] == ["remark", "remark"]
    assert all("50 % of the normal" in text for _, text in said)
    wide = replace(PLAN, trunk_bytes_per_s=4 / BETA)
    assert [severity for severity, _ in found(measured(0.5), plan=wide)] == ["fault", "fault"]
    # This trunk is as thin as planned.
    goodput = Bought("").goodput
    thin = replace(PLAN, trunk_bytes_per_s=2 / BETA / goodput)
    assert found(measured(0.5), plan=thin) == []


def test_ranks_share_the_nics_that_were_bought():
    spec = bought("100Mbit/s")
    profile = measured(0.5, slots=2)
    assert found(profile) == []
    assert [severity for severity, _ in found(profile, spec)] == ["remark", "remark"]
    flows = profile.concurrent[1]
    one = expected_s(flows, profile, spec, FabricPlan())
    two = expected_s(flows, profile, replace(spec, nics=2), FabricPlan())
    assert np.allclose(one, 2 * two)


@pytest.mark.parametrize("kind", ["trunk", "fabric"])
def test_nothing_is_said_twice_or_of_ranks_that_waited(kind):
    assert found(measured(0.5), faults=[Fault(kind, ())]) == []
    assert found(measured(0.5, waited=0.6)) == []
    assert found(measured(0.6, waited=0.3)) == []


def test_flows_over_faulty_links_are_left_out():
    profile = measured(0.5)
    across = {
        (int(src), int(dst))
        for one in profile.concurrent[1:]
        for src, dst in zip(one.src, one.dst, strict=True)
    }
    links = zip(profile.links.src.tolist(), profile.links.dst.tolist(), strict=True)
    rows = tuple(row for row, pair in enumerate(links) if pair in across)
    assert found(profile, faults=[Fault("egress", ("gpu1",), rows=rows)]) == []


def test_the_verdict_names_the_core_and_no_host():
    wide = replace(PLAN, trunk_bytes_per_s=4 / BETA)
    certificate = judge(Measured(profile=measured(0.5)), Terms(plan=wide))
    assert certificate.verdict == "refused"
    assert {(one.kind, one.hosts) for one in certificate.culprits} == {("core", ())}
