"""A report as the table of nccl-tests: its columns, then the prediction, then each peer.

Every time, bandwidth and ratio is of the median of the iterations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ccctl import console
from ccctl.render.text.benchmark.breakdown import draw_breakdowns

if TYPE_CHECKING:
    from exec.benchmark.report import Measurement, Report, Row

__all__ = ["Table", "draw", "draw_foot", "draw_head"]

_HEAD = ("size (B)", "count", "type", "redop", "root")
_PLACEMENT = ("time (us)", "algbw", "busbw", "#wrong")
_ITERATIONS = ("i_min", "i_max", "i_p99", "i_cv%")
_SPREAD = ("p99 (us)", "mean (us)", "slowest")
_PREDICTED = ("time (us)", "ours")
_PEER = ("time (us)", "busbw", "ours")
# How wide a column is from the start where its rows come one by one: 99 seconds, 9999 GB/s.
_WIDTHS = {"time (us)": 11, "p99 (us)": 11, "mean (us)": 11, "algbw": 7, "busbw": 7, "ours": 7}


def draw(report: Report) -> None:
    """Print the rows of ``report``, then their breakdowns; bandwidths in GB/s, microseconds per iteration."""
    draw_head(report)
    table = Table(report.rows)
    for line in table.lines(report.rows):
        console.data(line)
    draw_foot(report)
    draw_breakdowns(report)


def draw_head(report: Report) -> None:
    """What was measured, where, with what, and how often; the collective is that of the rows there are."""
    kinds = dict.fromkeys(row.collective for row in report.rows)
    hosts = f"{len(report.hosts)} hosts" if len(report.hosts) != 1 else report.hosts[0]
    console.data(f"# {', '.join(kinds) or 'nothing'} on {report.ranks} ranks, {hosts}")
    console.data(f"# {report.executor}: {report.library}")
    console.data(
        f"# {report.iterations} iterations after {report.warmup} to warm up, medians of: {report.average}; "
        "bandwidth in GB/s"
    )


def draw_foot(report: Report) -> None:
    """The last lines of nccl-tests: what was wrong, and the mean of the bus bandwidths."""
    found = [one for row in report.rows for one in (row.out_of_place, row.in_place) if one is not None]
    checked = [one.wrong for one in found if one.wrong is not None]
    if checked:
        wrong = sum(checked)
        console.data(f"# Out of bounds values : {wrong} {'FAILED' if wrong else 'OK'}")
    if found:
        console.data(f"# Avg bus bandwidth    : {sum(one.busbw_gbs for one in found) / len(found):.4g}")
    if report.interrupted:
        console.data(f"# interrupted          : {report.interrupted}")


class Table:
    """Which columns rows fill, in groups with a name over each.

    ``widest``: more rows will come, with values as long as these at most, in columns such as "size (B)".
    """

    def __init__(self, rows: Sequence[Row], widest: Mapping[str, str] | None = None) -> None:
        self.both = [any(row.out_of_place for row in rows), any(row.in_place for row in rows)]
        self.peers = list(dict.fromkeys(name for row in rows for name in row.peers))
        measured = [one for row in rows for one in (row.out_of_place, row.in_place) if one is not None]
        self.detailed = any(one.spread is not None and one.spread.samples_s for one in measured)
        self.programs = len({row.program for row in rows}) > 1 if widest is None else "program" in widest
        names = [name for name, filled in zip(("out of place", "in place"), self.both, strict=True) if filled]
        placement = (*_PLACEMENT, *(_ITERATIONS if self.detailed else ()))
        self.groups: list[tuple[str, Sequence[str]]] = [
            ("", (*_HEAD, *(("program",) if self.programs else ())))
        ]
        self.groups += [(name, placement) for name in names]
        self.groups += [("", _SPREAD), ("predicted", _PREDICTED), *((name, _PEER) for name in self.peers)]
        self.titles = [title for _, titles in self.groups for title in titles]
        self._least: list[int] | None = None
        if widest is not None:
            self._least = [max(len(widest.get(title, "")), _WIDTHS.get(title, 0)) for title in self.titles]

    def lines(self, rows: Sequence[Row]) -> list[str]:
        """The names of the columns in two lines, then the rows."""
        lines = console.aligned(self.titles, [self.cells(row) for row in rows], self._least)
        return [_over(lines[0], self.groups), *lines]

    def fits(self, row: Row) -> bool:
        """Whether a row has a column for all that it holds."""
        return set(row.peers) <= set(self.peers)

    def cells(self, row: Row) -> list[str]:
        """The row as text, a cell for each of the titles."""
        cells = [str(row.size_bytes), str(row.count), row.dtype, row.redop, str(row.root)]
        cells += [row.program] if self.programs else []
        for filled, measured in zip(self.both, (row.out_of_place, row.in_place), strict=True):
            cells += self._placement(measured) if filled else []
        best, predicted_s = row.shown, row.predicted_s
        cells += _spread(best)
        cells += (
            ["-", "-"] if predicted_s is None else [f"{predicted_s * 1e6:.2f}", _times(predicted_s, best)]
        )
        for name in self.peers:
            cells += _peer(row.peers.get(name), best)
        return cells

    def _placement(self, measured: Measurement | None) -> list[str]:
        if measured is None:
            return ["-"] * (len(_PLACEMENT) + (len(_ITERATIONS) if self.detailed else 0))
        wrong = "N/A" if measured.wrong is None else str(measured.wrong)
        cells = [
            f"{measured.time_s * 1e6:.2f}",
            f"{measured.algbw_gbs:.2f}",
            f"{measured.busbw_gbs:.2f}",
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


def _peer(peer: Measurement | None, ours: Measurement | None) -> list[str]:
    if peer is None:
        return ["-"] * len(_PEER)
    return [f"{peer.time_s * 1e6:.2f}", f"{peer.busbw_gbs:.2f}", _times(peer.time_s, ours)]


def _over(heads: str, groups: Sequence[tuple[str, Sequence[str]]]) -> str:
    """The line above the heads: the name of each group, begun where its first column begins."""
    line, at = "", 0
    for name, titles in groups:
        first = heads.index(titles[0], at)
        line = f"{line.ljust(first)}{name}" if name else line
        at = first
        for title in titles:
            at = heads.index(title, at) + len(title)
    return line


def _times(other_s: float, ours: Measurement | None) -> str:
    """A peer's time, or the predicted one, as a multiple of ours: above 1x we are faster."""
    return "-" if ours is None or not ours.time_s else f"{other_s / ours.time_s:.2f}x"
