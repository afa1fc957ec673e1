"""A report as one object, and as the table of nccl-tests: its columns, then the prediction, then each peer.

Times, bandwidths and ratios follow from the median of the iterations, unless a column names another
statistic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from ccctl import console
from ccctl.render import Column, about, bandwidth, cells, figures
from ccctl.render.text.breakdown import draw_breakdowns, largest_difference
from probes.base import some

if TYPE_CHECKING:
    from exec.benchmark import Breakdown, Measurement, Report, Row, RowChange

__all__ = ["ColumnTable", "changes_of", "draw", "draw_foot", "draw_head", "shows_programs", "summary"]


def summary(report: Report, changes: Sequence[RowChange] | None = None) -> dict[str, Any]:
    """Return the object of ``--json``; it has ``baseline`` if the report was compared with another."""
    values = figures(report, "ranks hosts executor library machine average interrupted")
    values["rows"] = [_row(row) for row in report.rows]
    return values if changes is None else values | {"baseline": changes_of(changes)}


def changes_of(changes: Sequence[RowChange]) -> list[dict[str, Any]]:
    """Return the common rows of two reports, with their changes."""
    return [figures(change, "row=label old_us new_us noise_us ratio slower") for change in changes]


def _row(row: Row) -> dict[str, Any]:
    """Return a row as an object, with out-of-place times if measured, else in-place ones."""
    values = figures(row, "collective size_bytes count dtype redop root program")
    values |= _measured(row.shown) if row.shown else {}
    placements = {"out_of_place": row.out_of_place, "in_place": row.in_place}
    checked = [found.wrong for found in placements.values() if found and found.wrong is not None]
    doubts = {name or "predicted": row.doubt(name) for name in (None, *row.peers)}
    values |= {
        "wrong": sum(checked) if checked else None,
        **figures(row, "predicted_us achieved=predicted_over_ours"),
        "peers": {name: peer.time_s * 1e6 for name, peer in row.peers.items()},
        "peers_over_ours": {name: row.peer_over_ours(name) for name in row.peers},
        "why_no_ratio": {name: doubt for name, doubt in doubts.items() if doubt},
        "peers_wrong": {name: peer.wrong for name, peer in row.peers.items()},
    }
    if row.breakdown is not None:
        values["breakdown"] = _breakdown(row.breakdown)
    return values | {name: _measured(found) for name, found in placements.items() if found}


def _breakdown(breakdown: Breakdown) -> dict[str, Any]:
    """Return a breakdown in microseconds, with measured parts and the forecast's predicted parts."""
    prediction = breakdown.forecast
    forecast = "network bound bound_us schedule_us steps_us sharing_us memory_us predicted_us=time_us"
    ranks = "rank late_us waiting_us copying_us adding_us core_us other_us"
    return {
        **figures(breakdown, "placement iteration time_us slowest_rank clock_error_us why_empty"),
        "forecast": prediction and {**figures(prediction, forecast), "parts": _parts(prediction.parts)},
        "parts": _parts(breakdown.parts),
        "ranks": [figures(rank, ranks) for rank in breakdown.ranks],
        "busy": [
            figures(one, "kind where carried_bytes needed_us")
            | {"percent": 100 * one.needed_s / breakdown.time_s}
            for one in breakdown.busy
        ],
        "largest_difference": largest_difference(breakdown),
    }


def _parts(parts: Sequence[Any]) -> list[dict[str, Any]]:
    return [figures(part, "kind where time_us") for part in parts]


def _measured(one: Measurement) -> dict[str, Any]:
    names = "time_us p50_us p99_us algbw_gbs busbw_gbs slowest_rank wrong rank_us"
    values = figures(one, names) | {"mean_us": _mean_us(one)}
    if (spread := one.spread) is not None:
        values |= figures(spread, "min_us max_us" + (" times_us=samples_us" if spread.samples_s else ""))
        values["cv_percent"] = _cv_percent(one)
    return values


def _mean_us(one: Measurement) -> float:
    return (one.mean_s or one.time_s) * 1e6


