"""Reports refuse numbers that no measurement gives."""

from dataclasses import replace

import pytest

from exec.benchmark.environment import crowded, waiting
from exec.benchmark.report import Spread


def test_a_right_report_has_no_problems(samples):
    assert samples["report"].problems() == []


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"time_s": float("nan")}, "rows[0].out_of_place.time_s"),
        ({"p99_s": -1e-3}, "rows[0].out_of_place.p99_s"),
        ({"busbw_gbs": float("inf")}, "rows[0].out_of_place.busbw_gbs"),
        ({"rank_s": (1.0, -1.0)}, "rows[0].out_of_place.rank_s[1]"),
        ({"spread": Spread(-1.0, 1.0, 1.0, 1.0, 0.0, 3)}, "rows[0].out_of_place.spread.min_s"),
    ],
)
def test_a_number_that_no_measurement_gives_is_told_with_its_path(samples, change, path):
    report = samples["report"]
    row = report.rows[0]
    wrong = replace(report, rows=(replace(row, out_of_place=replace(row.out_of_place, **change)),))
    assert [problem.partition(":")[0] for problem in wrong.problems()] == [path]


def test_a_breakdown_holds_seconds(samples):
    report = samples["report"]
    row = report.rows[0]
    rank = replace(row.breakdown.ranks[1], late_s=float("inf"))
    told = replace(
        row.breakdown,
        time_s=float("nan"),
        ranks=(row.breakdown.ranks[0], rank),
        forecast=replace(row.breakdown.forecast, bound_s=float("nan")),
    )
    wrong = replace(report, rows=(replace(row, breakdown=told),))
    assert [problem.partition(":")[0] for problem in wrong.problems()] == [
        "rows[0].breakdown.time_s",
        "rows[0].breakdown.forecast.bound_s",
        "rows[0].breakdown.ranks[1].late_s",
    ]


def test_who_was_slowest_may_be_unknown(samples):
    report = samples["report"]
    row = report.rows[0]
    assert (
        replace(
            report, rows=(replace(row, out_of_place=replace(row.out_of_place, slowest_rank=-1)),)
        ).problems()
        == []
    )


def test_no_ratio_is_given_where_ranks_share_cores_or_iterations_differ_too_much(samples):
    row = samples["report"].rows[0]
    ours = replace(row.out_of_place, time_s=1e-3, p99_s=1.5e-3)
    calm = replace(row, out_of_place=ours, predicted_s=9e-4, peers={"mpi": replace(ours, time_s=2e-3)})
    assert (calm.doubt(), calm.predicted_over_ours, calm.peer_over_ours("mpi")) == (
        "",
        pytest.approx(0.9),
        pytest.approx(2.0),
    )
    crowded = replace(calm, crowded="4 ranks share 2 cores")
    assert (crowded.doubt(), crowded.doubt("mpi")) == ("cores", "cores")
    assert crowded.predicted_over_ours is None and crowded.peer_over_ours("mpi") is None
    unsteady = replace(calm, out_of_place=replace(ours, p99_s=1.0))
    assert (unsteady.doubt(), unsteady.predicted_over_ours) == ("spread", None)
    theirs = replace(calm, peers={"mpi": replace(ours, p99_s=1.0)})
    assert (theirs.doubt(), theirs.doubt("mpi")) == ("", "spread")
    assert theirs.predicted_over_ours == calm.predicted_over_ours and theirs.peer_over_ours("mpi") is None


@pytest.mark.parametrize(
    ("places", "words"),
    [
        ([("a", {0}), ("a", {1})], ""),
        ([("a", {0, 1}), ("a", {0, 1})], ""),
        ([("a", {0, 1})] * 3, "3 ranks share 2 cores"),
        ([("a", {0})] * 2, "2 ranks share 1 core"),
        ([("a", {0, 1})] * 2 + [("b", {0})] * 3, "3 ranks share 1 core of b"),
    ],
)
def test_ranks_are_crowded_where_their_host_has_fewer_cores(places, words):
    assert crowded(places) == words


def test_ranks_wait_where_they_are_on_a_run_queue_for_a_notable_share_of_the_time():
    assert waiting(0.0) == waiting(0.05) == ""
    assert "take the cores" in waiting(0.4)
