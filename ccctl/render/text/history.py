"""The history of a watch as text: its events, then each link's bandwidth over the runs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ccctl import console
from probes.base import plural

if TYPE_CHECKING:
    from probes.profiling import History

__all__ = ["draw", "moment"]

_MOST_LINKS = 64
_MOST_EVENTS = 20


def moment(at_s: float) -> str:
    """Return a time in UTC as 2026-11-22 10:20:05Z."""
    return f"{datetime.fromtimestamp(at_s, UTC):%Y-%m-%d %H:%M:%SZ}"


def draw(history: History) -> None:
    """Print the last events, then each link's range of bandwidth; links that got worse first."""
    between = f"{plural(history.links, 'link')} between {plural(len(history.hosts), 'rank')}"
    since = f", {moment(history.at_s[0])} to {moment(history.at_s[-1])}" if history.runs else ""
    console.data(f"{plural(history.runs, 'run')} of {between}{since}")
    for event in history.events[-_MOST_EVENTS:]:
        console.data(f"{moment(event.at_s)}  {event.kind}: {event.text}")
    rows = sorted(range(history.links), key=lambda link: (_since_s(history, link) == 0, link))
    cells = [_row(history, link) for link in rows[:_MOST_LINKS]]
    heads = ("link", "runs", "GB/s min", "max", "last", "alpha us", "worse since")
    console.table(heads, cells)
    if len(rows) > _MOST_LINKS:
        console.data(f"… and {len(rows) - _MOST_LINKS} more links")


def _since_s(history: History, link: int) -> float:
    found = [float(column[link]) for column in (history.bandwidth_since_s, history.latency_since_s)]
    return min((value for value in found if value), default=0.0)


def _row(history: History, link: int) -> tuple[object, ...]:
    from probes.profiling import Names

    name = Names(history.hosts).link(int(history.src[link]), int(history.dst[link]))
    since_s = _since_s(history, link)
    worse = moment(since_s) if since_s else ""
    gbs = 1e-9 * history.series("bandwidth", link)
    if not len(gbs):
        return (name, 0, "-", "-", "-", "-", worse)
    alpha = history.series("latency", link)
    latency = f"{1e6 * alpha[-1]:.3g}" if len(alpha) else "-"
    return (name, len(gbs), f"{gbs.min():.3g}", f"{gbs.max():.3g}", f"{gbs[-1]:.3g}", latency, worse)
