"""Averaging groups as text: racks, groups, predicted times, comparison with other patterns."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ccctl import console
from ccctl.render import Column, Say, figures, print_table, seconds
from probes.base import cpu_list, format_size, plural, some

if TYPE_CHECKING:
    from synth.groups import Division, Groups

__all__ = ["draw", "faster_patterns", "summary"]

# The most rows of the table, groups in a row and ranges of ranks in a group that are printed. Twelve rows
# leave room for the other lines on a screen of 24.
_MOST_ITERATIONS, _MOST_GROUPS, _MOST_NAMES = 12, 8, 8
# A time is less than another only if it is below this share of the other. Two profiles of the same links
# differ by 0.7 %, √2 times the least deviation of a link in `probes.profiling.drift`.
_CLEARLY_LESS = 0.99
_PEERS = {
    "ps": "parameter servers",
    "ring": "ring all_reduce",
    "double_tree": "double tree all_reduce",
    "hierarchical": "hierarchical all_reduce",
    "gossip": "gossip, exponential graph",
    "asp": "ASP, the fastest rank",
}


def draw(groups: Groups, say: Say = console.data, *, compare: bool = False, proven: bool = True) -> None:
    """Print racks, iterations and consensus; with ``compare``, also other patterns and other collectives.

    For groups that are not ``proven``, print only racks and iterations.
    """
    say(
        f"{plural(groups.ranks, 'rank')} in {plural(len(groups.racks), 'rack')} on {groups.network.name}, "
        f"{groups.pattern.replace('_', ' ')}, period {groups.period}"
    )
    for number, rack in enumerate(groups.racks):
        slow = [rank for rank in rack if rank in groups.slow_ranks]
        remarks = ["slow to other racks"] if number in groups.slow_racks else []
        remarks += [f"slow: {_ranks(slow)}"] if slow else []
        say(f"  rack {number}: {_ranks(rack)}{'  (' + '; '.join(remarks) + ')' if remarks else ''}")
    columns = [
        Column("iteration", lambda at: at),
        Column("groups", lambda at: _groups(groups.iterations[at])),
    ]
    if proven:
        costs = _costs(groups)
        columns.append(
            Column("predicted", lambda at: costs.iteration_s(groups.iterations[at]), seconds),
        )
    print_table(columns, range(groups.period), say, most=_MOST_ITERATIONS, noun="iterations")
    if not proven:
        return
    say(
        f"rho {groups.rho:.4g}: each period multiplies differences between replicas by this in the long run, "
        f"and by {groups.distance:.4g} at worst in the first"
    )
    say(f"predicted: {seconds(groups.predicted_s)} an iteration to average {format_size(groups.size_bytes)}")
    if compare:
        _draw_comparison(groups, say)


def summary(groups: Groups, *, compare: bool = False) -> dict[str, Any]:
    """Return the groups as plain values; ``peers_s`` and ``patterns`` only with ``compare``."""
    result = figures(
        groups,
        "rho distance period predicted_s pattern ranks racks slow_racks slow_ranks size_bytes layers "
        "iterations",
    )
    if compare:
        result["peers_s"] = _costs(groups).peers_s()
        result["patterns"] = _patterns(groups)
    return result


def _draw_comparison(groups: Groups, say: Say) -> None:
    result, ours_s = summary(groups, compare=True), groups.predicted_s
    peers = (
        Column("instead", lambda row: _PEERS[row[0]]),
        Column("an iteration", lambda row: row[1], seconds),
        Column("over these groups", lambda row: f"{row[1] / ours_s:.2f}x" if ours_s else ""),
    )
    patterns = [{"name": name.replace("_", " "), **one} for name, one in result["patterns"].items()]
    for columns, rows in ((peers, list(result["peers_s"].items())), (_PATTERNS, patterns)):
        say("")
        print_table(columns, rows, say)


_PATTERNS = (
    Column("pattern", "name"),
    Column("period", "period"),
    Column("rho", "rho", "{:.4g}"),
    Column("rho an iteration", lambda row: "never" if row["rho"] >= 1 else f"{row['rho_an_iteration']:.4g}"),
    Column("predicted", "predicted_s"),
)


def faster_patterns(groups: Groups) -> dict[str, Any]:
    """Return the patterns by which all ranks agree in time and that are clearly faster than these groups."""
    return {
        name: pattern
        for name, pattern in _patterns(groups).items()
        if pattern["rho"] < 1 and pattern["predicted_s"] < _CLEARLY_LESS * groups.predicted_s
    }


def _patterns(groups: Groups) -> dict[str, Any]:
    """Return period, rho, rho^(1/period) and time of each pattern that the racks allow."""
    from synth.errors import NotApplicableError
    from synth.groups import PATTERNS, RackLayout, consensus, pattern_named

    layout, costs = RackLayout(groups.racks, groups.slow_racks, groups.slow_ranks), _costs(groups)
    result: dict[str, Any] = {}
    for name in PATTERNS:
        try:
            iterations = pattern_named(name, layout)
        except NotApplicableError:
            continue
        rho = consensus(groups.ranks, iterations).rho
        result[name] = {
            "period": len(iterations),
            "rho": rho,
            "rho_an_iteration": rho ** (1 / len(iterations)),
            "predicted_s": costs.mean_s(iterations),
        }
    return result


def _costs(groups: Groups) -> Any:
    from synth.groups import AveragingCosts

    return AveragingCosts(groups.network, groups.racks, groups.size_bytes, groups.layers)


def _groups(division: Division) -> str:
    shown = " ".join(f"{{{_ranks(group)}}}" for group in division[:_MOST_GROUPS])
    left = len(division) - _MOST_GROUPS
    return shown + (f" and {left} more" if left > 0 else "")


def _ranks(ranks: Iterable[int]) -> str:
    """Return ranks in the syntax of ``--racks``: 0-3,8."""
    return some(cpu_list(ranks).split(","), _MOST_NAMES, ",")
