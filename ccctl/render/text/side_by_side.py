"""Reports side by side: the rows of all of them, and the changes of one from a baseline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ccctl import console
from ccctl.render import Column, bandwidth, print_table, seconds

if TYPE_CHECKING:
    from exec.benchmark import Measurement, Report, RowChange

__all__ = ["CHANGES", "draw_changes", "draw_side_by_side"]

Key = tuple[str, int, str, str]
# The columns of a row's change from the baseline.
CHANGES = (
    Column("row", "label"),
    Column("before", "old_s"),
    Column("now", "new_s"),
    Column("now/before", "ratio", "{:.2f}x"),
    Column("least that counts", lambda change: f"± {seconds(change.least_s)}"),
    Column("verdict", lambda change: _verdict(change)),
)


def _verdict(change: RowChange) -> str:
    found = "SLOWER" if change.slower else "faster" if change.faster else "same"
    return f"{found}, not reliable: ranks waited for cores" if change.crowded else found


def draw_changes(changes: Sequence[RowChange]) -> None:
    """Print, for each row and placement, the old time, the new time and the verdict."""
    console.data("")
    console.data("# compared with the baseline")
    print_table(CHANGES, changes)


def draw_side_by_side(reports: Sequence[tuple[str, Report]]) -> None:
    """Print all reports' rows: time, busbw, and the first report's speed-up over the others."""
    for name, report in reports:
        partial = f"; interrupted: {report.interrupted}" if report.interrupted else ""
        console.data(f"# {name}: {report.executor}, {report.library}, {report.ranks} ranks{partial}")
    rows = [_by_key(report) for _, report in reports]
    keys = sorted({key for found in rows for key in found})
    titles = ["collective", "size (B)", "type", "redop"]
    for number, _ in enumerate(reports):
        titles += [f"time {number + 1} (us)", f"busbw {number + 1}"] + ([f"1/{number + 1}"] if number else [])
    console.table(titles, [_cells(key, [found.get(key) for found in rows]) for key in keys])
    if not any(all(key in found for found in rows) for key in keys):
        console.note("no row is in all reports: their sizes, types or operators differ")


def _by_key(report: Report) -> dict[Key, Measurement]:
    """Return the measurement of each row, by key; the fastest program's if there are several."""
    found: dict[Key, Measurement] = {}
    for row in report.rows:
        shown, key = row.shown, (row.collective, row.size_bytes, row.dtype, row.redop)
        if shown is not None and (key not in found or shown.time_s < found[key].time_s):
            found[key] = shown
    return found


def _cells(key: Key, found: Sequence[Measurement | None]) -> list[str]:
    cells = [str(part) for part in key]
    first = found[0]
    for number, one in enumerate(found):
        cells += ["-", "-"] if one is None else [f"{one.time_s * 1e6:.2f}", bandwidth(one.busbw_gbs)]
        if number:
            both = one is not None and first is not None and first.time_s > 0
            cells.append(f"{one.time_s / first.time_s:.2f}x" if both and one and first else "-")
    return cells
