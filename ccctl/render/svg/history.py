"""The history of `ccctl watch` as charts: bandwidth and latency of the links that drifted, run by run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ccctl.render.svg.chart import COLOURS, Chart, Series, charts
from ccctl.render.svg.drawing import Drawing, legend, text
from probes.base import plural

if TYPE_CHECKING:
    from probes.base import Floats
    from probes.profiling import History

__all__ = ["pictures"]

_MOST_LINES, _MOST_EVENTS = 6, 12
_UNITS = ((172800.0, 86400.0, "days"), (7200.0, 3600.0, "hours"), (120.0, 60.0, "minutes"), (0.0, 1.0, "s"))


def pictures(history: History, width: int) -> list[Drawing]:
    """Return two panels with a line for each of at most 6 links, and a dashed median of the others.

    Events are marked at their time and described below. Without a run there is no picture.
    """
    if not history.runs or not history.links:
        return []
    from ccctl.render.text import moment
    from probes.profiling import Names

    beta, alpha = (column.reshape(history.runs, -1) for column in (history.beta_s_per_byte, history.alpha_s))
    rate = np.where(beta > 0, 1e-9 / np.where(beta > 0, beta, 1.0), np.nan)
    latency = np.where(alpha > 0, alpha, np.nan) * 1e6
    span_s = float(history.at_s[-1] - history.at_s[0])
    _, unit_s, unit = next(one for one in _UNITS if span_s >= one[0])
    at = (history.at_s - history.at_s[0]) / unit_s
    chosen, others = _worst(history, rate)
    names = Names(history.hosts)
    panels = []
    for title, values in (("bandwidth (GB/s)", rate), ("latency, alpha (us)", latency)):
        lines = [
            Series(
                names.link(int(history.src[link]), int(history.dst[link])),
                COLOURS[number],
                _points(at, values[:, link]),
            )
            for number, link in enumerate(chosen)
        ]
        if others:
            lines.append(
                Series(_median_of(len(others)), "#7f7f7f", _points(at, _medians(values[:, others])), True)
            )
        happened = tuple(
            ((event.at_s - history.at_s[0]) / unit_s, str(number))
            for number, event in enumerate(history.events[-_MOST_EVENTS:], start=1)
            if history.at_s[0] <= event.at_s <= history.at_s[-1]
        )
        kept = tuple(line for line in lines if line.points)
        panels.append(
            Chart(title, f"time since the first run ({unit})", kept, _short, _short, 0, 0, happened)
        )
    title = (
        f"{plural(history.runs, 'run')} of {plural(history.links, 'link')}, "
        f"{moment(history.at_s[0])} to {moment(history.at_s[-1])}"
    )
    about = "Bandwidth and latency, run by run: a line for each of the links that are worst, and events."
    drawn = charts(title, about, panels, width)
    told = [
        (
            text(str(number), 14, 10, anchor="middle", colour="alarm"),
            f"{moment(event.at_s)}  {event.kind}: {event.text}",
        )
        for number, event in enumerate(history.events[-_MOST_EVENTS:], start=1)
    ]
    below, height = legend(told, 8, width, drawn.height)
    return [Drawing(title, about, width, drawn.height + height + 4 * bool(told), (*drawn.parts, *below))]


def _medians(values: Floats) -> Floats:
    """Return the median of each row; NaN for a row without values."""
    return np.array([np.nan if np.isnan(row).all() else np.nanmedian(row) for row in values])


def _worst(history: History, rate: Floats) -> tuple[list[int], list[int]]:
    """Return (links to draw, the others); links that got worse come first, then the largest drops."""
    best = np.nan_to_num(rate).max(axis=0)
    least = np.nan_to_num(rate / np.where(best > 0, best, 1.0), nan=1.0).min(axis=0)
    worse = (history.bandwidth_since_s > 0) | (history.latency_since_s > 0)
    order = sorted(range(history.links), key=lambda link: (not worse[link], float(least[link]), link))
    return order[:_MOST_LINES], order[_MOST_LINES:]


def _points(at: Floats, values: Floats) -> tuple[tuple[float, float], ...]:
    return tuple(
        (float(x), float(y)) for x, y in zip(at.tolist(), values.tolist(), strict=True) if not np.isnan(y)
    )


def _median_of(others: int) -> str:
    return f"median of the other {plural(others, 'link')}" if others > 1 else "the other link"


def _short(value: float) -> str:
    return f"{value:g}"
