"""A training report as text: a row for each mode, and notes on some."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ccctl import console
from ccctl.render import about, percent, seconds
from probes.base import plural

if TYPE_CHECKING:
    from exec.training.workloads import TrainedMode, TrainingReport

__all__ = ["TrainingTable", "draw", "headline", "notes"]

_TITLES = (
    "mode",
    "iteration (ms)",
    "25 %",
    "75 %",
    "sent",
    "loss",
    "accuracy",
    "reached (s)",
    "replicas",
    "from ddp",
)
_WIDTHS = (0, 9, 7, 7, 6, 7, 7, 7, 8, 8)


class TrainingTable:
    """A table printed row by row; ``labels`` are those of all rows to come."""

    def __init__(self, labels: Sequence[str]) -> None:
        self._least = [max(map(len, labels), default=0), *_WIDTHS[1:]]

    def lines(self, report: TrainingReport, rows: Sequence[TrainedMode]) -> list[str]:
        """Return the column names, then the rows."""
        return console.aligned(_TITLES, [_cells(report, row) for row in rows], self._least)


def draw(report: TrainingReport) -> None:
    """Print the whole report."""
    console.data(headline(report))
    for line in TrainingTable([row.label for row in report.rows]).lines(report, report.rows):
        console.data(line)
    for line in notes(report):
        console.data(line)


def headline(report: TrainingReport) -> str:
    """Return one line that describes the training run."""
    compute = (
        f", {seconds(report.compute_s)} a layer forward and twice that backward emulated"
        if report.compute_s
        else ""
    )
    return (
        f"{report.model}: {plural(report.layers, 'layer')}, {about(report.parameter_bytes)}; "
        f"{plural(report.ranks, 'rank')} on {plural(len(report.hosts), 'host')}, {report.backend}; "
        f"{plural(report.steps, 'iteration')} of {report.batch} a rank{compute}"
    )


def notes(report: TrainingReport) -> Iterator[str]:
    """Yield the meaning of the columns, and notes on some modes."""
    yield "sent: bytes a rank sends over TCP in an iteration, over those of the model"
    yield f"reached: {percent(report.target)} of held-out data classified correctly, without the start"
    beside = "; from ddp: that of the final model to DDP's" if _has_ddp(report) else ""
    yield f"replicas: the largest difference between ranks in a parameter{beside}"
    shares = report.backend == "ccctl" or any(row.mode == "adaptive" for row in report.rows)
    if shares and len(report.hosts) < report.ranks:
        who = "ranks" if report.backend == "ccctl" else "adaptive: ranks"
        yield f"{who} of one host exchange data through shared memory, which is not in what they send"
    starts = [f"{row.label} {seconds(row.start_s)}" for row in report.rows if row.start_s]
    if starts:
        yield f"start, which the first iteration takes longer than others: {', '.join(starts)}"
    for row in report.rows:
        lost = f"lost {', '.join(map(str, row.lost))}" if row.lost else ""
        if told := "; ".join(filter(None, (row.note, lost))):
            yield f"{row.label}: {told}"
    if report.interrupted:
        yield f"interrupted: {report.interrupted}"


def _has_ddp(report: TrainingReport) -> bool:
    return any(row.ddp_difference is not None for row in report.rows)


def _cells(report: TrainingReport, row: TrainedMode) -> tuple[str, ...]:
    return (
        row.label,
        *(f"{1e3 * value_s:.2f}" for value_s in (row.time_s, row.spread.p25_s, row.spread.p75_s)),
        f"{row.wire_bytes / report.parameter_bytes:.3f}",
        f"{float(row.losses[-1]):.4f}" if len(row.losses) else "-",
        percent(row.accuracy),
        "-" if row.reached_s is None else f"{row.reached_s:.2f}",
        f"{row.replica_difference:.2g}",
        "-" if row.ddp_difference is None else f"{row.ddp_difference:.2g}",
    )
