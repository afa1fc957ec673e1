"""The parts whose links changed alike since a baseline, such as all links that a host sends on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from probes.base import Floats, Indices, Mask, floats
from probes.link_costs import Profile
from probes.localization.fit import Cause, Ceiling, explain
from probes.localization.links import tables_of
from probes.localization.locate import divisions_of
from probes.localization.parts import FABRIC, families_inside, is_whole
from probes.localization.rates import fewest_causes

__all__ = ["ChangedPart", "changed_parts"]

# A limit that noise alone exceeds once in a hundred runs is about this many standard deviations.
_SIGMAS = 4.5
# The smallest standard deviation of a change: clocks make equal runs differ by half a per cent.
_LEAST_SIGMA = 0.005
# The share of a part's changed links that must be beyond their own limits. A link also counts as changed if
# it changed by the share _LIKE of the part's change, because noise may hide the rest. If all links changed
# together, half of the change is enough.
_LEAST_BEYOND, _LIKE, _LIKE_ALL = 0.5, 0.7, 0.5
# A change of all links is named as one only if there are at least this many links.
_FEWEST_OF_ALL = 4
_DOES = {"egress": " sends", "ingress": " receives", "host": " sends and receives"}


@dataclass(frozen=True, eq=False)
class ChangedPart:
    """A part whose links changed alike: its name in words, and the numbers of those links."""

    name: str
    at: Indices


def changed_parts(
    profile: Profile, rows: Indices, slower: Floats, allowed: Floats, least: float, limit_of_all: float
) -> list[ChangedPart]:
    """Return the fewest parts that explain the links that became slower, the parts with most links first.

    ``rows`` are links of ``profile``. ``slower`` is how much slower each link became, ``allowed`` how much of
    it noise explains. A part counts from ``least`` on, all links together from ``limit_of_all`` on. All four
    are logarithms of factors. The ``at`` of a result are positions in ``rows``; no link is in two results.
    """
    beyond = slower > allowed
    common = len(rows) >= _FEWEST_OF_ALL and float(np.median(slower)) > limit_of_all
    if not common and int(beyond.sum()) < 2:
        return []
    found: list[tuple[Cause, Indices]] = []
    place = np.full(len(profile.links.src), -1, dtype=np.int64)
    place[rows] = np.arange(len(rows))
    tables = [table.at(np.flatnonzero(place[table.row] >= 0)) for table in tables_of(profile, every=True)]
    limits = dict.fromkeys(("end", "pair", "trunk", FABRIC), least)
    for table, inside in zip(tables, (False, True), strict=True):
        if not len(table):
            continue
        at = place[table.row]
        model = Ceiling(floats(-slower[at]), np.maximum(allowed[at] / _SIGMAS, _LEAST_SIGMA))
        if inside:
            fit = explain(model, families_inside(table, limits, fabric=common))
        else:
            fit = fewest_causes(model, table, divisions_of(profile), limits, fabric=common)
        found += [(cause, at[cause.links]) for cause in fit.causes]
    found.sort(key=lambda one: -len(one[1]))
    return list(_claimed(found, slower, beyond, len(rows)))


def _claimed(
    found: list[tuple[Cause, Indices]], slower: Floats, beyond: Mask, count: int
) -> Iterator[ChangedPart]:
    """Yield the parts with the links that changed with them and that no earlier part has."""
    free = np.ones(count, dtype=np.bool_)
    for cause, of_part in found:
        mine = of_part[free[of_part]]
        like = _LIKE_ALL if is_whole(cause) else _LIKE
        alike = mine[beyond[mine] | (slower[mine] > like * cause.severity)]
        if not len(alike) or not (is_whole(cause) or beyond[alike].mean() >= _LEAST_BEYOND):
            continue
        free[alike] = False
        yield ChangedPart(_name(cause, len(alike), len(of_part), count), alike)


def _name(cause: Cause, alike: int, links: int, count: int) -> str:
    """Return the part and how many of its links changed, in words."""
    if is_whole(cause):
        which = "all" if alike == links else f"{alike} of"
        return f"{which} {links} links" + (
            "" if links == count else f" {cause.subject.removeprefix('links ')}"
        )
    parts = cause.parts
    if cause.kind == "trunk":
        part = "trunk " + " – ".join(parts)
    elif len(parts) == 2:
        part = (" → " if cause.kind == "one_way_pair" else " ↔ ").join(parts)
    else:
        part = parts[0] if " " in parts[0] else f"host {parts[0]}"
    place = "inside " if cause.kind == "inside" else ""
    return f"{place}{part}{_DOES.get(cause.kind, '')} ({alike} of {links} links)"
