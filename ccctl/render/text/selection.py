"""A selection as text: the range of sizes of each schedule, then the prediction at each size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ccctl import console
from ccctl.render import race_summary, seconds
from probes.base import format_size, plural

if TYPE_CHECKING:
    from synth.portfolio import SizedProgram
    from synth.schedules import Point, Selection

__all__ = ["busbw_gbs", "draw", "draw_runtime", "runtime_summary", "summary"]


def draw(selection: Selection, say: Callable[[str], None] = console.data, *, proven: bool = True) -> None:
    """Print the ranges, then time, bus bandwidth in GB/s and per cent of the optimum at each size.

    For a selection that is not ``proven``, print only the ranges.
    """
    shape, network = selection.collective, selection.network
    say(
        f"{shape.label} on {network.name}: {shape.ranks_in_words}, "
        f"{plural(len(selection.ranges), 'range')} of sizes, {plural(len(selection.algorithms), 'schedule')}"
    )
    rows = [
        (row["from"], row["to"], _called(row["library"], row["method"]), row["chunks"], row["sends"])
        for row in _ranges(selection)
    ]
    console.say_table(say, ("from", "to", "method", "chunks", "sends"), rows)
    if not proven:
        return
    say("")
    points = [
        (
            format_size(point.size_bytes),
            _called(selection.library(point.size_bytes), selection.algorithms[point.algorithm].method),
            seconds(point.time_s),
            seconds(point.race.entries[0].time_s) if point.race else "-",
            f"{busbw_gbs(selection, point):.2f}",
            f"{point.percent_of_optimal:.1f}",
            point.bound,
        )
        for point in selection.points
    ]
    heads = ("size", "method", "predicted", "measured", "busbw", "% of optimal", "bound")
    console.say_table(say, heads, points)


def summary(selection: Selection) -> dict[str, Any]:
    """Return the ranges and the prediction at each size, as ``--json`` prints them."""
    return {
        "collective": selection.collective.label,
        "ranks": selection.network.ranks,
        "ranks_taking_part": selection.collective.size,
        "links": selection.network.links,
        "ranges": [
            {name: value for name, value in row.items() if name not in ("from", "to")}
            for row in _ranges(selection)
        ],
        "sizes": [
            {
                "size_bytes": point.size_bytes,
                "method": selection.algorithms[point.algorithm].method,
                "library": selection.library(point.size_bytes) or None,
                "time_s": point.time_s,
                "busbw_gbs": busbw_gbs(selection, point),
                "bound_s": point.bound_s,
                "binding_bound": point.bound,
                "percent_of_optimal": point.percent_of_optimal,
                "race": race_summary(point.race) if point.race else None,
            }
            for point in selection.points
        ],
    }


def busbw_gbs(selection: Selection, point: Point) -> float:
    """Return the predicted bus bandwidth in GB/s, as defined by nccl-tests."""
    from exec.benchmark import busbw_factor

    factor = busbw_factor(selection.collective.kind, selection.collective.size)
    return factor * point.size_bytes / point.time_s / 1e9 if point.time_s else 0.0


def _ranges(selection: Selection) -> list[dict[str, Any]]:
    found = []
    starts = {one.from_bytes for one in selection.ranges}
    for one in selection.ranges:
        algorithm = selection.algorithms[one.algorithm]
        found.append(
            {
                "from": format_size(one.from_bytes),
                "to": _end(one.to_bytes, starts),
                "from_bytes": one.from_bytes,
                "to_bytes": one.to_bytes,
                "method": algorithm.method,
                "library": one.library or None,
                "schedule": one.algorithm,
                "chunks": algorithm.collective.chunks,
                "sends": algorithm.sends,
            }
        )
    return found


def _called(library: str | None, method: str) -> str:
    """Return the name for a range: a library's collective with its fallback, or a method."""
    return f"{library}, else {method}" if library else method


def _end(to_bytes: int, starts: set[int]) -> str:
    """Return the last size of a range, or the first size of the next range as <319K."""
    return f"<{format_size(to_bytes + 1)}" if to_bytes + 1 in starts else format_size(to_bytes)


def draw_runtime(entries: Sequence[SizedProgram], say: Callable[[str], None]) -> None:
    """Print a row for each range of sizes, then each size's gain over Simple with one instance."""
    ranges = plural(len(entries), "range")
    say(f"{ranges} of sizes; costs of protocols are those of NCCL's tuning, not measured")
    heads = ("from", "to", "method", "protocol", "instances", "channels", "threadblocks")
    rows = [
        (
            format_size(entry.from_bytes),
            _until(entry, entries),
            entry.method,
            entry.program.protocol,
            str(entry.instances),
            str(entry.program.channels),
            str(entry.program.threadblocks_max),
        )
        if entry.program is not None
        else (format_size(entry.from_bytes), _until(entry, entries), f"none: {entry.why}", *["-"] * 4)
        for entry in entries
    ]
    console.say_table(say, heads, rows)
    say("")
    points = [
        (
            format_size(point.size_bytes),
            entry.program.protocol,
            str(entry.instances),
            seconds(point.time_s),
            seconds(point.plain_s),
            f"{point.plain_s / point.time_s:.2f}x",
        )
        for entry in entries
        if entry.program is not None
        for point in entry.points
    ]
    console.say_table(say, ("size", "protocol", "instances", "predicted", "Simple x1", "gain"), points)


def _until(entry: SizedProgram, entries: Sequence[SizedProgram]) -> str:
    last = entry is entries[-1]
    return format_size(entry.to_bytes) if last else f"<{format_size(entry.to_bytes + 1)}"


def runtime_summary(entries: Sequence[SizedProgram]) -> dict[str, Any]:
    """Return the ranges and sizes as ``--json`` prints them."""
    return {
        "ranges": [
            {
                "from_bytes": entry.from_bytes,
                "to_bytes": entry.to_bytes,
                "method": entry.method or None,
                "protocol": entry.program.protocol if entry.program is not None else None,
                "instances": entry.instances or None,
                "channels": entry.program.channels if entry.program is not None else None,
                "why_none": entry.why or None,
                "sizes": [
                    {"size_bytes": one.size_bytes, "time_s": one.time_s, "simple_one_instance_s": one.plain_s}
                    for one in entry.points
                ],
            }
            for entry in entries
        ]
    }
