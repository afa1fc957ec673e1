"""Rows against what their network allows: bounds at every size, verdicts, and ranks that fit."""

from dataclasses import replace

import pytest
from drawn_examples import chessboard

from exec.benchmark.judgement import (
    fitted,
    judged,
    largest,
    nics_of_a_host,
    synthesized_s,
    with_hosts,
)
from exec.benchmark.report import Measurement, Report, Row
from exec.benchmark.runner import busbw_factor
from probes.base.errors import UsageError
from synth import Request
from synth.networks.dgx import pod
from synth.networks.families import family
from synth.portfolio.plain import bounds_of


def row(kind, size, time_s, root=-1):
    busbw = busbw_factor(kind, 8) * size / time_s / 1e9
    found = Measurement(time_s, time_s, time_s, -1, size / time_s / 1e9, busbw, 0)
    return Row(kind, size, size // 4, "float32", "sum", root, "nccl", None, found, None, {})


def report(*rows, ranks=8, hosts=("a",)):
    return Report(ranks, hosts, "nccl-tests", "NCCL", 5, 20, rows, "average")


@pytest.mark.parametrize(
    ("kind", "size"),
    chessboard(
        ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all"],
        [1 << 20, 1 << 26, 1 << 33],
    ),
)
@pytest.mark.parametrize("spec", ["dgx-1", "dgx-a100/2x100:2"])
def test_the_bound_is_the_proven_one_at_every_size(spec, kind, size):
    network = pod(spec)
    (one,) = judged(report(row(kind, size, 1.0), ranks=network.ranks), network)
    proven = max(bound.time_s for bound in bounds_of(Request(network, kind, size_bytes=size)))
    assert one.bound.time_s == proven
    assert one.in_network.time_s <= one.bound.time_s


@pytest.mark.parametrize(
    ("busbw_gbs", "verdict"),
    [(900, "impossible"), (480, "in-network"), (360, "normal"), (200, "low"), (20, "very low")],
)
def test_the_verdict_compares_with_what_nccl_could_carry(busbw_gbs, verdict):
    size = 1 << 30
    time_s = 1.75 * size / busbw_gbs / 1e9
    (one,) = judged(report(row("all_reduce", size, time_s)), pod("dgx-h100"))
    assert one.verdict == verdict
    assert one.busbw_gbs(one.time_s) == pytest.approx(busbw_gbs)
    assert one.reached == pytest.approx(busbw_gbs / 450, rel=0.01)
    assert one.libraries[0].time_s == pytest.approx(1.75 * size / 450e9)


def test_on_two_hosts_what_a_ring_does_is_normal_though_a_tree_could_do_more():
    size = 1 << 30
    (one,) = judged(
        report(row("all_reduce", size, 1.875 * size / 91e9), ranks=16, hosts=("a", "b")),
        pod("dgx-a100/4x200:2"),
    )
    assert [each.algorithm for each in one.libraries] == ["tree", "ring"]
    assert one.busbw_gbs(one.libraries[0].time_s) > 1.8 * one.busbw_gbs(one.time_s)
    assert one.verdict == "normal"


def test_small_rows_are_of_start_up():
    (one,) = judged(report(row("all_reduce", 1 << 20, 60e-6)), pod("dgx-h100"))
    assert one.verdict == "start-up"


def test_the_largest_rows_of_each_collective_stand_for_it():
    rows = judged(
        report(row("all_reduce", 1 << 20, 1), row("all_reduce", 1 << 30, 1), row("all_gather", 1 << 10, 1)),
        pod("dgx-h100"),
    )
    assert [(one.row.collective, one.row.size_bytes) for one in largest(rows)] == [
        ("all_reduce", 1 << 30),
        ("all_gather", 1 << 10),
    ]


def test_rows_without_a_time_or_a_known_collective_are_left_out():
    none = replace(row("all_reduce", 1 << 20, 1.0), out_of_place=None)
    custom = replace(row("all_reduce", 1 << 20, 1.0), collective="custom")
    assert judged(report(none, custom), pod("dgx-h100")) == []


def test_fewer_ranks_are_the_first_of_every_host():
    whole = pod("dgx-a100:2")
    part = fitted(whole, report(ranks=8, hosts=("a", "b")))
    assert part.hosts == ("n0",) * 4 + ("n1",) * 4
    assert part.problems() == []
    assert fitted(whole, report(ranks=16, hosts=("a", "b"))) is whole


@pytest.mark.parametrize(("ranks", "hosts"), [(32, ("a", "b")), (8, ("a",)), (7, ("a", "b")), (1, ("a",))])
def test_refuses_ranks_that_do_not_fit(ranks, hosts):
    with pytest.raises(UsageError, match="the report"):
        fitted(pod("dgx-a100:2"), report(ranks=ranks, hosts=hosts))


def test_a_synthesized_schedule_lies_between_the_bound_and_the_library():
    network = family("ring:4", [0.0], [10e9])
    asked = row("all_reduce", 1 << 24, 1.0)
    (one,) = judged(report(asked, ranks=4), network)
    made_s = synthesized_s(network, asked, 20.0)
    assert one.bound.time_s * (1 - 1e-9) <= made_s <= 1.05 * one.libraries[0].time_s


def test_a_machine_takes_the_names_of_the_hosts_that_were_measured():
    machine = pod("dgx-a100/4x200:2")
    assert nics_of_a_host(machine) == 4
    named = with_hosts(machine, ["gpu01", "gpu02"])
    assert set(named.hosts) == {"gpu01", "gpu02"} and named.problems() == []
    assert "gpu02 nic3 egress" in named.ports and not any(port.startswith("n0 ") for port in named.ports)
    assert nics_of_a_host(named) == 4
    assert with_hosts(machine, ["gpu01"]) is machine
    assert nics_of_a_host(family("ring:4", (0.0,), (1e9,))) == 0
