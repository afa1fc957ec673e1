"""A selection as SVG: predicted bandwidth and time over size, a curve for each schedule."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ccctl.render import about, seconds
from ccctl.render.svg.chart import COLOURS, Chart, Series, charts
from ccctl.render.svg.drawing import Drawing
from ccctl.render.text import busbw_gbs
from probes.base import plural

if TYPE_CHECKING:
    from synth.schedules import Selection

__all__ = ["pictures"]


def pictures(selection: Selection, width: int) -> list[Drawing]:
    """Return predicted bandwidth and time over size, with a line for each schedule and a dashed bound."""
    lines = [
        (
            f"{algorithm.method}, {plural(algorithm.collective.chunks, 'chunk')}",
            COLOURS[at % len(COLOURS)],
            at,
        )
        for at, algorithm in enumerate(selection.algorithms)
    ]
    bound = tuple((one.size_bytes, one.bound_s) for one in selection.points if one.bound_s)
    of = {at: [one for one in selection.points if one.algorithm == at] for _, _, at in lines}
    times = [
        Series(name, colour, tuple((one.size_bytes, one.time_s) for one in of[at]))
        for name, colour, at in lines
    ]
    rates = [
        Series(name, colour, tuple((one.size_bytes, busbw_gbs(selection, one)) for one in of[at]))
        for name, colour, at in lines
    ]
    drawn = [tuple(line for line in some if line.points) for some in (rates, times)]
    limit = (Series("proven bound", "#7f7f7f", bound, dashed=True),) if bound else ()
    return [
        charts(
            f"{selection.collective.label} on {selection.network.name}, predicted",
            "Predicted bus bandwidth and time over size: a line for each schedule, and the proven bound.",
            [
                Chart("bus bandwidth (GB/s)", "size (bytes)", drawn[0], about, lambda value: f"{value:g}"),
                Chart("time", "size (bytes)", drawn[1] + limit, about, seconds),
            ],
            width,
        )
    ]
