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
_PREDICTED = ("time (us)", "achieved")
_PEER = ("time (us)", "busbw", "ours")


def draw(report: Report) -> None:
    """Print the rows of ``report``; bandwidths are in GB/s, times in microseconds per iteration."""
    kinds = dict.fromkeys(row.collective for row in report.rows)
    hosts = f"{len(report.hosts)} hosts" if len(report.hosts) != 1 else report.hosts[0]
    console.data(f"# {', '.join(kinds) or 'nothing'} on {report.ranks} ranks, {hosts}")
    console.data(f"# {report.executor}: {report.library}")
    console.data(f"# {report.iterations} iterations after {report.warmup} to warm up; bandwidth in GB/s")
    both = [any(row.out_of_place for row in report.rows), any(row.in_place for row in report.rows)]
    peers = list(dict.fromkeys(name for row in report.rows for name in row.peers))
    placements = [name for name, shown in zip(("out of place", "in place"), both, strict=True) if shown]
    groups = [("", _HEAD), *((name, _PLACEMENT) for name in placements), ("predicted", _PREDICTED)]
    groups += [(name, _PEER) for name in peers]
    lines = console.aligned(
        [title for _, titles in groups for title in titles], [_cells(row, both, peers) for row in report.rows]
    )
    for line in [_over(lines[0], groups), *lines]:
        console.data(line)


def _over(heads: str, groups: Sequence[tuple[str, Sequence[str]]]) -> str:
    """The line above the heads: the name of each group, begun where its first column begins."""
    line, at = "", 0
    for name, titles in groups:
        first = heads.index(titles[0], at)
        line = f"{line.ljust(first)}{name}"
        at = first
        for title in titles:
            at = heads.index(title, at) + len(title)
    return line


def _cells(row: Row, both: list[bool], peers: list[str]) -> list[str]:
    cells = [str(row.size_bytes), str(row.count), row.dtype, row.redop, str(row.root)]
    for shown, measured in zip(both, (row.out_of_place, row.in_place), strict=True):
        cells += _placement(measured) if shown else []
    best = row.out_of_place or row.in_place
    predicted_s = row.predicted_s
    cells += ["-", "-"] if predicted_s is None else [f"{predicted_s * 1e6:.2f}", _ratio(predicted_s, best)]
    for name in peers:
        peer = row.peers.get(name)
        if peer is None:
            cells += ["-", "-", "-"]
        else:
            cells += [f"{peer.time_s * 1e6:.2f}", f"{peer.busbw_gbs:.2f}", _ratio(peer.time_s, best, "x")]
    return cells


def _placement(measured: Measurement | None) -> list[str]:
    if measured is None:
        return ["-"] * len(_PLACEMENT)
    wrong = "N/A" if measured.wrong is None else str(measured.wrong)
    return [f"{measured.time_s * 1e6:.2f}", f"{measured.algbw_gbs:.2f}", f"{measured.busbw_gbs:.2f}", wrong]


def _ratio(other_s: float, ours: Measurement | None, unit: str = "%") -> str:
    """The speed that was achieved, as a share of the prediction (%) or a multiple of a peer (x)."""
    if ours is None or not ours.time_s:
        return "-"
    ratio = other_s / ours.time_s
    return f"{100 * ratio:.0f}%" if unit == "%" else f"{ratio:.2f}x"
