"""A report as the table of nccl-tests: its columns, then the prediction, then each peer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ccctl import console

if TYPE_CHECKING:
    from exec.report import Measurement, Report, Row

__all__ = ["draw"]

_HEAD = ("size (B)", "count", "type", "redop", "root")
_PLACEMENT = ("time (us)", "algbw", "busbw", "#wrong")
_ITERATIONS = ("i_min", "i_max", "i_p99", "i_cv%")
_SPREAD = ("p50 (us)", "p99 (us)", "slowest")
_PREDICTED = ("time (us)", "achieved")
_PEER = ("time (us)", "busbw", "ours")


def draw(report: Report) -> None:
    """Print the rows of ``report``; bandwidths are in GB/s, times in microseconds per iteration."""
    _draw_head(report)
    shown = _Shown(report)
    lines = console.aligned(
        [title for _, titles in shown.groups for title in titles], [shown.cells(row) for row in report.rows]
    )
    for line in [_over(lines[0], shown.groups), *lines]:
        console.data(line)
    _draw_foot(report)


def _draw_head(report: Report) -> None:
    kinds = dict.fromkeys(row.collective for row in report.rows)
    hosts = f"{len(report.hosts)} hosts" if len(report.hosts) != 1 else report.hosts[0]
    console.data(f"# {', '.join(kinds) or 'nothing'} on {report.ranks} ranks, {hosts}")
    console.data(f"# {report.executor}: {report.library}")
    console.data(
        f"# {report.iterations} iterations after {report.warmup} to warm up, times of: {report.average}; "
        "bandwidth in GB/s"
    )


def _draw_foot(report: Report) -> None:
    """The last lines of nccl-tests: what was wrong, and the mean of the bus bandwidths."""
    found = [one for row in report.rows for one in (row.out_of_place, row.in_place) if one is not None]
    checked = [one.wrong for one in found if one.wrong is not None]
    if checked:
        wrong = sum(checked)
        console.data(f"# Out of bounds values : {wrong} {'FAILED' if wrong else 'OK'}")
    if found:
        console.data(f"# Avg bus bandwidth    : {sum(one.busbw_gbs for one in found) / len(found):.4g}")


class _Shown:
    """Which columns the rows of a report fill, in groups with a name over each."""

    def __init__(self, report: Report) -> None:
        rows = report.rows
        self.both = [any(row.out_of_place for row in rows), any(row.in_place for row in rows)]
        self.peers = list(dict.fromkeys(name for row in rows for name in row.peers))
        measured = [one for row in rows for one in (row.out_of_place, row.in_place) if one is not None]
        self.detailed = any(one.spread is not None and one.spread.samples_s for one in measured)
        self.programs = len({row.program for row in rows}) > 1
        names = [name for name, filled in zip(("out of place", "in place"), self.both, strict=True) if filled]
        placement = (*_PLACEMENT, *(_ITERATIONS if self.detailed else ()))
        self.groups: list[tuple[str, Sequence[str]]] = [
            ("", (*_HEAD, *(("program",) if self.programs else ())))
        ]
        self.groups += [(name, placement) for name in names]
        self.groups += [("", _SPREAD), ("predicted", _PREDICTED), *((name, _PEER) for name in self.peers)]

    def cells(self, row: Row) -> list[str]:
        cells = [str(row.size_bytes), str(row.count), row.dtype, row.redop, str(row.root)]
        cells += [row.program] if self.programs else []
        for filled, measured in zip(self.both, (row.out_of_place, row.in_place), strict=True):
            cells += self._placement(measured) if filled else []
        best, predicted_s = row.shown, row.predicted_s
        cells += _spread(best)
        cells += (
            ["-", "-"] if predicted_s is None else [f"{predicted_s * 1e6:.2f}", _ratio(predicted_s, best)]
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
    cv = 100 * spread.stdev_s / measured.time_s if measured.time_s else 0.0
    times_s = (spread.min_s, spread.max_s, measured.p99_s)
    return [*(f"{time_s * 1e6:.2f}" for time_s in times_s), f"{cv:.1f}"]


def _spread(measured: Measurement | None) -> list[str]:
    if measured is None:
        return ["-"] * len(_SPREAD)
    slowest = str(measured.slowest_rank) if measured.slowest_rank >= 0 else "-"
    return [f"{measured.p50_s * 1e6:.2f}", f"{measured.p99_s * 1e6:.2f}", slowest]


def _peer(peer: Measurement | None, ours: Measurement | None) -> list[str]:
    if peer is None:
        return ["-"] * len(_PEER)
    return [f"{peer.time_s * 1e6:.2f}", f"{peer.busbw_gbs:.2f}", _ratio(peer.p50_s, ours, "x")]


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


def _ratio(other_s: float, ours: Measurement | None, unit: str = "%") -> str:
    """Of our median: the share of the prediction that was achieved (%), or the multiple of a peer (x)."""
    if ours is None or not ours.p50_s:
        return "-"
    ratio = other_s / ours.p50_s
    return f"{100 * ratio:.0f}%" if unit == "%" else f"{ratio:.2f}x"
