"""The history of `ccctl watch` as charts: bandwidth and latency of the links that drifted, run by run."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from ccctl.render.svg.axes import Axis, short
from ccctl.render.svg.chart import Chart, charts, series
from ccctl.render.svg.drawing import GREY, Drawing, palette, text
from probes.base import plural

if TYPE_CHECKING:
    from probes.base import Floats
    from probes.profiling import History

__all__ = ["pictures"]

_MOST_LINES, _MOST_EVENTS = 6, 12
_UNITS = ((172800.0, 86400.0, "days"), (7200.0, 3600.0, "hours"), (120.0, 60.0, "minutes"), (0.0, 1.0, "s"))


def pictures(history: History, width: int) -> Iterator[Drawing]:
    """Yield two panels with a line for each of at most 6 links, and a dashed median of the others.

    Events are marked at their time and described below. Without a run there is no picture.
    """
    if not history.runs or not history.links:
        return
    from ccctl.render.text import moment
    from probes.profiling import Names

    beta, alpha = (column.reshape(history.runs, -1) for column in (history.beta_s_per_byte, history.alpha_s))
    with np.errstate(divide="ignore"):
        rate = np.where(beta > 0, 1e-9 / beta, np.nan)
    latency = np.where(alpha > 0, alpha, np.nan) * 1e6
    began_s, ended_s = float(history.at_s[0]), float(history.at_s[-1])
    _, unit_s, unit = next(one for one in _UNITS if ended_s - began_s >= one[0])
    axis = Axis(f"time since the first run ({unit})", short)
    at = (history.at_s - began_s) / unit_s
    order, names = _worst_first(history, rate), Names(history.hosts)
    events = list(enumerate(history.events[-_MOST_EVENTS:], start=1))
    inside = [(number, event) for number, event in events if began_s <= event.at_s <= ended_s]
    moments = tuple(((event.at_s - began_s) / unit_s, str(number)) for number, event in inside)
    panels = []
    for title, values in (("bandwidth (GB/s)", rate), ("latency, alpha (us)", latency)):
        lines = [
            series(
                names.link(int(history.src[link]), int(history.dst[link])),
                palette(number),
                at,
                values[:, link],
            )
            for number, link in enumerate(order[:_MOST_LINES])
        ]
        if others := order[_MOST_LINES:]:
            name = f"median of the other {len(others)} links" if len(others) > 1 else "the other link"
            lines.append(series(name, GREY, at, _medians(values[:, others]), dashed=True))
        panels.append(Chart(axis, Axis(title, short), lines, moments))
    runs = f"{plural(history.runs, 'run')} of {plural(history.links, 'link')}"
    entries = [
        (
            text(str(number), 13, 10, anchor="middle", colour="alarm"),
            f"{moment(event.at_s)}  {event.kind}: {event.text}",
        )
        for number, event in events
    ]
    yield charts(
        f"{runs}, {moment(began_s)} to {moment(ended_s)}",
        "Bandwidth and latency, run by run: a line for each of the links that are worst, and events.",
        panels,
        width,
        entries,
    )


def _medians(values: Floats) -> Floats:
    """Return the median of each row; NaN for a row without values."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return np.asarray(np.nanmedian(values, axis=1))


def _worst_first(history: History, rate: Floats) -> list[int]:
    """Return the links, those that got worse first; in both groups the largest drop is first."""
    best = np.nan_to_num(rate).max(axis=0)
    least = np.nan_to_num(rate / np.where(best > 0, best, 1.0), nan=1.0).min(axis=0)
    worse = (history.bandwidth_since_s > 0) | (history.latency_since_s > 0)
    return sorted(range(history.links), key=lambda link: (not worse[link], float(least[link]), link))
