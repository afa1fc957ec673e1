"""Two profiles of the same links in one: the better of two measurements, a baseline brought up to date."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np

from probes.columns import Indices, Mask, floats, ints
from probes.link_costs import Links, Profile, SentSegments
from probes.profiling.drift import Change, Quantity, matched

__all__ = ["better_of", "brought_up_to_date"]

_COLUMNS: dict[Quantity, tuple[str, ...]] = {
    "latency": tuple(name for name in Links.__dataclass_fields__ if name.startswith("alpha")),
    "bandwidth": tuple(
        name
        for name in Links.__dataclass_fields__
        if name.startswith("beta") or name in ("residual", "samples")
    ),
}


def better_of(first: Profile, again: Profile) -> Profile:
    """``first``, with the costs of each link from ``again`` where they are lower, beta and alpha apart.

    A disturbance only ever slows a link down, so the better of two values is nearer to what it can do. One
    look in which no end waited for a core is enough to tell what the latency is.
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
    return replace(first, links=links, seconds=seconds, rounds=first.rounds + again.rounds, segments=segments)


def _together(*measured: Sequence[SentSegments]) -> tuple[SentSegments, ...]:
    """The segments of each host, summed over several measurements."""
    found: dict[str, SentSegments] = {}
    for one in chain.from_iterable(measured):
        before = found.get(one.host, SentSegments(one.host, 0, 0))
        found[one.host] = SentSegments(
            one.host, before.sent + one.sent, before.retransmitted + one.retransmitted
        )
    return tuple(found.values())


def brought_up_to_date(baseline: Profile, now: Profile, changes: Iterable[Change]) -> Profile:
    """``baseline`` with what ``changes`` name as it is now; all else, ports as well, as it was.

    So noise alone changes nothing, and links that were not measured now are still there.
    """
    rows = matched(baseline, now)
    changed: dict[Quantity, Mask] = {
        name: np.zeros(len(rows), dtype=np.bool_) for name in ("bandwidth", "latency")
    }
    for change in changes:
        changed[change.quantity][list(change.rows)] = True
    return replace(baseline, links=_taken(baseline.links, now.links, rows, changed))


def _taken(one: Links, other: Links, rows: Indices, chosen: dict[Quantity, Mask]) -> Links:
    """``one`` with the costs of the ``chosen`` links from ``rows`` of ``other``."""
    taken: dict[str, Any] = {}
    for quantity, names in _COLUMNS.items():
        for name in names:
            mine, theirs = getattr(one, name), getattr(other, name)[rows]
            column = np.where(chosen[quantity], theirs, mine)
            taken[name] = ints(column) if name == "samples" else floats(column)
    return replace(one, **taken)
