"""Breakdowns of runs as text: the steps from the proven bound to the measured time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ccctl import console
from ccctl.render import Column, print_table

if TYPE_CHECKING:
    from exec.benchmark import Breakdown, Forecast, Part, Report, Row

__all__ = ["draw_breakdowns", "kinds_of", "largest_difference"]

# At most this many places are named for each kind of part, and links and ports as busiest.
_MOST_PLACES = 3
_NOUNS = {"copy": "copies", "add": "adds", "memory": "copies and adds"}


def draw_breakdowns(report: Report) -> None:
    """Print the breakdown of each row that has one, in microseconds."""
    for row in report.rows:
        if row.breakdown is not None:
            _draw(row, row.breakdown)


def _draw(row: Row, breakdown: Breakdown) -> None:
    console.data("")
    console.data(
        f"# explained: {row.program}, {row.collective} of {row.size_bytes} bytes, {breakdown.placement}"
    )
    console.data(
        f"# run {breakdown.iteration + 1}, the nearest to the median; its slowest rank: "
        f"{breakdown.slowest_rank}; in us"
    )
    forecast = breakdown.forecast
    if forecast is None:
        console.data("# nothing is predicted without a network: --profile FILE names one")
    else:
        _draw_steps(forecast, breakdown)
    if breakdown.parts:
        _draw_kinds(forecast, breakdown)
        if breakdown.busy:
            console.data(f"# busiest links and ports, by the rates of the network: {_busiest(breakdown)}")
        _draw_ranks(breakdown)
    if breakdown.why_empty:
        console.data(f"# no breakdown: {breakdown.why_empty}")
    if breakdown.clock_error_s:
        console.data(
            f"# clocks of the hosts may be {_us(breakdown.clock_error_s)} us apart: parts are as uncertain"
        )


def _draw_steps(forecast: Forecast, breakdown: Breakdown) -> None:
    """Print the steps from bound to measured time, each with its total and its increment."""
    memory = "copies and sums of the busiest rank"
    steps = [
        ("bound", forecast.bound_s, forecast.bound),
        ("schedule", forecast.schedule_s, f"its transfers on {forecast.network}, taking turns at each port"),
        ("+ steps", forecast.schedule_s + forecast.steps_s, "what each step costs a rank"),
        (
            "+ sharing",
            forecast.time_s - forecast.memory_s,
            "the same if transfers share ports instead of taking turns (may be less)",
        ),
        (
            "+ memory",
            forecast.time_s,
            memory if forecast.memory_s else "not predicted: several hosts, or memory not measured",
        ),
        ("measured", breakdown.time_s, ""),
    ]
    before = [None, *(time_s for _, time_s, _ in steps)]
    rows = [
        [name, _us(time_s), "-" if last is None else _signed(time_s - last), why]
        for (name, time_s, why), last in zip(steps, before, strict=False)
    ]
    console.table(["", "time", "more", "what it counts"], rows)


def _draw_kinds(forecast: Forecast | None, breakdown: Breakdown) -> None:
    whole_s = sum(part.time_s for part in breakdown.parts)
    rows = [
        [
            name,
            "-" if predicted_s is None else _us(predicted_s),
            _us(measured_s),
            "-" if forecast is None else _signed(measured_s - (predicted_s or 0.0)),
            _places(parts),
        ]
        for name, predicted_s, measured_s, parts in (
            *kinds_of(breakdown),
            ("together", forecast.time_s if forecast else None, whole_s, []),
        )
    ]
    console.data("")
    console.table(["critical path", "predicted", "measured", "more", "most of it at"], rows)
    if difference := largest_difference(breakdown):
        console.data(f"# {difference}")


def largest_difference(breakdown: Breakdown, written: Callable[[float], str] | None = None) -> str:
    """Return where most of the difference from the prediction arose; "" without a prediction.

    ``written`` formats signed seconds; by default as microseconds without a unit.
    """
    written = written or _signed
    forecast = breakdown.forecast
    if forecast is None or not breakdown.parts:
        return ""
    kinds = [
        (measured_s - (predicted_s or 0.0), name, parts)
        for name, predicted_s, measured_s, parts in kinds_of(breakdown)
    ]
    whole_s = breakdown.time_s - forecast.time_s
    # Choose the kind that differs most in the direction of the total difference, slower or faster.
    most_s, name, parts = max(kinds, key=lambda kind: math.copysign(1.0, whole_s) * kind[0])
    at = f", most at {_place(parts[0])}" if parts else ""
    rest_s = whole_s - most_s
    if most_s * rest_s < 0:
        way = "less" if rest_s < 0 else "more"
        at += f"; all else together {written(rest_s)}, {way} than predicted"
    return f"most of the difference of {written(whole_s)}: {name} {written(most_s)}{at}"


def kinds_of(breakdown: Breakdown) -> list[tuple[str, float | None, float, list[Part]]]:
    """Return (name, predicted seconds, measured seconds, measured parts) of each kind, longest parts first.

    The predicted seconds are None without a prediction, or if it has no part of this kind.
    """
    from exec.benchmark import GROUPS

    forecast, found = breakdown.forecast, []
    for name, kinds in GROUPS.items():
        parts = [part for part in breakdown.parts if part.kind in kinds]
        expected = [part.time_s for part in (forecast.parts if forecast else ()) if part.kind in kinds]
        predicted_s = sum(expected) if expected else None
        found.append((name, predicted_s, sum(part.time_s for part in parts), parts))
    return found


def _draw_ranks(breakdown: Breakdown) -> None:
    fields = ("late", "waiting", "copying", "adding", "core", "other", "time")
    heads = {"core": "no core", "time": "from first start"}
    times = [Column(heads.get(name, name), f"{name}_us", "{:.1f}") for name in fields]
    console.data("")
    print_table((Column("rank", "rank"), *times), breakdown.ranks)


def _busiest(breakdown: Breakdown) -> str:
    """Return the busiest links and ports, each with the share of the run that its traffic needs."""
    named = [
        f"{one.kind} {one.where} {100 * one.needed_s / breakdown.time_s:.0f} %"
        for one in breakdown.busy[:_MOST_PLACES]
    ]
    return ", ".join(named)


def _places(parts: Sequence[Part]) -> str:
    named = [f"{_place(part)} {_us(part.time_s)}" for part in parts[:_MOST_PLACES]]
    return ", ".join(named) + (f", {len(parts) - _MOST_PLACES} more" if len(parts) > _MOST_PLACES else "")


def _place(part: Part) -> str:
    noun = _NOUNS.get(part.kind)
    return f"{part.where} {noun}" if noun else part.where


def _us(time_s: float) -> str:
    return f"{time_s * 1e6:.1f}"


def _signed(time_s: float) -> str:
    return f"{time_s * 1e6:+.1f}"
