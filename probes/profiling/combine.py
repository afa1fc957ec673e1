"""Combination of profiles: two measurements joined, earlier values recalled, a baseline updated."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np

from probes.base import Floats, Indices, Mask, floats, ints
from probes.link_costs import Links, Profile, SentSegments
from probes.profiling.drift import NO_ALPHA_S, Change, Quantity, matched, ranks_in
from probes.profiling.history import History

__all__ = ["brought_up_to_date", "joined", "recalled"]

_COLUMNS: dict[Quantity, tuple[str, ...]] = {
    "latency": tuple(name for name in Links.__dataclass_fields__ if name.startswith("alpha")),
    "bandwidth": tuple(
        name
        for name in Links.__dataclass_fields__
        if name.startswith("beta") or name in ("residual", "samples")
    ),
}


def joined(first: Profile, again: Profile) -> Profile:
    """Return ``first`` plus the links only in ``again``; links in both get the lower costs.

    A disturbance only slows a link down, so the better of two values is nearer to its capability. A link
    loses its flag "preempted" if ``again`` has none: one measurement in which no end waited for a core
    settles the latency.
    """
    rows = matched(first, again)
    one, other = first.links, again.links
    faster = (rows >= 0) & (other.beta_median_s_per_byte[rows] < one.beta_median_s_per_byte)
    sooner = (rows >= 0) & (other.alpha_median_s[rows] < one.alpha_median_s)
    links = _taken(one, other, rows, {"bandwidth": faster, "latency": sooner})
    undisturbed = (rows >= 0) & ~other.flagged("preempted")[rows]
    flags = tuple(
        ",".join(word for word in words.split(",") if word != "preempted") if clear else words
        for words, clear in zip(one.flags, undisturbed.tolist(), strict=True)
    )
    links = replace(links, flags=flags)
    seconds = round(first.seconds + again.seconds, 3)
    segments = _together(first.segments, again.segments)
    both = replace(first, links=links, seconds=seconds, rounds=first.rounds + again.rounds, segments=segments)
    return _with_links(both, again, other, np.flatnonzero(matched(again, first) < 0))


def recalled(baseline: Profile, now: Profile, history: History) -> Profile:
    """Return ``now`` plus the unmeasured links that were worse when last measured, at their last values.

    The added links keep the relative spread that they have in ``baseline``. Without this, an unmeasured link
    would seem healthy.
    """
    links, scaled = baseline.links, dict[str, Any]()
    missing = matched(baseline, now) < 0
    rows = np.flatnonzero(missing & ((history.bandwidth_since_s > 0) | (history.latency_since_s > 0)))
    for quantity, names in _COLUMNS.items():
        last = np.ones(len(links.src))
        for row in rows[history.since_s(quantity)[rows] > 0].tolist():
            last[row] = _times_as_much(links, quantity, row, history.series(quantity, row))
        for name in names:
            if name not in ("residual", "samples"):
                scaled[name] = floats(
                    np.maximum(getattr(links, name), NO_ALPHA_S * (quantity == "latency")) * last
                )
    clean = replace(links, **scaled, flags=("",) * len(links.flags))
    return _with_links(now, baseline, clean, rows)


def _times_as_much(links: Links, quantity: Quantity, row: int, series: Floats) -> float:
    """Return a link's cost when last measured, as a multiple of the baseline's; 1 if no longer known."""
    if not len(series):
        return 1.0
    if quantity == "bandwidth":
        return float(1 / series[-1] / links.beta_s_per_byte[row])
    return float(series[-1] / max(links.alpha_s[row], NO_ALPHA_S))


def _with_links(profile: Profile, source: Profile, links: Links, rows: Indices) -> Profile:
    """Add ``rows`` of ``links`` to ``profile``; ranks of ``source`` are renumbered, absent ranks left out."""
    number = ranks_in(source, profile)
    rows = np.array(
        [row for row in rows if int(links.src[row]) in number and int(links.dst[row]) in number],
        dtype=np.int32,
    )
    columns: dict[str, Any] = {"flags": (*profile.links.flags, *(links.flags[row] for row in rows))}
    for name in Links.__dataclass_fields__:
        if name == "flags":
            continue
        more = getattr(links, name)[rows]
        if name in ("src", "dst"):
            more = np.array([number[int(rank)] for rank in more], dtype=np.int32)
        column = np.concatenate([getattr(profile.links, name), more])
        columns[name] = ints(column) if name in ("src", "dst", "samples") else floats(column)
    return replace(profile, links=Links(**columns))


def _together(*measured: Sequence[SentSegments]) -> tuple[SentSegments, ...]:
    """Return the segments of each host, summed over several measurements."""
    found: dict[str, SentSegments] = {}
    for one in chain.from_iterable(measured):
        before = found.get(one.host, SentSegments(one.host, 0, 0))
        found[one.host] = SentSegments(
            one.host, before.sent + one.sent, before.retransmitted + one.retransmitted
        )
    return tuple(found.values())


def brought_up_to_date(baseline: Profile, now: Profile, changes: Iterable[Change]) -> Profile:
    """Return ``baseline`` with the links in ``changes`` as in ``now``; keep all else, also ports.

    Noise alone changes nothing, and links that were not measured now keep their values.
    """
    rows = matched(baseline, now)
    changed: dict[Quantity, Mask] = {
        name: np.zeros(len(rows), dtype=np.bool_) for name in ("bandwidth", "latency")
    }
    for change in changes:
        changed[change.quantity][list(change.rows)] = True
    return replace(baseline, links=_taken(baseline.links, now.links, rows, changed))


def _taken(one: Links, other: Links, rows: Indices, chosen: dict[Quantity, Mask]) -> Links:
    """Return ``one`` with the costs of the ``chosen`` links from ``rows`` of ``other``."""
    taken: dict[str, Any] = {}
    for quantity, names in _COLUMNS.items():
        for name in names:
            mine, theirs = getattr(one, name), getattr(other, name)[rows]
            column = np.where(chosen[quantity], theirs, mine)
            taken[name] = ints(column) if name == "samples" else floats(column)
    return replace(one, **taken)
