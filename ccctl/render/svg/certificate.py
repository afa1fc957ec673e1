"""A certificate as pictures: the cost of each culprit, and the share of the proven bound that is reached."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ccctl.render import acceptance, percent, seconds
from ccctl.render.svg.axes import Axis
from ccctl.render.svg.drawing import COLOURS, Drawing
from ccctl.render.svg.lanes import Lane, LaneChart, bar, heading, lanes
from probes.base import plural

if TYPE_CHECKING:
    from exec.acceptance import Certificate, Culprit, FaultCost, WholeRow

__all__ = ["pictures"]

_FAULT, _REMARK, _POSSIBLE, _BOUGHT = COLOURS[1], COLOURS[4], COLOURS[0], COLOURS[5]
# More lanes would make the picture higher than a screen.
_MOST_CULPRITS, _MOST_ROWS = 12, 24
# The largest share that a bar shows (1 is the bound). A row beyond it is wrong, so its bar is cut off there.
_MOST_SHARE = 10.0
# The largest factor that a bar shows. A certificate may hold a time of nearly 0; the factor is then infinite.
_MOST_TIMES = 1e6


def pictures(certificate: Certificate, width: int) -> Iterator[Drawing]:
    """Yield a picture of the culprits' costs, and a picture of the collectives' bounds, if known."""
    costs = [
        (culprit, culprit.cost)
        for culprit in certificate.culprits
        if culprit.cost is not None and culprit.cost.times > 0
    ]
    if costs:
        yield _costs(costs, width)
    rows = [row for row in certificate.whole if row.time_s > 0 and (row.bound_s or row.bought_bound_s)]
    if rows:
        yield _shares(rows, certificate.ranks, width)


def _costs(costs: Sequence[tuple[Culprit, FaultCost]], width: int) -> Drawing:
    shown = []
    for culprit, cost in costs[:_MOST_CULPRITS]:
        name = f"{cost.collective} of {acceptance.size_text(cost.size_bytes)}"
        colour = _FAULT if culprit.severity == "fault" else _REMARK
        after = f"{seconds(cost.with_s)}, not {seconds(cost.without_s)}"
        shown += [
            heading(f"{culprit.part}: {name}"),
            bar("", [(culprit.severity, min(cost.times, _MOST_TIMES), colour)], after),
        ]
    more = len(costs) - _MOST_CULPRITS
    entries = [("", f"and {plural(more, 'more culprit')}")] if more > 0 else []
    title = f"cost of {plural(len(costs), 'culprit')}"
    about = "The time of a collective now, as a multiple of its time without the culprit."
    axis = Axis("time now, × that without the culprit", "{:g}".format)
    return lanes(title, about, LaneChart(shown, axis, pitch=18), width, entries)


def _shares(rows: Sequence[WholeRow], ranks: int, width: int) -> Drawing:
    shown: list[Lane] = []
    for row in rows[:_MOST_ROWS]:
        shown.append(heading(acceptance.row_name(row)))
        for kind, bound_s, colour in (
            ("of possible", row.bound_s, _POSSIBLE),
            ("of bought", row.bought_bound_s, _BOUGHT),
        ):
            if bound_s:
                share = bound_s / row.time_s
                shown.append(bar("", [(kind, 100 * min(share, _MOST_SHARE), colour)], percent(share)))
    more = len(rows) - _MOST_ROWS
    entries = [("", "possible: the proven bound of the network as it is, bought: of the network as bought")]
    entries += [("", f"and {plural(more, 'more row')}")] if more > 0 else []
    highest = max((block.end for lane in shown for block in lane.blocks), default=0.0)
    axis = Axis("% of the rate that the proven bound allows", "{:g}".format)
    chart = LaneChart(shown, axis, pitch=18, until=max(100.0, highest))
    title = f"collectives on {plural(ranks, 'rank')}, beside what is possible"
    return lanes(title, "The share of the proven bound that each collective reaches.", chart, width, entries)
