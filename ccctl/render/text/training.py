"""A training report as one object and as text: a row for each mode, and notes on some."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ccctl import console
from ccctl.render import Column, about, cells, figures, percent, seconds
from probes.base import plural

if TYPE_CHECKING:
    from exec.training.workloads import TrainedMode, TrainingReport

__all__ = ["draw", "headline", "lines", "notes", "summary"]


def summary(report: TrainingReport) -> dict[str, Any]:
    """Return what ``training compare --json`` prints."""
    result = figures(
        report,
        "model parameter_bytes ranks hosts backend steps batch compute_s target seed machine interrupted",
    )
    names = (
        "mode bucket_bytes iteration_s=time_s min_s=spread.min_s p25_s=spread.p25_s p75_s=spread.p75_s "
        "max_s=spread.max_s rank_s start_s wire_bytes most_wire_bytes losses evaluated evaluated_s "
        "accuracies accuracy reached_s equal replica_difference ddp_difference lost note"
    )
    return result | {"rows": [{**figures(row, names), "loss": float(row.losses[-1])} for row in report.rows]}


def lines(report: TrainingReport, rows: Sequence[TrainedMode], labels: Sequence[str]) -> list[str]:
    """Return the column names and ``rows`` as lines; ``labels`` of all rows set the width."""
    ms = "{:.2f}"
    columns = (
        Column("mode", "label", width=max(map(len, labels), default=0)),
        Column("iteration (ms)", lambda row: 1e3 * row.time_s, ms, width=9),
        Column("25 %", lambda row: 1e3 * row.spread.p25_s, ms, width=7),
        Column("75 %", lambda row: 1e3 * row.spread.p75_s, ms, width=7),
        Column("sent", lambda row: row.wire_bytes / report.parameter_bytes, "{:.3f}", width=6),
        Column("loss", lambda row: float(row.losses[-1]) if len(row.losses) else None, "{:.4f}", width=7),
        Column("accuracy", "accuracy", percent, width=7),
        Column("reached (s)", "reached_s", "{:.2f}", width=7),
        Column("replicas", "replica_difference", "{:.2g}", width=8),
        Column("from ddp", "ddp_difference", "{:.2g}", width=8),
    )
    return console.aligned(*cells(columns, rows), [column.width for column in columns])


def draw(report: TrainingReport) -> None:
    """Print the whole report."""
    labels = [row.label for row in report.rows]
    for line in (headline(report), *lines(report, report.rows, labels), *notes(report)):
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
    yield "sent: bytes that a rank sends over TCP in an iteration, as a multiple of the model's"
    yield f"reached: time, without start-up, until {percent(report.target)} of held-out data were right"
    has_ddp = any(row.ddp_difference is not None for row in report.rows)
    beside = "; from ddp: the largest difference of the final model from DDP's" if has_ddp else ""
    yield f"replicas: the largest difference between ranks in a parameter{beside}"
    shares = report.backend == "ccctl" or any(row.mode == "adaptive" for row in report.rows)
    if shares and len(report.hosts) < report.ranks:
        who = "ranks" if report.backend == "ccctl" else "adaptive: ranks"
        yield f"{who} of one host exchange data through shared memory, which is not in what they send"
    starts = [f"{row.label} {seconds(row.start_s)}" for row in report.rows if row.start_s]
    if starts:
        yield f"start-up, by which the first iteration is longer than others: {', '.join(starts)}"
    for row in report.rows:
        lost = f"lost {', '.join(map(str, row.lost))}" if row.lost else ""
        if remarks := "; ".join(filter(None, (row.note, lost))):
            yield f"{row.label}: {remarks}"
    if report.interrupted:
        yield f"interrupted: {report.interrupted}"
