"""A training report as SVG: loss over iterations, and the error on held-out data over time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ccctl.render import seconds
from ccctl.render.svg import COLOURS, Chart, Drawing, Line, charts

if TYPE_CHECKING:
    from exec.training.workloads import TrainedMode, TrainingReport

__all__ = ["pictures"]

# So many points of a curve are seen.
_POINTS = 40


def pictures(report: TrainingReport, width: int) -> list[Drawing]:
    """Two panels, a colour for each mode.

    A loss is the mean of its neighbours, as batches differ. An error of 0 has no place on a logarithmic
    axis.
    """
    colours = [COLOURS[at % len(COLOURS)] for at in range(len(report.rows))]
    losses = tuple(
        Line(row.label, colour, _losses(row)) for row, colour in zip(report.rows, colours, strict=True)
    )
    errors = tuple(
        Line(
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
                Chart("loss", "iteration", losses, lambda x: f"{x:g}", lambda y: f"{y:g}", 10),
                Chart("error on held-out data (share)", "time", errors, seconds, lambda y: f"{y:g}", 10),
            ],
            width,
        )
    ]


def _losses(row: TrainedMode) -> tuple[tuple[float, float], ...]:
    parts = np.array_split(np.arange(len(row.losses)), min(_POINTS, len(row.losses)) or 1)
    return tuple((float(part.mean()) + 1, float(row.losses[part].mean())) for part in parts if len(part))
