"""A race as text: which schedules ran with real data, and how long each took."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ccctl import console
from ccctl.render.units import about, seconds
from probes.base import plural

if TYPE_CHECKING:
    from synth.schedules import Race

__all__ = ["race_lines", "race_summary"]


def race_lines(race: Race) -> Iterator[str]:
    """Yield a line on where and how often the schedules ran, then a line for each, the fastest first."""
    yield (
        f"raced with {about(race.size_bytes)} on {', '.join(race.hosts)}, "
        f"{plural(race.iterations, 'iteration')} each, medians and quartiles:"
    )
    rows = [
        [
            one.method,
            "-" if one.chunks is None else str(one.chunks),
            "-" if one.sends is None else str(one.sends),
            seconds(one.time_s),
            f"{seconds(one.low_s)} to {seconds(one.high_s)}",
            "-" if one.predicted_s is None else seconds(one.predicted_s),
        ]
        for one in race.entries
    ]
    yield from console.aligned(("method", "chunks", "sends", "measured", "middle half", "predicted"), rows)


def race_summary(race: Race) -> dict[str, Any]:
    """Return the race as plain values."""
    return asdict(race)
