"""Bounds where switches sum and copy: no schedule beats them, and schedules of switches come near them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from synth.bounds import bounds, crossing
from synth.collective import collective
from synth.errors import NotApplicableError
from synth.methods import direct, doubling, hierarchical, nvls, ring
from synth.networks.dgx import pod
from synth.schedules import Bound
from synth.simulation import replay

METHODS = {
    "nvls": nvls.synthesize,
    "direct": direct.synthesize,
    "all_pairs": direct.all_pairs,
    "doubling": doubling.synthesize,
    "halving_doubling": doubling.halving_doubling,
    "hierarchical": hierarchical.synthesize,
    "ring": ring.synthesize,
}


def all_reduce(spec, laps, size_bytes):
    network = pod(spec)
    shape = collective("all_reduce", network.ranks, laps * network.ranks)
    return nvls.synthesize(network, shape, -(-size_bytes // shape.chunks))


@pytest.mark.parametrize(
    "spec", ["dgx-h100+nvls", "dgx-h100+nvls:2", "dgx-h100+nvls/2x400:3", "h20+nvls:2/rail"]
)
@pytest.mark.parametrize("size_bytes", [1 << 10, 1 << 16, 1 << 22, 1 << 28])
def test_no_schedule_beats_them(spec, size_bytes):
    network, served = pod(spec), set()
    for laps in (1, 4):
        shape = collective("all_reduce", network.ranks, laps * network.ranks)
        chunk_bytes = -(-size_bytes // shape.chunks)
        proven = [
            bound for fluid in (False, True) for bound in bounds(network, shape, chunk_bytes, fluid=fluid)
        ]
        assert "ports of switches" in {bound.name for bound in proven}
        for name, method in METHODS.items():
            try:
                time_s = replay(method(network, shape, chunk_bytes)).time_s
            except NotApplicableError:
                continue
            served.add(name)
            assert max(bound.time_s for bound in proven) <= time_s * (1 + 1e-9), name
    assert {"nvls", "direct", "ring"} <= served


@pytest.mark.parametrize("spec", ["dgx-h100+nvls", "dgx-b200+nvls", "dgx-h100+nvls:2", "dgx-h100+nvls:8"])
def test_large_all_reduces_come_near_them(spec):
    schedule = all_reduce(spec, 32, 1 << 30)
    largest = bounds(schedule.network, schedule.collective, schedule.chunk_bytes, fluid=True)[0]
    assert 0.88 < largest.time_s / replay(schedule).time_s <= 1


def test_eight_h100_reach_the_published_bus_bandwidth():
    """480 GB/s with NVLink SHARP, where rings reach 370 of 450 GB/s (nccl-tests on DGX H100)."""
    busbw = 1.75 * (1 << 30) / replay(all_reduce("dgx-h100+nvls", 64, 1 << 30)).time_s / 1e9
    assert busbw * 370 / 450 == pytest.approx(480, rel=0.03)


def test_those_of_ranks_alone_would_be_beaten():
    schedule = all_reduce("dgx-h100+nvls", 64, 512 << 20)
    alone = replace(schedule.network, multimem_s_per_byte=0.0)
    assert bounds(alone, schedule.collective, 1 << 20)[0].time_s > replay(schedule).time_s


def test_what_crosses_ranks_and_latency_hold_for_switches_too():
    names = ("latency", "ingress of rank 3", "total traffic", "cut of 4", "spanning trees", "partition")
    found = crossing(Bound(name, 1.0) for name in names)
    assert [bound.name for bound in found] == ["latency", "ingress of rank 3", "cut of 4"]


def test_other_collectives_have_only_those():
    network = pod("dgx-h100+nvls:2")
    for kind in ("all_gather", "reduce_scatter", "broadcast", "all_to_all"):
        found = bounds(network, collective(kind, network.ranks, network.ranks), 1 << 20, fluid=True)
        assert found and crossing(found) == found
