"""Relocation of a schedule: the same sends on another network, or with other chunks."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from probes.base import UsageError

if TYPE_CHECKING:
    from probes.base import Ints
    from synth.network import Network
    from synth.schedules import Schedule

__all__ = ["moved_to"]


def moved_to(schedule: Schedule, on: Network, chunk_bytes: int) -> Schedule:
    """Return ``schedule`` on the network ``on`` with chunks of ``chunk_bytes``.

    Raises UsageError if that network lacks a link.
    """
    if on is schedule.network and chunk_bytes == schedule.chunk_bytes:
        return schedule
    link = schedule.link if on is schedule.network else _same_links(schedule, on)
    return replace(schedule, network=on, link=link, chunk_bytes=chunk_bytes, outcome=None)


def _same_links(schedule: Schedule, other: Network) -> Ints:
    """Return for each send the fastest link of the other network between the same ranks."""
    import numpy as np

    from probes.base import ints
    from synth.network import fastest_links

    own = schedule.network
    if other.ranks != own.ranks:
        raise UsageError(f"network {other.name}: it has {other.ranks} ranks, the schedule {own.ranks}")
    if np.array_equal(own.src, other.src) and np.array_equal(own.dst, other.dst):
        return schedule.link
    rows = fastest_links(other, schedule.chunk_bytes)
    pairs = zip(own.src.tolist(), own.dst.tolist(), strict=True)
    moved = [rows.get(pair, -1) for pair in pairs]
    for link in sorted(set(schedule.link.tolist())):
        if moved[link] < 0:
            lacks = f"{own.src[link]}→{own.dst[link]}"
            raise UsageError(f"network {other.name}: the schedule uses a link {lacks} that it lacks")
    return ints([moved[link] for link in schedule.link.tolist()])
