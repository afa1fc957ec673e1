"""A selection as text: the range of sizes of each schedule, then the prediction at each size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ccctl import console
from ccctl.render import Column, Say, about, figures, print_table, seconds
from probes.base import format_size, plural

if TYPE_CHECKING:
    from synth.portfolio import SizedProgram
    from synth.schedules import Point, Selection

__all__ = ["busbw_gbs", "draw", "draw_runtime", "range_columns", "runtime_summary", "summary"]


def summary(selection: Selection) -> dict[str, Any]:
    """Return the ranges and the prediction at each size, as ``--json`` prints them."""
    return {
        **figures(selection.network, "ranks links"),
        **figures(selection.collective, "collective=label ranks_taking_part=size"),
        "ranges": [
            figures(one, "from_bytes to_bytes schedule=algorithm")
            | figures(selection.algorithms[one.algorithm], "method chunks=collective.chunks sends")
            | {"library": one.library or None}
            for one in selection.ranges
        ],
        "sizes": [_point(selection, point) for point in selection.points],
    }


def _point(selection: Selection, point: Point) -> dict[str, Any]:
    """Return the figures of one size; on a measured host also the predicted run, which chose the schedule."""
    from synth.prediction import schedule_run_s

    algorithm = selection.algorithms[point.algorithm]
    run_s = None
    if selection.network.is_measured_host:
        run_s = schedule_run_s(algorithm.scheduled(selection.network, point.size_bytes))
    return figures(point, "size_bytes time_s bound_s binding_bound=bound percent_of_optimal race") | {
        "method": algorithm.method,
        "library": selection.library(point.size_bytes) or None,
        "predicted_run_s": run_s,
        "busbw_gbs": busbw_gbs(selection, point, run_s or point.time_s),
    }


def draw(selection: Selection, say: Say = console.data, *, proven: bool = True) -> None:
    """Print the ranges, then time, bus bandwidth in GB/s and per cent of the optimum at each size.

    For a selection that is not ``proven``, print only the ranges.
    """
    shape, result = selection.collective, summary(selection)
    say(
        f"{shape.label} on {selection.network.name}: {shape.ranks_in_words}, "
        f"{plural(len(selection.ranges), 'range')} of sizes, {plural(len(selection.algorithms), 'schedule')}"
    )
    starts = {one["from_bytes"] for one in result["ranges"]}
    last = Column("to", lambda one: _end(one["to_bytes"], one["to_bytes"] + 1 in starts))
    print_table((_FROM, last, *_RANGE), result["ranges"], say)
    if proven:
        say("")
        print_table(_POINT, result["sizes"], say)
        if any(one["predicted_run_s"] for one in result["sizes"]):
            say("predicted: a run, with copies and sums in memory; % of optimal: of links alone")


def _called(one: dict[str, Any]) -> str:
    """Return the name for a range: a library's collective with its fallback, or a method."""
    return f"{one['library']}, else {one['method']}" if one["library"] else one["method"]


def _end(to_bytes: int, followed: bool) -> str:
    """Return a range's last size; if another range follows, the first size of that one, as in <319K."""
    return f"<{about(to_bytes + 1)}" if followed else about(to_bytes)


_FROM = Column("from", "from_bytes", about)
_RANGE = (Column("method", _called), Column("chunks", "chunks"), Column("sends", "sends"))
_POINT = (
    Column("size", "size_bytes", format_size),
    Column("method", _called),
    Column("predicted", lambda one: one["predicted_run_s"] or one["time_s"], seconds),
    Column("measured", lambda one: one["race"] and seconds(one["race"]["entries"][0]["time_s"])),
    Column("busbw", "busbw_gbs", "{:.2f}"),
    Column("% of optimal", "percent_of_optimal", "{:.1f}"),
    Column("bound", "binding_bound"),
)


def range_columns(ranges: Sequence[Any]) -> tuple[Column, Column]:
    """Return the columns of the first and the last size of ``ranges``, which follow one another."""
    return _FROM, Column("to", lambda one: _end(one.to_bytes, one is not ranges[-1]))


def busbw_gbs(selection: Selection, point: Point, time_s: float) -> float:
    """Return the bus bandwidth in GB/s if a size takes ``time_s``, as defined by nccl-tests."""
    from exec.benchmark import busbw_factor

    factor = busbw_factor(selection.collective.kind, selection.collective.size)
    return factor * point.size_bytes / time_s / 1e9 if time_s else 0.0


def runtime_summary(entries: Sequence[SizedProgram]) -> dict[str, Any]:
    """Return the ranges and sizes as ``--json`` prints them."""
    names = "from_bytes to_bytes protocol=program.protocol channels=program.channels"
    return {
        "ranges": [
            figures(entry, names)
            | {
                "method": entry.method or None,
                "instances": entry.instances or None,
                "why_none": entry.why or None,
                "sizes": [
                    figures(point, "size_bytes time_s simple_one_instance_s=plain_s")
                    for point in entry.points
                ],
            }
            for entry in entries
        ]
    }


def draw_runtime(entries: Sequence[SizedProgram], say: Say) -> None:
    """Print a row for each range of sizes, then each size's gain over Simple with one instance."""
    ranges = plural(len(entries), "range")
    say(f"{ranges} of sizes; costs of protocols are those of NCCL's tuning, not measured")
    print_table((*range_columns(entries), *_RUNTIME_RANGE), entries, say)
    say("")
    points = [
        {"entry": entry, "point": point}
        for entry in entries
        if entry.program is not None
        for point in entry.points
    ]
    print_table(_RUNTIME_POINT, points, say)


_RUNTIME_RANGE = (
    Column("method", lambda entry: entry.method if entry.program is not None else f"none: {entry.why}"),
    Column("protocol", "program.protocol"),
    Column("instances", lambda entry: entry.program and entry.instances),
    Column("channels", "program.channels"),
    Column("threadblocks", "program.threadblocks_max"),
)
_RUNTIME_POINT = (
    Column("size", "point.size_bytes", format_size),
    Column("protocol", "entry.program.protocol"),
    Column("instances", "entry.instances"),
    Column("predicted", "point.time_s"),
    Column("Simple, 1 instance", "point.plain_s"),
    Column("gain", lambda row: row["point"].plain_s / row["point"].time_s, "{:.2f}x"),
)
