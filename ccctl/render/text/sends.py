"""The table of sends at the end of the text of plain, periodic and symmetric schedules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ccctl import console

if TYPE_CHECKING:
    from probes.base import Floats, Indices

__all__ = ["draw", "left_out"]


def draw(
    chunk: Indices,
    src: Indices,
    dst: Indices,
    op: Indices,
    times_s: tuple[Floats, Floats] | None,
    lines: int,
) -> None:
    """Print the first ``lines`` sends: chunk, source, destination, and whether it is reduced.

    ``times_s`` are the start and arrival of each send; None where the schedule is not proven. ``src`` and
    ``dst`` may have only ``lines`` rows.
    """
    rows = [
        (
            row,
            *(("-", "-") if times_s is None else (f"{moment_s[row] * 1e6:.3f}" for moment_s in times_s)),
            chunk[row],
            f"{src[row]} -> {dst[row]}",
            "reduce" if op[row] else "copy",
        )
        for row in range(min(lines, len(chunk)))
    ]
    console.data("")
    console.table(("send", "start (us)", "arrival (us)", "chunk", "link", "op"), rows)
    left_out(len(chunk), lines, "sends")


def left_out(total: int, shown: int, what: str) -> None:
    """Print how many of ``total`` were not shown, and the option that shows them."""
    if total > shown:
        console.data(f"… and {total - shown} more {what}; --lines {total} shows all")
