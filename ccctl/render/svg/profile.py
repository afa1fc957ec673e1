"""A profile as pictures: the bandwidth of each host, and a heat map of its links.

A link inside a host is compared with the median of such links, and a link between hosts with the median of
those. The two kinds differ by more than any fault causes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from ccctl.render.svg.axes import Axis, short
from ccctl.render.svg.drawing import COLOURS, Drawing, Entry, swatch
from ccctl.render.svg.lanes import Block, Lane, LaneChart, bar, lanes, room
from probes.base import plural, without_domain

if TYPE_CHECKING:
    from probes.base import Indices, Mask
    from probes.link_costs import Profile

__all__ = ["SLOW", "pictures"]

# The flags of a profile that mean that a link is too slow.
SLOW = {"outlier", "slow_sender", "slow_receiver", "slow_trunk"}
# Colours for shares of the median, on a light and on a dark background. They are ColorBrewer's PuOr, which
# colour-blind readers can distinguish, from slow to fast. Usual values are close to the background, so that
# unusual ones stand out.
_SCALE = {
    0.25: ("#7f3b08", "#fdb863"),
    0.5: ("#e08214", "#e08214"),
    0.8: ("#fee0b6", "#75502b"),
    1.0: ("#f7f7f7", "#33383f"),
    1.5: ("#b2abd2", "#5c5590"),
    3.0: ("#542788", "#b2abd2"),
}
_MOST_ROWS, _LEAST_CELL, _LEAST_WITH_NUMBER, _MOST_CELL = 48, 7, 34, 52.0
_MOST_HOSTS = 32
# (what a host does, the flag if it does so slowly, colour) for the source, then for the destination of a
# link.
_DIRECTIONS = (("sends", "slow_sender", COLOURS[0]), ("receives", "slow_receiver", COLOURS[4]))


def pictures(profile: Profile, width: int) -> Iterator[Drawing]:
    """Yield a picture of the hosts if there are several, then one of the links."""
    links = _Links(profile)
    if len(links.names) > 1:
        yield _hosts(links, width)
    yield _heat_map(links, width)


class _Links:
    """Links of a profile as columns: rate in GB/s, share of the median, and whether it is slow."""

    def __init__(self, profile: Profile) -> None:
        links = profile.links
        self.profile = profile
        self.short = without_domain([entry.host for entry in profile.ranks])
        self.hosts = np.array([self.short[entry.host] for entry in profile.ranks])
        self.names = list(dict.fromkeys(self.hosts.tolist()))
        self.ends = (self.hosts[links.src], self.hosts[links.dst])
        self.inside = self.ends[0] == self.ends[1]
        self.rate = np.asarray(1e-9 / links.beta_s_per_byte)
        self.slow = self.flagged(SLOW)
        # The median leaves out links flagged as slow unless there are no others. Among few hosts, one slow
        # host may have half of all links.
        self.medians: dict[str, float] = {}
        self.share = np.ones(len(self.rate))
        for kind, chosen in (("inside hosts", self.inside), ("between hosts", ~self.inside)):
            if chosen.any():
                sound = chosen & ~self.slow
                self.medians[kind] = float(np.median(self.rate[sound if sound.any() else chosen]))
                self.share[chosen] = self.rate[chosen] / self.medians[kind]

    def flagged(self, words: set[str]) -> Mask:
        """Return which links have one of the flags."""
        links = self.profile.links
        return np.array([not words.isdisjoint(flags.split(",")) for flags in links.flags], dtype=bool)

    def domain(self) -> list[Entry]:
        """Return the legend entry for the domain that host names omit."""
        name, own = next(iter(self.short.items()))
        return [("", f"hosts: without {name[len(own) :]}")] if name != own else []


@dataclass(frozen=True, eq=False)
class _Cells:
    """Cells of the heat map: index of the slowest link between two groups of ranks, or -1."""

    names: list[str]
    each: str
    slowest: Indices
    slow: Mask


def _heat_map(links: _Links, width: int) -> Drawing:
    """Return a heat map, senders as rows; for many ranks, cells are pairs of hosts or host blocks.

    Links that the profile flags as slow have a border.
    """
    cells = _cells(links, min(_MOST_ROWS, (width - 96) // _LEAST_CELL))
    count = len(cells.names)
    side = min(room(cells.names, width) / count, _MOST_CELL)
    numbered = side >= _LEAST_WITH_NUMBER
    rows = [
        Lane(name, tuple(_row(links, cells, at, numbered)), alarm=cells.slow[at].mean() > 0.5)
        for at, name in enumerate(cells.names)
    ]
    entries = [(swatch("/".join(pair)), f"{share:g}× the median") for share, pair in _SCALE.items()]
    without = ", of those not flagged" if cells.slow.any() else ""
    entries += [("", f"median {kind}{without}: {rate:.3g} GB/s") for kind, rate in links.medians.items()]
    empty = (cells.slowest[~np.eye(count, dtype=bool)] < 0).any()
    entries += [
        ("", f"a cell: {cells.each}" if cells.each != "a link" else ""),
        ("", "numbers: GB/s" if numbered else ""),
        ("", "empty: not measured" if empty else ""),
        (swatch("paper", "alarm"), "flagged as slow" if cells.slow.any() else ""),
    ]
    chart = LaneChart(
        rows,
        Axis("receiver", lambda at: cells.names[round(at)].split(" ")[0], counted=True),
        pitch=side,
        unit=side,
        side="sender",
        alarms=np.flatnonzero(cells.slow.mean(axis=0) > 0.5).tolist(),
    )
    title = f"bandwidth of {plural(len(links.rate), 'link')} between {plural(len(links.hosts), 'rank')}"
    about = f"Each cell is {cells.each}. Colour is bandwidth beside the median of links of its kind."
    return lanes(title, about, chart, width, [*entries, *links.domain()])


def _cells(links: _Links, most: int) -> _Cells:
    hosts, names = links.hosts.tolist(), links.names
    wide = -(-len(names) // most)
    if len(hosts) <= most:
        group = np.arange(len(hosts))
        labels, each = [f"{rank} {host}" for rank, host in enumerate(hosts)], "a link"
    else:
        group = np.array([names.index(host) // wide for host in hosts])
        more = "…" if wide > 1 else ""
        labels = [f"{at} {names[at]}{more}" for at in range(0, len(names), wide)]
        each = f"the slowest link between two {f'blocks of {wide} ' if wide > 1 else ''}hosts"
    count, columns = len(labels), links.profile.links
    cell = group[columns.src] * count + group[columns.dst]
    order = np.argsort(-links.share, kind="stable")
    slowest = np.full(count * count, -1)
    slowest[cell[order]] = order
    slow = np.bincount(cell[links.slow], minlength=count * count) > 0
    return _Cells(labels, each, slowest.reshape(count, count), slow.reshape(count, count))


def _row(links: _Links, cells: _Cells, row: int, numbered: bool) -> Iterator[Block]:
    """Yield the cells of a sender."""
    for column in np.flatnonzero(cells.slowest[row] >= 0).tolist():
        link = cells.slowest[row, column]
        rate, share, slow = links.rate[link], links.share[link], cells.slow[row, column]
        words = f"{cells.names[row]} → {cells.names[column]}: {rate:.3g} GB/s, {share:.2f} of the median"
        yield Block(
            column,
            column + 1,
            _shade(float(share)),
            word=f"{rate:.3g}" if numbered else "",
            title=words + (", flagged as slow" if slow else ""),
            edge="alarm" if slow else "",
        )


def _shade(share: float) -> str:
    """Return the colours (on light/on dark) of a share of the median, interpolated in _SCALE."""
    value = min(max(share, min(_SCALE)), max(_SCALE))
    low, high = next((low, high) for low, high in pairwise(_SCALE) if value <= high)
    part = float(np.log(value / low) / np.log(high / low))
    return "/".join(_mixed(*pair, part) for pair in zip(_SCALE[low], _SCALE[high], strict=True))


def _mixed(first: str, last: str, part: float) -> str:
    ends = [np.array(list(bytes.fromhex(colour[1:]))) for colour in (first, last)]
    return "#" + bytes(np.rint(ends[0] * (1 - part) + ends[1] * part).astype(np.uint8)).hex()


def _hosts(links: _Links, width: int) -> Drawing:
    """Return two bars for each host: the median bandwidths to and from other hosts, slow hosts first."""
    rows = {name: _host(links, name) for name in links.names}
    shown = sorted(links.names, key=lambda name: not any(row.alarm for row in rows[name]))[:_MOST_HOSTS]
    entries = links.domain()
    if more := len(links.names) - len(shown):
        entries.append(("", f"and {plural(more, 'more host')}"))
    lanes_of_hosts = [row for name in shown for row in rows[name]]
    axis = Axis("median bandwidth (GB/s)", short)
    title = f"{plural(len(links.names), 'host')}, {plural(len(links.hosts), 'rank')}"
    about = "The median bandwidth of the links of each host to and from other hosts."
    slow = [f"{name} {row.after}" for name in shown for row in rows[name] if row.alarm]
    about += f" Slow: {'; '.join(slow)}." if slow else ""
    chart = LaneChart(lanes_of_hosts, axis, pitch=15)
    return lanes(f"{title}: what each sends and receives", about, chart, width, entries)


def _host(links: _Links, name: str) -> list[Lane]:
    """Return the lanes of a host: what it sends, what it receives."""
    rows: list[Lane] = []
    for (does, flag, colour), end in zip(_DIRECTIONS, links.ends, strict=True):
        own = ~links.inside & (end == name)
        rate = float(np.median(links.rate[own])) if own.any() else 0.0
        slow = bool(own.any()) and links.flagged({flag})[own].mean() > 0.5
        words = f"{rate:.3g}{f', {does} slowly' if slow else ''}"
        first = not rows
        rows.append(bar(name if first else "", [(does, rate, colour)], words, first=first, alarm=slow))
    return rows
