"""A race as text: which schedules ran with real data, and how long each took."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ccctl import console
from ccctl.render.fields import Column, cells
from ccctl.render.units import about, seconds
from probes.base import plural

if TYPE_CHECKING:
    from synth.schedules import Race

__all__ = ["race_lines"]


def race_lines(race: Race) -> Iterator[str]:
    """Yield a line on where and how often the schedules ran, then a line for each, the fastest first."""
    yield (
        f"raced with {about(race.size_bytes)} on {', '.join(race.hosts)}, "
        f"{plural(race.iterations, 'iteration')} each, medians and quartiles:"
    )
    yield from console.aligned(*cells(_ENTRIES, race.entries))


_ENTRIES = (
    Column("method", "method"),
    Column("chunks", "chunks"),
    Column("sends", "sends"),
    Column("measured", "time_s"),
    Column("middle half", lambda one: f"{seconds(one.low_s)} to {seconds(one.high_s)}"),
    Column("predicted", "predicted_s"),
)
