"""The object of ``bench --json``: a report as plain values, with units in their names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ccctl.render import figures

if TYPE_CHECKING:
    from exec.benchmark import Breakdown, Measurement, Part, Report, Row, RowChange

__all__ = ["changes_of", "summary_of"]


def summary_of(report: Report, changes: Sequence[RowChange] | None = None) -> dict[str, Any]:
    """Return the object; it has ``baseline`` if the report was compared with another."""
    values = figures(report, "ranks hosts executor library machine average interrupted")
    values["rows"] = [_row(row) for row in report.rows]
    if changes is not None:
        values["baseline"] = changes_of(changes)
    return values


def changes_of(changes: Sequence[RowChange]) -> list[dict[str, Any]]:
    """Return the common rows of two reports, with their changes."""
    return [{"row": one.label, **figures(one, "old_us new_us noise_us ratio slower")} for one in changes]


def _row(row: Row) -> dict[str, Any]:
    """Return a row; its times are out of place if that was measured."""
    measured = {"out_of_place": row.out_of_place, "in_place": row.in_place}
    shown = row.shown
    values = figures(row, "collective size_bytes count dtype redop root program")
    values |= _columns(shown) if shown else {}
    checked = [found.wrong for found in measured.values() if found and found.wrong is not None]
    values["wrong"] = sum(checked) if checked else None
    values["predicted_us"] = None if row.predicted_s is None else row.predicted_s * 1e6
    values["achieved"] = row.predicted_over_ours
    values["peers"] = {name: peer.time_s * 1e6 for name, peer in row.peers.items()}
    values["peers_over_ours"] = {name: row.peer_over_ours(name) for name in row.peers}
    doubts = {name or "predicted": row.doubt(name) for name in (None, *row.peers)}
    values["why_no_ratio"] = {name: doubt for name, doubt in doubts.items() if doubt}
    if row.breakdown is not None:
        values["breakdown"] = _breakdown(row.breakdown)
    values["peers_wrong"] = {name: peer.wrong for name, peer in row.peers.items()}
    return values | {name: _columns(found) for name, found in measured.items() if found}


def _breakdown(breakdown: Breakdown) -> dict[str, Any]:
    """Return a breakdown in microseconds, with measured parts and the forecast's predicted parts."""
    from ccctl.render.text.benchmark import largest_difference

    told = breakdown.forecast
    forecast = told and {
        **figures(told, "network bound bound_us schedule_us steps_us sharing_us memory_us"),
        "predicted_us": told.time_s * 1e6,
        "parts": _parts(told.parts),
    }
    own = "rank late_us waiting_us copying_us adding_us core_us other_us"
    busy = "kind where carried_bytes needed_us"
    return {
        **figures(breakdown, "placement iteration time_us slowest_rank"),
        "forecast": forecast,
        "parts": _parts(breakdown.parts),
        "ranks": [figures(one, own) for one in breakdown.ranks],
        "busy": [
            figures(one, busy) | {"percent": 100 * one.needed_s / breakdown.time_s} for one in breakdown.busy
        ],
        "largest_difference": largest_difference(breakdown),
        **figures(breakdown, "clock_error_us why_empty"),
    }


def _parts(parts: Sequence[Part]) -> list[dict[str, Any]]:
    return [figures(part, "kind where time_us") for part in parts]


def _columns(measured: Measurement) -> dict[str, Any]:
    values: dict[str, Any] = {
        **figures(measured, "time_us p50_us"),
        "mean_us": (measured.mean_s or measured.time_s) * 1e6,
        **figures(measured, "p99_us algbw_gbs busbw_gbs slowest_rank wrong"),
        "rank_us": [own_s * 1e6 for own_s in measured.rank_s],
    }
    if (spread := measured.spread) is not None:
        values |= {"min_us": spread.min_s * 1e6, "max_us": spread.max_s * 1e6}
        values["cv_percent"] = 100 * spread.stdev_s / (measured.mean_s or measured.time_s or 1.0)
        if spread.samples_s:
            values["times_us"] = [sample_s * 1e6 for sample_s in spread.samples_s]
    return values