def _cv_percent(one: Measurement) -> float | None:
    mean_s = one.mean_s or one.time_s or 1.0
    return None if one.spread is None else 100 * one.spread.stdev_s / mean_s


_US = "{:.2f}"
# Medians of benchmarks on a quiet machine differ by up to 5 % from run to run.
_ALIKE = 1.05
_MOST_SIZES = 12
_HEAD = (
    Column("size (B)", "size_bytes", "{}"),
    Column("count", "count"),
    Column("type", "dtype"),
    Column("redop", "redop"),
    Column("root", "root"),
)
_COLLECTIVE = Column("collective", "collective")
_PROGRAM = Column("program", "program")
_PLACEMENT = (
    Column("time (us)", "time_us", _US),
    Column("algbw", "algbw_gbs", bandwidth),
    Column("busbw", "busbw_gbs", bandwidth),
    Column("#wrong", lambda one: "N/A" if one.wrong is None else one.wrong),
)
_ITERATIONS = (
    Column("i_min", "spread.min_us", _US),
    Column("i_max", "spread.max_us", _US),
    Column("i_p99", lambda one: one.spread and one.p99_s * 1e6, _US),
    Column("i_cv%", _cv_percent, "{:.1f}"),
)
_SPREAD = (
    Column("p99 (us)", "p99_us", _US),
    Column("mean (us)", _mean_us, _US),
    Column("slowest", lambda one: one.slowest_rank if one.slowest_rank >= 0 else None),
)
_PREDICTED = (
    Column("time (us)", "predicted_us", _US),
    Column(
        "/measured", lambda row: _ours(row, row.predicted_over_ours) if row.predicted_s is not None else None
    ),
)


def _peer(name: str) -> tuple[Column, ...]:
    """Return the columns of a peer."""
    time, busbw = (one.below(lambda row: row.peers.get(name)) for one in (_PLACEMENT[0], _PLACEMENT[2]))

    def ours(row: Row) -> str | None:
        return _ours(row, row.peer_over_ours(name), name) if name in row.peers else None

    return time, busbw, Column("ours", ours)


def _ours(row: Row, ratio: float | None, peer: str | None = None) -> str | None:
    """Return the peer's or predicted time as a multiple of ours, or why there is none.

    Above 1x ours is faster. None if there is neither a multiple nor a reason.
    """
    return row.doubt(peer) or (None if ratio is None else f"{ratio:.2f}x")


