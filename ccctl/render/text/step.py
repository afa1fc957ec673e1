"""A training step as tables and as JSON: the time of each group, and the prices of links and NICs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ccctl import console
from ccctl.render import Column, about, figures, print_table, seconds

if TYPE_CHECKING:
    from synth.side_by_side import SideBySide

__all__ = ["draw", "summary"]

# More parts than an operator would compare.
_MOST_PRICES = 8


def summary(found: SideBySide) -> dict[str, Any]:
    """Return what ``--json`` prints."""
    return {
        "groups": [
            figures(group, "name size_bytes release_s") | figures(times, "alone_s ignoring_s together_s lost")
            for group, times in zip(found.groups, found.times, strict=True)
        ],
        **figures(found, "ignoring_s together_s least_s"),
        "prices": [
            figures(price, "part=part.name bytes_per_s=part.bytes_per_s more_bytes_per_s saves_s")
            for price in found.prices
        ],
    }


def draw(found: SideBySide) -> None:
    """Print the times of the groups, of the whole, and what faster parts would save."""
    rows = list(zip(found.groups, found.times, strict=True))
    columns = (
        Column("group", lambda row: row[0].name),
        Column("size", lambda row: row[0].size_bytes, about),
        Column("starts at", lambda row: row[0].release_s, seconds),
        Column("alone", lambda row: row[1].alone_s, seconds),
        Column("planned singly", lambda row: row[1].ignoring_s, seconds),
        Column("planned together", lambda row: row[1].together_s, seconds),
        Column("over alone", lambda row: row[1].lost, "{:.2f}x"),
    )
    print_table(columns, rows, most=64, noun="groups")
    console.data(
        f"the whole step: {seconds(found.together_s)}; planned singly: {seconds(found.ignoring_s)}; "
        f"not possible below {seconds(found.least_s)}"
    )
    if not found.prices:
        console.data("1 GB/s more on one link or NIC does not shorten the step: several limit it together")
        return
    prices = (
        Column("1 GB/s more on", lambda price: price.part.name),
        Column("now (GB/s)", lambda price: price.part.bytes_per_s / 1e9, "{:.3g}"),
        Column("saves", "saves_s", seconds),
    )
    print_table(prices, found.prices[:_MOST_PRICES])
