"""The numbers behind the pictures, as tables to read, search or copy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ccctl.render import about, percent, seconds
from probes.base import without_domain

if TYPE_CHECKING:
    from ccctl.render.svg import Bounds
    from exec.benchmark import Report
    from probes.link_costs import Profile
    from synth.schedules import Outcome

__all__ = ["HtmlTable", "tables"]

_MOST_LINKS = 40


@dataclass(frozen=True)
class HtmlTable:
    """A title, the columns' names with units, and rows of text."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def tables(kind: str, body: Any, bounds_s: Bounds | None = None) -> list[HtmlTable]:
    """Return the tables of an artifact; most kinds have none."""
    if kind == "profile":
        return [_links(body)]
    if kind == "report":
        return [_rows(body, bounds_s or {})]
    from synth.schedules import SCHEDULE_KINDS

    return [_outcome(body.outcome)] if kind in SCHEDULE_KINDS and body.outcome is not None else []


def _links(profile: Profile) -> HtmlTable:
    import numpy as np

    links = profile.links
    name = without_domain([entry.host for entry in profile.ranks])
    slowest = np.argsort(-links.beta_s_per_byte, kind="stable")[:_MOST_LINKS].tolist()
    count = len(links.src)
    return HtmlTable(
        f"the {len(slowest)} slowest of {count} links" if count > _MOST_LINKS else f"all {count} links",
        ("sender", "receiver", "GB/s", "median GB/s", "alpha", "flags"),
        tuple(
            (
                f"{links.src[row]} {name[profile.ranks[links.src[row]].host]}",
                f"{links.dst[row]} {name[profile.ranks[links.dst[row]].host]}",
                f"{1e-9 / links.beta_s_per_byte[row]:.3g}",
                f"{1e-9 / links.beta_median_s_per_byte[row]:.3g}",
                seconds(float(links.alpha_s[row])),
                links.flags[row].replace(",", ", "),
            )
            for row in slowest
        ),
    )


def _rows(report: Report, bounds_s: Bounds) -> HtmlTable:
    peers = list(dict.fromkeys(name for row in report.rows for name in row.peers))
    found = []
    for row in report.rows:
        shown = row.shown
        if shown is None:
            continue
        bound_s = bounds_s.get((row.collective, row.size_bytes))
        others = [row.peers.get(name) for name in peers]
        found.append(
            (
                row.collective,
                about(row.size_bytes),
                row.dtype,
                seconds(shown.time_s),
                f"{shown.busbw_gbs:.3g}",
                "not checked" if shown.wrong is None else str(shown.wrong),
                seconds(row.predicted_s) if row.predicted_s is not None else "",
                percent(bound_s / shown.time_s) if bound_s and shown.time_s else "",
                *(seconds(peer.time_s) if peer else "" for peer in others),
            )
        )
    columns = ("collective", "size", "type", "time", "bus GB/s", "wrong", "predicted", "of the bound")
    return HtmlTable("all rows", (*columns, *peers), tuple(found))


def _outcome(outcome: Outcome) -> HtmlTable:
    optimal = percent(outcome.percent_of_optimal / 100)
    rows = [(seconds(outcome.time_s), f"simulated, {optimal} of optimal")]
    rows += [
        (seconds(bound.time_s), f"bound by {bound.name} {bound.detail}".strip())
        for bound in outcome.bounds
        if bound.time_s > 0
    ]
    # Times come first, so that a narrow screen shows them.
    return HtmlTable("time and bounds", ("time", "what"), tuple(rows))
