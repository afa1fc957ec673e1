"""A training report as SVG: loss over iterations, and the error on held-out data over time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ccctl.render import seconds
from ccctl.render.svg import COLOURS, Chart, Drawing, Series, charts

if TYPE_CHECKING:
    from exec.training.workloads import TrainedMode, TrainingReport

__all__ = ["pictures"]

# The most points drawn for a curve.
_POINTS = 40
# If the largest value is this many times the least, the axis is logarithmic, else linear.
_LARGE_RATIO = 20
# Early points above the others by this many times the others' range are left out.
_FIRST, _RANGES = 0.2, 4


def pictures(report: TrainingReport, width: int) -> list[Drawing]:
    """Return two panels, with a colour for each mode.

    Losses are smoothed over neighbours, as batches differ. Errors of 0 are left out on a logarithmic axis.
    """
    colours = [COLOURS[at % len(COLOURS)] for at in range(len(report.rows))]
    curves = [_losses(row) for row in report.rows]
    begin = _begin(curves)
    losses = tuple(
        Series(row.label, colour, tuple(point for point in curve if point[0] >= begin))
        for row, colour, curve in zip(report.rows, colours, curves, strict=True)
    )
    errors = tuple(
        Series(
            row.label,
            colour,
            tuple(
                (at_s, 1 - share)
                for at_s, share in zip(row.evaluated_s.tolist(), row.accuracies.tolist(), strict=True)
            ),
        )
        for row, colour in zip(report.rows, colours, strict=True)
    )
    return [
        charts(
            f"{report.model} on {report.ranks} ranks, {report.backend}",
            "Loss over iterations and error on held-out data over time: a line for each mode.",
            [
                _panel("loss", "iteration", losses, counted=True),
                _panel("error on held-out data (share)", "time", errors),
            ],
            width,
            list(_notes(report, curves, begin)),
        )
    ]


def _panel(title: str, x_title: str, lines: tuple[Series, ...], *, counted: bool = False) -> Chart:
    values = [y for line in lines for _, y in line.points if np.isfinite(y)]
    base = 10 if values and max(values) > _LARGE_RATIO * max(min(values), 0.0) else 0
    return Chart(
        title,
        x_title,
        lines,
        (lambda x: f"{x:g}") if counted else (lambda x: seconds(x) if x else "0"),
        lambda y: f"{y:g}",
        0,
        base,
        counted=counted,
        y_fits=True,
    )


def _losses(row: TrainedMode) -> tuple[tuple[float, float], ...]:
    parts = np.array_split(np.arange(len(row.losses)), min(_POINTS, len(row.losses)) or 1)
    return tuple((float(part.mean()) + 1, float(row.losses[part].mean())) for part in parts if len(part))


def _begin(curves: Sequence[Sequence[tuple[float, float]]]) -> float:
    """Return the first iteration to draw, past early losses so large that they would flatten the others."""
    last = max((x for curve in curves for x, _ in curve), default=0.0)
    early = [point for curve in curves for point in curve if point[0] <= _FIRST * last]
    later = [y for curve in curves for x, y in curve if x > _FIRST * last and np.isfinite(y)]
    if not early or not later:
        return 0.0
    most = max(later) + _RANGES * (max(later) - min(later))
    left_out = max((x for x, y in early if y > most), default=0.0)
    return min((x for x, _ in early if x > left_out), default=_FIRST * last)


def _notes(
    report: TrainingReport, curves: Sequence[Sequence[tuple[float, float]]], begin: float
) -> Iterator[str]:
    """Yield the notes below the picture."""
    alike: dict[bytes, list[str]] = {}
    for row in report.rows:
        alike.setdefault(row.losses.tobytes(), []).append(row.label)
    for labels in alike.values():
        if len(labels) > 1:
            yield f"loss of {', '.join(labels)}: equal"
    if hidden := [y for curve in curves for x, y in curve if x < begin]:
        yield f"loss before iteration {begin:g}, up to {max(hidden):.3g}: not shown"
    starts = [f"{row.label} {seconds(row.start_s)}" for row in report.rows if row.start_s]
    if starts:
        yield f"time without what the first iteration takes longer than others: {', '.join(starts)}"
