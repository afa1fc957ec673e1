"""A report as the table of nccl-tests: its columns, then the prediction, then each peer.

Every time, bandwidth and ratio is of the median of the iterations.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING

from ccctl import console
from ccctl.render import bandwidth
from ccctl.render.text.benchmark.breakdown import draw_breakdowns

if TYPE_CHECKING:
    from exec.benchmark import Measurement, Report, Row

__all__ = ["ColumnTable", "draw", "draw_foot", "draw_head"]

_HEAD = ("size (B)", "count", "type", "redop", "root")
_PLACEMENT = ("time (us)", "algbw", "busbw", "#wrong")
_ITERATIONS = ("i_min", "i_max", "i_p99", "i_cv%")
_SPREAD = ("p99 (us)", "mean (us)", "slowest")
_PREDICTED = ("time (us)", "ours")
_PEER = ("time (us)", "busbw", "ours")
# Column widths when rows are printed one by one: room for 99 seconds, 9999 GB/s.
_WIDTHS = {"time (us)": 11, "p99 (us)": 11, "mean (us)": 11, "algbw": 7, "busbw": 7, "ours": 7}
_EITHER = ("placement", "second placement")
# Columns dropped on narrow terminals, least useful first: kinds of groups, and one of their columns.
_DISPENSABLE: tuple[tuple[tuple[str, ...], str], ...] = (
    *((("row",), title) for title in ("root", "redop", "type", "count")),
    (("spread",), "slowest"),
    (("spread",), "mean (us)"),
    (_EITHER, "algbw"),
    (("predicted",), "time (us)"),
    (("spread",), "p99 (us)"),
    (("predicted",), "ours"),
    (("peer",), "busbw"),
    (_EITHER, "#wrong"),
    *((_EITHER, title) for title in reversed(_ITERATIONS)),
    (("second placement",), "busbw"),
    (("second placement",), "time (us)"),
    (("peer",), "time (us)"),
    (("row",), "program"),
)


def draw(report: Report) -> None:
    """Print the rows of ``report``, then their breakdowns, in GB/s and microseconds per iteration."""
    draw_head(report)
    table = ColumnTable(report.rows, width=console.width())
    for line in [*table.lines(report.rows), *table.notes()]:
        console.data(line)
    draw_foot(report)
    draw_breakdowns(report)


def draw_head(report: Report) -> None:
    """Print the header: the measurement, its ranks, its program and its iterations."""
    kinds = dict.fromkeys(row.collective for row in report.rows)
    hosts = f"{len(report.hosts)} hosts" if len(report.hosts) != 1 else report.hosts[0]
    console.data(f"# {', '.join(kinds) or 'nothing'} on {report.ranks} ranks, {hosts}")
    console.data(f"# {report.executor}: {report.library}")
    console.data(
        f"# {report.iterations} iterations after {report.warmup} to warm up; medians of the time of: "
        f"{report.average}; bandwidth in GB/s"
    )


def draw_foot(report: Report) -> None:
    """Print the last lines of nccl-tests: wrong results, and the mean of the bus bandwidths."""
    found = [one for row in report.rows for one in (row.out_of_place, row.in_place) if one is not None]
    checked = [one.wrong for one in found if one.wrong is not None]
    if checked:
        wrong = sum(checked)
        console.data(f"# Out of bounds values : {wrong} {'FAILED' if wrong else 'OK'}")
    if found:
        console.data(f"# Avg bus bandwidth    : {sum(one.busbw_gbs for one in found) / len(found):.4g}")
    for line in _doubts(report.rows):
        console.data(line)
    if report.interrupted:
        console.data(f"# interrupted          : {report.interrupted}")


def _doubts(rows: Sequence[Row]) -> Iterator[str]:
    """Yield a line for each reason why ratios are missing."""
    compared = [
        (row, name) for row in rows for name in (None, *row.peers) if name or row.predicted_s is not None
    ]
    doubts = {row.doubt(name) for row, name in compared}
    if "cores" in doubts:
        crowded = "; ".join(dict.fromkeys(row.crowded for row in rows if row.crowded))
        yield f"# cores                : {crowded}: no ratio, as ranks waited for cores"
    if "spread" in doubts:
        yield "# spread               : iterations differ too much for a ratio (p99 above 3 times the median)"


@dataclass(frozen=True)
class _Column:
    """A column: the kind and name of its group, its name, its least width."""

    kind: str
    group: str
    title: str
    width: int


class ColumnTable:
    """The columns that some rows fill, in named groups.

    ``widest`` gives the longest values of rows still to come, by column name such as "size (B)". ``width`` is
    the most characters of a line; the least useful columns are left out to fit.
    """

    def __init__(
        self, rows: Sequence[Row], widest: Mapping[str, str] | None = None, width: int | None = None
    ) -> None:
        self.both = [any(row.out_of_place for row in rows), any(row.in_place for row in rows)]
        self.peers = list(dict.fromkeys(name for row in rows for name in row.peers))
        measured = [one for row in rows for one in (row.out_of_place, row.in_place) if one is not None]
        self.detailed = any(one.spread is not None and one.spread.samples_s for one in measured)
        self.programs = len({row.program for row in rows}) > 1 if widest is None else "program" in widest
        columns = self._columns({} if widest is None else widest, streamed=widest is not None)
        if widest is None:
            cells = list(zip(*map(self.cells, rows), strict=True))
            columns = [
                replace(column, width=max(map(len, column_cells), default=0))
                for column, column_cells in zip(columns, cells or [()] * len(columns), strict=True)
            ]
        left_out = _left_out(columns, width)
        self._shown = [at for at in range(len(columns)) if at not in left_out]
        self._all = columns

    def _columns(self, widest: Mapping[str, str], *, streamed: bool) -> list[_Column]:
        groups: list[tuple[str, str, Sequence[str]]] = [
            ("row", "", (*_HEAD, *(("program",) if self.programs else ())))
        ]
        placement = (*_PLACEMENT, *(_ITERATIONS if self.detailed else ()))
        names = [name for name, filled in zip(("out of place", "in place"), self.both, strict=True) if filled]
        groups += [
            (kind, name, placement)
            for kind, name in zip(("placement", "second placement"), names, strict=False)
        ]
        groups += [("spread", "", _SPREAD), ("predicted", "predicted", _PREDICTED)]
        groups += [("peer", name, _PEER) for name in self.peers]
        return [
            _Column(
                kind,
                group,
                title,
                max(len(widest.get(title, "")), _WIDTHS.get(title, 0)) if streamed else 0,
            )
            for kind, group, titles in groups
            for title in titles
        ]

    def lines(self, rows: Sequence[Row]) -> list[str]:
        """Return two lines of column names, then the rows."""
        shown = [self._all[at] for at in self._shown]
        cells = [[row[at] for at in self._shown] for row in map(self.cells, rows)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)] or [0] * len(shown)
        widths = [max(pair) for pair in zip(widths, _widths(shown), strict=True)]
        lines = console.aligned([one.title for one in shown], cells, widths)
        return [_over(lines[0], shown, widths), *lines]

    def notes(self) -> Iterator[str]:
        """Yield a note on the columns that were left out, if any."""
        names: dict[str, None] = {}
        for (kind, name), group in groupby(enumerate(self._all), lambda one: (one[1].kind, one[1].group)):
            titles = {at: one.title.removesuffix(" (us)") for at, one in group}
            left_out = [title for at, title in titles.items() if at not in self._shown]
            if name and len(left_out) == len(titles):
                left_out = [name]
            elif kind == "peer":
                left_out = [f"{name} {title}" for title in left_out]
            names |= dict.fromkeys(left_out)
        if names:
            yield f"# Left out             : {', '.join(names)}; a wider terminal or a file shows them"

    def fits(self, row: Row) -> bool:
        """Return whether every value of a row has a column."""
        return set(row.peers) <= set(self.peers)

    def cells(self, row: Row) -> list[str]:
        """Return the row as text, a cell for each column, including those left out."""
        cells = [str(row.size_bytes), str(row.count), row.dtype, row.redop, str(row.root)]
        cells += [row.program] if self.programs else []
        for filled, measured in zip(self.both, (row.out_of_place, row.in_place), strict=True):
            cells += self._placement(measured) if filled else []
        cells += _spread(row.shown)
        if row.predicted_s is None:
            cells += ["-", "-"]
        else:
            cells += [f"{row.predicted_s * 1e6:.2f}", row.doubt() or _times(row.predicted_over_ours)]
        for name in self.peers:
            cells += _peer(row, name)
        return cells

    def _placement(self, measured: Measurement | None) -> list[str]:
        if measured is None:
            return ["-"] * (len(_PLACEMENT) + (len(_ITERATIONS) if self.detailed else 0))
        wrong = "N/A" if measured.wrong is None else str(measured.wrong)
        cells = [
            f"{measured.time_s * 1e6:.2f}",
            bandwidth(measured.algbw_gbs),
            bandwidth(measured.busbw_gbs),
            wrong,
        ]
        return cells + (_iterations(measured) if self.detailed else [])


def _iterations(measured: Measurement) -> list[str]:
    spread = measured.spread
    if spread is None:
        return ["-"] * len(_ITERATIONS)
    cv = 100 * spread.stdev_s / (measured.mean_s or measured.time_s or 1.0)
    times_s = (spread.min_s, spread.max_s, measured.p99_s)
    return [*(f"{time_s * 1e6:.2f}" for time_s in times_s), f"{cv:.1f}"]


def _spread(measured: Measurement | None) -> list[str]:
    if measured is None:
        return ["-"] * len(_SPREAD)
    slowest = str(measured.slowest_rank) if measured.slowest_rank >= 0 else "-"
    return [f"{measured.p99_s * 1e6:.2f}", f"{(measured.mean_s or measured.time_s) * 1e6:.2f}", slowest]


def _peer(row: Row, name: str) -> list[str]:
    peer = row.peers.get(name)
    if peer is None:
        return ["-"] * len(_PEER)
    ratio = row.doubt(name) or _times(row.peer_over_ours(name))
    return [f"{peer.time_s * 1e6:.2f}", bandwidth(peer.busbw_gbs), ratio]


def _left_out(columns: Sequence[_Column], width: int | None) -> set[int]:
    """Return the positions of the columns that do not fit into ``width`` characters."""
    left_out: set[int] = set()
    for kinds, title in _DISPENSABLE:
        shown = [column for at, column in enumerate(columns) if at not in left_out]
        needed = sum(_widths(shown)) + 2 * (len(shown) - 1)
        if width is None or needed <= width:
            break
        left_out |= {at for at, one in enumerate(columns) if one.title == title and one.kind in kinds}
    return left_out


def _widths(columns: Sequence[_Column]) -> list[int]:
    """Return the width of each column; the last of a group makes room for the group's name."""
    widths = [max(column.width, len(column.title)) for column in columns]
    for (_, name), group in groupby(range(len(columns)), lambda at: (columns[at].kind, columns[at].group)):
        ats = list(group)
        widths[ats[-1]] += max(0, len(name) - sum(widths[at] for at in ats) - 2 * (len(ats) - 1))
    return widths


def _over(heads: str, columns: Sequence[_Column], widths: Sequence[int]) -> str:
    """Return the line above the heads, with each group's name aligned to its first column's name.

    A name that is too long begins further left.
    """
    line, at, end = "", 0, 0
    for (_, name), group in groupby(range(len(columns)), lambda at: (columns[at].kind, columns[at].group)):
        ats = list(group)
        end += sum(widths[at] + 2 for at in ats)
        first = heads.index(columns[ats[0]].title, at)
        if name:
            line = line.ljust(min(first, end - 2 - len(name))) + name
        for each in ats:
            at = heads.index(columns[each].title, at) + len(columns[each].title)
    return line


def _times(over_ours: float | None) -> str:
    """Return a peer's or the predicted time as a multiple of ours; above 1x we are faster."""
    return "-" if over_ours is None else f"{over_ours:.2f}x"
