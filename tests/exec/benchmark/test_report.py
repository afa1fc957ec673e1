"""What a report may not hold: numbers that no measurement gives."""

from dataclasses import replace

import pytest

from exec.benchmark.report import Spread


def test_a_right_report_has_no_problems(samples):
    assert samples["report"].problems() == []


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"time_s": float("nan")}, "rows[0].out_of_place.time_s"),
        ({"p99_s": -1e-3}, "rows[0].out_of_place.p99_s"),
        ({"busbw_gbs": float("inf")}, "rows[0].out_of_place.busbw_gbs"),
        ({"rank_s": (1.0, -1.0)}, "rows[0].out_of_place.rank_s"),
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
        "rows[0].breakdown.ranks[1].late_s",
        "rows[0].breakdown.forecast.bound_s",
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
