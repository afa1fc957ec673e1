"""A profile as pictures: the bandwidth of each host, and a heat map of its links.

A link is compared with the median of its kind, inside hosts or between them, as the kinds differ by more than
any fault causes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from ccctl.render.svg.drawing import Drawing, above, box, fitted, legend, stroke, text, text_width
from probes.base import plural, without_domain

if TYPE_CHECKING:
    from probes.base import Floats, Indices, Mask
    from probes.link_costs import Profile

__all__ = ["SLOW", "cluster", "heat_map", "pictures", "slow_hosts"]

# The flags of a profile that mean that a link is too slow.
SLOW = {"outlier", "slow_sender", "slow_receiver"}
# From slow to fast in ColorBrewer's PuOr, which colour-blind readers can distinguish. Usual values are close
# to the background, light or dark, so that unusual ones stand out.
_SCALE = (
    (0.25, "#7f3b08"),
    (0.5, "#e08214"),
    (0.8, "#fee0b6"),
    (1.0, "#f7f7f7"),
    (1.5, "#b2abd2"),
    (3.0, "#542788"),
)
_ON_DARK = ("#fdb863", "#e08214", "#75502b", "#33383f", "#5c5590", "#b2abd2")
_DARK_SCALE = tuple((share, colour) for (share, _), colour in zip(_SCALE, _ON_DARK, strict=True))
_MOST_ROWS, _LEAST_CELL, _LEAST_WITH_NUMBER, _MOST_CELL = 48, 7, 34, 52.0
_CARD, _CARD_WIDE = 74, 220
_MOST_CARDS = 64
_SENDS, _RECEIVES = "#0072b2", "#e69f00"


def pictures(profile: Profile, width: int) -> list[Drawing]:
    """Return a picture of the hosts if there are several, then one of the links."""
    several = len({entry.host for entry in profile.ranks}) > 1
    return [*([cluster(profile, width)] if several else []), heat_map(profile, width)]


@dataclass(frozen=True, eq=False)
class _Cells:
    """Cells of links by groups of ranks, each with its slowest link; NaN if there is none."""

    names: tuple[str, ...]
    each: str
    rate_gbs: Floats
    share: Floats
    slow: Mask

    def left_and_side(self, width: int) -> tuple[float, float]:
        """Return (left edge of the first column, width of a cell) in pixels."""
        left = 30 + min(max(text_width(name) for name in self.names), width * 0.28)
        return left, min((width - left - 12) / len(self.names), _MOST_CELL)


def heat_map(profile: Profile, width: int) -> Drawing:
    """Return a heat map with senders as rows; above 48 ranks, cells are pairs of hosts or blocks of hosts.

    Links that the profile flags as slow have a border and a corner.
    """
    cells = _cells(profile, min(_MOST_ROWS, (width - 96) // _LEAST_CELL))
    count = len(cells.names)
    left, side = cells.left_and_side(width)
    top, bottom = 50.0, 50.0 + side * count
    parts = [
        text("receiver", left + side * count / 2, 16, anchor="middle", kind="axis"),
        text("sender", 14, top + side * count / 2, anchor="middle", kind="axis", turned=True),
    ]
    every = max(1, int(22 // side) + 1)
    for at, name in enumerate(cells.names):
        middle = (at + 0.5) * side
        if at % every == 0:
            number = name.split(" ")[0]
            alarmed = "alarm" if cells.slow[:, at].mean() > 0.5 else "ink"
            parts.append(text(number, left + middle, top - 8, anchor="middle", colour=alarmed))
        if at % max(1, int(13 // side) + 1) == 0:
            alarmed = "alarm" if cells.slow[at].mean() > 0.5 else "ink"
            said = fitted(name, left - 28)
            parts.append(text(said, left - 6, top + middle + 4, anchor="end", colour=alarmed))
    parts += _squares(cells, left, top, side)
    scale, height = _scale(profile, cells, width, bottom + 10)
    title = (
        f"bandwidth of {plural(len(profile.links.src), 'link')} between {plural(len(profile.ranks), 'rank')}"
    )
    about = f"Each cell is {cells.each}. Colour is bandwidth beside the median of links of its kind."
    return Drawing(title, about, width, bottom + height + 16, (*parts, *scale))


def _cells(profile: Profile, most: int) -> _Cells:
    short = without_domain([entry.host for entry in profile.ranks])
    hosts = [short[entry.host] for entry in profile.ranks]
    names = list(dict.fromkeys(hosts))
    each = "a link"
    if len(hosts) <= most:
        group = np.arange(len(hosts))
        labels = [f"{rank} {host}" for rank, host in enumerate(hosts)]
    else:
        number = {name: at for at, name in enumerate(names)}
        group = np.array([number[host] for host in hosts])
        labels, each = [f"{at} {name}" for at, name in enumerate(names)], "the slowest link between two hosts"
        if len(names) > most:
            wide = -(-len(names) // most)
            group //= wide
            labels = [f"{at} {names[at]}…" for at in range(0, len(names), wide)]
            each = f"the slowest link between two blocks of {wide} hosts"
    return _folded(profile, group, tuple(labels), each)


def _folded(profile: Profile, group: Indices, labels: tuple[str, ...], each: str) -> _Cells:
    links, count = profile.links, len(labels)
    rate = np.asarray(1e-9 / links.beta_s_per_byte)
    share = rate / _typical(profile)
    at = group[links.src] * count + group[links.dst]
    slowest = np.full(count * count, -1)
    order = np.argsort(-share, kind="stable")
    slowest[at[order]] = order
    known = slowest >= 0
    flagged = np.zeros(count * count, dtype=bool)
    np.logical_or.at(flagged, at, _slow_rows(profile))
    values = [np.where(known, column[slowest], np.nan).reshape(count, count) for column in (rate, share)]
    return _Cells(labels, each, values[0], values[1], flagged.reshape(count, count))


def _inside(profile: Profile) -> Mask:
    host = np.array([entry.host for entry in profile.ranks])
    return np.asarray(host[profile.links.src] == host[profile.links.dst])


def _typical(profile: Profile) -> Floats:
    """Return the median bandwidth of each link's kind, inside or between hosts, in GB/s.

    Links flagged as slow count only if there are no others: with few hosts, a slow one has half of the links.
    """
    rate, inside = 1e-9 / profile.links.beta_s_per_byte, _inside(profile)
    typical, slow = np.ones(len(rate)), _slow_rows(profile)
    for chosen in (inside, ~inside):
        if chosen.any():
            counted = chosen & ~slow if (chosen & ~slow).any() else chosen
            typical[chosen] = np.median(rate[counted])
    return typical


def _slow_rows(profile: Profile) -> Mask:
    return np.array([bool(SLOW & set(words.split(","))) for words in profile.links.flags], dtype=bool)


def _squares(cells: _Cells, left: float, top: float, side: float) -> list[str]:
    parts, marks = [], []
    for row, column in np.argwhere(np.isfinite(cells.share)).tolist():
        x, y = left + column * side, top + row * side
        rate, share = float(cells.rate_gbs[row, column]), float(cells.share[row, column])
        slow = bool(cells.slow[row, column])
        said = f"{cells.names[row]} → {cells.names[column]}: {rate:.3g} GB/s, {share:.2f} of the median"
        said += ", flagged as slow" if slow else ""
        gap = 1.0 if side > 10 else 0.3
        colour, dark = _shade(share, _SCALE), _shade(share, _DARK_SCALE)
        parts.append(box(x, y, side - gap, side - gap, colour=colour, dark=dark, title=said))
        if slow:
            edge = min(7.0, side / 3)
            marks.append(
                stroke(f"M{x + 1:.1f} {y + 1:.1f}h{side - 3:.1f}v{side - 3:.1f}h-{side - 3:.1f}Z", "alarm")
            )
            marks.append(f"<path d='M{x:.1f} {y:.1f}h{edge:.1f}l-{edge:.1f} {edge:.1f}Z' class='f-alarm'/>")
        if side >= _LEAST_WITH_NUMBER:
            middle, line = x + side / 2, y + side / 2 + 4
            number = f"{rate:.3g}"
            marks.append(
                text(number, middle, line, anchor="middle", size=11, colour=above(colour), dark=above(dark))
            )
    return parts + marks


def _shade(share: float, scale: tuple[tuple[float, str], ...]) -> str:
    """Return the colour for a share of the median, interpolated in the scale."""
    value = min(max(share, scale[0][0]), scale[-1][0])
    for (low, first), (high, last) in pairwise(scale):
        if value <= high:
            part = float(np.log(value / low) / np.log(high / low))
            mixed = [
                round(int(first[at : at + 2], 16) * (1 - part) + int(last[at : at + 2], 16) * part)
                for at in (1, 3, 5)
            ]
            return "#" + "".join(f"{channel:02x}" for channel in mixed)
    raise AssertionError(share)


def _scale(profile: Profile, cells: _Cells, width: int, top: float) -> tuple[list[str], float]:
    """Return (parts, lower end in pixels) of the legend."""
    typical, inside = _typical(profile), _inside(profile)
    without = ", of those not flagged" if cells.slow.any() else ""
    entries = [
        (box(8, 0, 20, 12, colour=colour, dark=dark), f"{share:g}× the median")
        for (share, colour), (_, dark) in zip(_SCALE, _DARK_SCALE, strict=True)
    ]
    for what, chosen in (("inside hosts", inside), ("between hosts", ~inside)):
        if chosen.any():
            entries.append(("", f"median {what}{without}: {typical[chosen][0]:.3g} GB/s"))
    if cells.slow.any():
        sign = stroke("M9 1h18v11h-18Z", "alarm") + "<path d='M8 0h7l-7 7Z' class='f-alarm'/>"
        entries.append((sign, "flagged as slow"))
    if not cells.each.startswith("a link"):
        entries.append(("", f"a cell: {cells.each}"))
    if cells.left_and_side(width)[1] >= _LEAST_WITH_NUMBER:
        entries.append(("", "numbers: GB/s"))
    if not np.isfinite(cells.share[~np.eye(len(cells.names), dtype=bool)]).all():
        entries.append(("", "empty: not measured"))
    entries += _domain(profile)
    return legend(entries, 8, width, top)


def _domain(profile: Profile) -> list[tuple[str, str]]:
    """Return the legend entry for the domain that host names omit."""
    short = without_domain([entry.host for entry in profile.ranks])
    name, own = next(iter(short.items()))
    return [("", f"hosts: without {name[len(own) :]}")] if name != own else []


def slow_hosts(profile: Profile) -> dict[str, tuple[str, ...]]:
    """Map each host whose links to others are mostly flagged to its slow directions: "sends", "receives"."""
    host = np.array([entry.host for entry in profile.ranks])
    links, between = profile.links, ~_inside(profile)
    found: dict[str, tuple[str, ...]] = {}
    for does, word, end in (("sends", "slow_sender", links.src), ("receives", "slow_receiver", links.dst)):
        flagged = np.array([word in words.split(",") for words in links.flags], dtype=bool)
        for name in dict.fromkeys(host.tolist()):
            own = between & (host[end] == name)
            if own.any() and flagged[own].mean() > 0.5:
                found[name] = (*found.get(name, ()), does)
    return found


def cluster(profile: Profile, width: int) -> Drawing:
    """Return a card for each host: its ranks, and the median bandwidths to and from other hosts.

    Slow hosts come first.
    """
    hosts = list(dict.fromkeys(entry.host for entry in profile.ranks))
    slow = slow_hosts(profile)
    shown = sorted(hosts, key=lambda name: name not in slow)[:_MOST_CARDS]
    rates = {name: _rates(profile, name) for name in shown}
    short = without_domain(hosts)
    most = max((rate for pair in rates.values() for rate in pair), default=0.0) or 1.0
    across = max(1, width // _CARD_WIDE)
    wide = width / across
    parts = []
    for at, name in enumerate(shown):
        row, column = divmod(at, across)
        ranks = sum(entry.host == name for entry in profile.ranks)
        parts += _card(
            short[name], ranks, rates[name], most, slow.get(name, ()), column * wide, row * _CARD, wide - 10
        )
    top = -(-len(shown) // across) * _CARD
    entries = [
        (box(8, 0, 20, 12, colour=_SENDS), "→ sends to other hosts, GB/s"),
        (box(8, 0, 20, 12, colour=_RECEIVES), "← receives from them, GB/s"),
        ("", f"a bar over the whole card: {most:.3g} GB/s"),
    ]
    if len(hosts) > len(shown):
        entries.append(("", f"and {len(hosts) - len(shown)} more hosts"))
    entries += _domain(profile)
    drawn, height = legend(entries, 8, width, top + 4)
    title = (
        f"{plural(len(hosts), 'host')}, {plural(len(profile.ranks), 'rank')}: what each sends and receives"
    )
    about = "A card for each host with the median bandwidth of its links to and from other hosts."
    if slow:
        about += " Slow: " + "; ".join(f"{name} {' and '.join(does)}" for name, does in slow.items()) + "."
    return Drawing(title, about, width, top + height + 8, (*parts, *drawn))


def _rates(profile: Profile, name: str) -> tuple[float, float]:
    """Return the median bandwidths to and from other hosts in GB/s; 0 without a link."""
    host = np.array([entry.host for entry in profile.ranks])
    between, rate = ~_inside(profile), 1e-9 / profile.links.beta_s_per_byte
    found = []
    for end in (profile.links.src, profile.links.dst):
        own = between & (host[end] == name)
        found.append(float(np.median(rate[own])) if own.any() else 0.0)
    return found[0], found[1]


def _card(
    name: str,
    ranks: int,
    rates: Sequence[float],
    most: float,
    slow: tuple[str, ...],
    x: float,
    y: float,
    wide: float,
) -> list[str]:
    count = plural(ranks, "rank")
    room = wide - 16 - text_width(count) - 8
    parts = [box(x + 1, y + 1, wide - 2, _CARD - 12, colour="soft", edge="alarm" if slow else "")]
    sign = ": slow" if slow else ""
    label = fitted(name, room - text_width(sign)) + sign
    parts.append(text(label, x + 8, y + 18, colour="alarm" if slow else "ink"))
    parts.append(text(count, x + wide - 8, y + 18, anchor="end", colour="faint"))
    for number, (rate, colour) in enumerate(zip(rates, (_SENDS, _RECEIVES), strict=True)):
        top = y + 26 + 16 * number
        space = wide - 34 - 52
        parts.append(text("→←"[number], x + 8, top + 10))
        parts.append(box(x + 26, top, space * rate / most, 11, colour=colour))
        does = ("sends", "receives")[number]
        alarmed = "alarm" if does in slow else "ink"
        parts.append(text(f"{rate:.3g}", x + wide - 8, top + 10, anchor="end", colour=alarmed))
    return parts