# The rank whose time counts as the time of an iteration.
_OF_RANKS = {
    "rank 0": "rank 0",
    "average": "the average of all ranks",
    "fastest": "the fastest rank",
    "slowest": "the slowest rank",
}
# Column widths when rows are printed one by one: room for 99 seconds, 9999 GB/s.
_WIDTHS = {
    "time (us)": 11,
    "p99 (us)": 11,
    "mean (us)": 11,
    "algbw": 7,
    "busbw": 7,
    "ours": 7,
    "/measured": 9,
}
_EITHER = ("placement", "second placement")
# Columns dropped on narrow terminals, least useful first. An entry is (kinds of column groups, head of the
# column that these groups lose).
_DISPENSABLE: tuple[tuple[tuple[str, ...], str], ...] = (
    *((("row",), title) for title in ("root", "redop", "type", "count")),
    (("spread",), "slowest"),
    (("spread",), "mean (us)"),
    (_EITHER, "algbw"),
    (("predicted",), "time (us)"),
    (("spread",), "p99 (us)"),
    (("predicted",), "/measured"),
    (("peer",), "busbw"),
    (_EITHER, "#wrong"),
    *((_EITHER, one.head) for one in reversed(_ITERATIONS)),
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
    kinds = dict.fromkeys([report.label] if report.label else [row.collective for row in report.rows])
    hosts = f"{len(report.hosts)} hosts" if len(report.hosts) != 1 else report.hosts[0]
    console.data(f"# {', '.join(kinds) or 'nothing'} on {report.ranks} ranks, {hosts}")
    console.data(f"# {report.executor}: {report.library}")
    console.data(
        f"# {report.iterations} iterations after {report.warmup} to warm up; times are medians, of "
        f"{_OF_RANKS[report.average]}; slowest: number of the slowest rank; bandwidth in GB/s"
    )
    if report.label:
        console.data("# size: all blocks of the fullest buffer; count: elements of the largest block")


def draw_foot(report: Report) -> None:
    """Print wrong results and mean bus bandwidth like nccl-tests, then why ratios are missing."""
    found = [one for row in report.rows for one in (row.out_of_place, row.in_place) if one is not None]
    checked = [one.wrong for one in found if one.wrong is not None]
    if checked:
        wrong = sum(checked)
        console.data(f"# Out of bounds values : {wrong} {'FAILED' if wrong else 'OK'}")
    if found:
        console.data(f"# Avg bus bandwidth    : {sum(one.busbw_gbs for one in found) / len(found):.4g}")
    for line in [*_beside(report.rows), *_doubts(report.rows)]:
        console.data(line)
    if report.interrupted:
        console.data(f"# interrupted          : {report.interrupted}")


def _beside(rows: Sequence[Row]) -> Iterator[str]:
    """Yield a line for each peer: the sizes at which ccctl is faster, the peer is faster, or neither is.

    Times that differ by less than ``_ALIKE`` count as alike.
    """
    for name in dict.fromkeys(name for row in rows for name in row.peers):
        sizes: dict[str, dict[str, None]] = {}
        for row in rows:
            if name in row.peers:
                sizes.setdefault(_winner(row, name), {})[about(row.size_bytes)] = None
        outcomes = [f"{winner} at {some(list(own), _MOST_SIZES)}" for winner, own in sizes.items()]
        yield f"# beside {name:<13} : {'; '.join(outcomes)}"


def _winner(row: Row, name: str) -> str:
    ratio = row.peer_over_ours(name)
    if ratio is None:
        return "cannot tell which is faster"
    if max(ratio, 1 / ratio) < _ALIKE:
        return "as fast"
    return "ccctl is faster" if ratio > 1 else f"{name} is faster"


def _doubts(rows: Sequence[Row]) -> Iterator[str]:
    """Yield a line for each reason why ratios are missing."""
    compared = [
        (row, name) for row in rows for name in (None, *row.peers) if name or row.predicted_s is not None
    ]
    doubts = {row.doubt(name) for row, name in compared}
    if "cores" in doubts:
        crowded = "; ".join(dict.fromkeys(row.crowded for row in rows if row.crowded))
        yield (
            f"# ours: cores          : no ratio, because ranks waited for cores ({crowded}); run again on "
            "idle hosts, with at most one rank a core"
        )
    if "spread" in doubts:
        yield (
            "# ours: spread         : no ratio, because iterations differ too much (p99 above 3 times the "
            "median); try more (--iters 200)"
        )


@dataclass(frozen=True)
class _ColumnGroup:
    """Columns of one kind below a name; each is at least as wide as its head."""

    kind: str
    name: str
    columns: tuple[Column, ...]

    @property
    def widths(self) -> list[int]:
        """The width of each column; the last column makes room for the name."""
        *widths, last = [column.width for column in self.columns] or [0]
        return [*widths, max(last, len(self.name) - sum(widths) - 2 * len(widths))] if self.columns else []

    def without(self, title: str) -> _ColumnGroup:
        return replace(self, columns=tuple(column for column in self.columns if column.head != title))


class ColumnTable:
    """The columns that some rows fill, in named groups.

    ``widest`` gives the longest values of rows still to come, by column name such as "size (B)". ``width`` is
    the most characters of a line; the least useful columns are left out to fit.
    """

    def __init__(
        self, rows: Sequence[Row], widest: Mapping[str, str] | None = None, width: int | None = None
    ) -> None:
        self.peers = list(dict.fromkeys(name for row in rows for name in row.peers))
        programs = shows_programs(row.program for row in rows) if widest is None else "program" in widest

        def wide(column: Column) -> Column:
            texts = [column.head, *(map(column.cell, rows) if widest is None else ())]
            if widest is not None:
                texts += [widest.get(column.head, ""), _WIDTHS.get(column.head, 0) * " "]
            return replace(column, width=max(map(len, texts)))

        self._all = [
            _ColumnGroup(kind, name, tuple(map(wide, columns)))
            for kind, name, columns in _groups(rows, self.peers, programs=programs)
        ]
        self._shown = _fitting(self._all, width)

    def lines(self, rows: Sequence[Row]) -> list[str]:
        """Return a line of group names and a line of column names, then the rows."""
        heads, texts = cells([one for group in self._shown for one in group.columns], rows)
        least = [width for group in self._shown for width in group.widths]
        widths = [max(map(len, column)) for column in zip(heads, *texts, strict=True)]
        widths = [max(pair) for pair in zip(widths, least, strict=True)]
        lines = console.aligned(heads, texts, widths)
        return [_over(lines[0], self._shown, iter(widths)), *lines]

    def notes(self) -> Iterator[str]:
        """Yield a note on the columns that were left out, if any."""
        names: dict[str, None] = {}
        for group, shown in zip(self._all, self._shown, strict=True):
            left_out = [
                column.head.removesuffix(" (us)") for column in group.columns if column not in shown.columns
            ]
            if group.name and not shown.columns:
                left_out = [group.name]
            elif group.kind == "peer":
                left_out = [f"{group.name} {title}" for title in left_out]
            names |= dict.fromkeys(left_out)
        if names:
            yield f"# Left out             : {', '.join(names)}; a wider terminal or a file shows them"

    def fits(self, row: Row) -> bool:
        """Return whether the table has columns for every peer of a row."""
        return set(row.peers) <= set(self.peers)


def shows_programs(names: Iterable[str]) -> bool:
    """Return whether a table names the program of each row.

    A table does so if there are several programs, or if a program was chosen for the size: "ccctl: greedy",
    "table.json: ring".
    """
    known = set(names)
    return len(known) > 1 or any(": " in name for name in known)


def _groups(
    rows: Sequence[Row], peers: Sequence[str], *, programs: bool
) -> Iterator[tuple[str, str, Sequence[Column]]]:
    """Yield (kind, name, columns) of each group that the rows fill."""
    first = (_COLLECTIVE,) if len({row.collective for row in rows}) > 1 else ()
    yield "row", "", (*first, *_HEAD, _PROGRAM) if programs else (*first, *_HEAD)
    measured = [one for row in rows for one in (row.out_of_place, row.in_place) if one is not None]
    detailed = any(one.spread is not None and one.spread.samples_s for one in measured)
    kinds = iter(_EITHER)
    for name in ("out_of_place", "in_place"):
        part: Callable[[Row], Measurement | None] = attrgetter(name)
        if any(map(part, rows)):
            several = (*_PLACEMENT, *_ITERATIONS) if detailed else _PLACEMENT
            yield next(kinds), name.replace("_", " "), [one.below(part) for one in several]
    yield "spread", "", [one.below(attrgetter("shown")) for one in _SPREAD]
    yield "predicted", "predicted", _PREDICTED
    for name in peers:
        yield "peer", name, _peer(name)


def _fitting(groups: list[_ColumnGroup], width: int | None) -> list[_ColumnGroup]:
    """Return the groups without the columns that do not fit into ``width`` characters."""
    for kinds, title in _DISPENSABLE:
        widths = [one for group in groups for one in group.widths]
        if width is None or sum(widths) + 2 * (len(widths) - 1) <= width:
            break
        groups = [one.without(title) if one.kind in kinds else one for one in groups]
    return groups


def _over(heads: str, groups: Sequence[_ColumnGroup], widths: Iterator[int]) -> str:
    """Return the line above the heads, with each group's name aligned to its first column's name.

    A name that is too long begins further left.
    """
    line, at, end = "", 0, 0
    for group in groups:
        end += sum(next(widths) + 2 for _ in group.columns)
        if group.name and group.columns:
            first = heads.index(group.columns[0].head, at)
            line = line.ljust(min(first, end - 2 - len(group.name))) + group.name
        for column in group.columns:
            at = heads.index(column.head, at) + len(column.head)
    return line
