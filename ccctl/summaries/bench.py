"""What ``bench --json`` prints: a report as plain values, with units in their names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from exec.benchmark import Breakdown, Measurement, Part, Report, Row, RowChange

__all__ = ["summary_of"]


def summary_of(report: Report, changes: Sequence[RowChange] | None = None) -> dict[str, Any]:
    """The object; ``baseline`` is in it where a report was compared with another."""
    values: dict[str, Any] = {
        "ranks": report.ranks,
        "hosts": list(report.hosts),
        "executor": report.executor,
        "library": report.library,
        "machine": report.machine,
        "average": report.average,
        "interrupted": report.interrupted,
        "rows": [_row(row) for row in report.rows],
    }
    if changes is not None:
        values["baseline"] = [
            {
                "row": change.label,
                "old_us": change.old_s * 1e6,
                "new_us": change.new_s * 1e6,
                "noise_us": change.noise_s * 1e6,
                "ratio": change.ratio,
                "slower": change.slower,
            }
            for change in changes
        ]
    return values


def _row(row: Row) -> dict[str, Any]:
    """The times are out of place where that was measured."""
    measured = {"out_of_place": row.out_of_place, "in_place": row.in_place}
    shown = row.shown
    values: dict[str, Any] = {"collective": row.collective, "size_bytes": row.size_bytes, "count": row.count}
    values |= {"dtype": row.dtype, "redop": row.redop, "root": row.root, "program": row.program}
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
    """Microseconds; the parts are the time of the run, those of the forecast the predicted one."""
    from ccctl.render.text.benchmark import largest_difference

    told = breakdown.forecast
    forecast = told and {
        "network": told.network,
        "bound": told.bound,
        "bound_us": told.bound_s * 1e6,
        "schedule_us": told.schedule_s * 1e6,
        "steps_us": told.steps_s * 1e6,
        "sharing_us": told.sharing_s * 1e6,
        "memory_us": told.memory_s * 1e6,
        "predicted_us": told.time_s * 1e6,
        "parts": _parts(told.parts),
    }
    return {
        "placement": breakdown.placement,
        "iteration": breakdown.iteration,
        "time_us": breakdown.time_s * 1e6,
        "slowest_rank": breakdown.slowest_rank,
        "forecast": forecast,
        "parts": _parts(breakdown.parts),
        "ranks": [
            {
                "rank": own.rank,
                "late_us": own.late_s * 1e6,
                "waiting_us": own.waiting_s * 1e6,
                "copying_us": own.copying_s * 1e6,
                "adding_us": own.adding_s * 1e6,
                "core_us": own.core_s * 1e6,
                "other_us": own.other_s * 1e6,
            }
            for own in breakdown.ranks
        ],
        "busy": [
            {
                "kind": one.kind,
                "where": one.where,
                "carried_bytes": one.carried_bytes,
                "needed_us": one.needed_s * 1e6,
                "percent": 100 * one.needed_s / breakdown.time_s,
            }
            for one in breakdown.busy
        ],
        "largest_difference": largest_difference(breakdown),
        "clock_error_us": breakdown.clock_error_s * 1e6,
        "why_empty": breakdown.why_empty,
    }


def _parts(parts: Sequence[Part]) -> list[dict[str, Any]]:
    return [{"kind": part.kind, "where": part.where, "time_us": part.time_s * 1e6} for part in parts]


def _columns(measured: Measurement) -> dict[str, Any]:
    values: dict[str, Any] = {
        "time_us": measured.time_s * 1e6,
        "p50_us": measured.p50_s * 1e6,
        "mean_us": (measured.mean_s or measured.time_s) * 1e6,
        "p99_us": measured.p99_s * 1e6,
        "algbw_gbs": measured.algbw_gbs,
        "busbw_gbs": measured.busbw_gbs,
        "slowest_rank": measured.slowest_rank,
        "wrong": measured.wrong,
        "rank_us": [own_s * 1e6 for own_s in measured.rank_s],
    }
    if (spread := measured.spread) is not None:
        values |= {"min_us": spread.min_s * 1e6, "max_us": spread.max_s * 1e6}
        values["cv_percent"] = 100 * spread.stdev_s / (measured.mean_s or measured.time_s or 1.0)
        if spread.samples_s:
            values["times_us"] = [sample_s * 1e6 for sample_s in spread.samples_s]
    return values
