"""Streams: sequences of sends with a rate of their own that share links and ports with other streams.

A network of NICs and switches carries many connections at once, in no fixed order. A pipeline over trees is
then a set of streams, one for each link and direction of each tree. A stream's share of the bandwidth is its
share of the bytes, so all streams end when the busiest link or port does. A schedule of streams is a plain
schedule on the divided network, whose links are the streams.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from probes.base import Indices, Ints, Mask, floats, ints
from synth.network import Network
from synth.schedules import Schedule

__all__ = ["busiest_s_per_byte", "divided", "streams_of"]


def divided(schedule: Schedule, network: Network | None = None) -> Schedule:
    """Return the same sends with a link for each stream; a schedule without streams stays as it is.

    Link s of the divided network is stream s. A given ``network`` must have the schedule's links; its rates
    replace those of the schedule's network. O(sends).
    """
    on = network or schedule.network
    if not len(schedule.stream):
        return schedule if network is None else replace(schedule, network=on)
    link = _link_of_stream(schedule)
    beta = busiest_s_per_byte(schedule, on) / np.maximum(1, np.bincount(schedule.stream))
    streams = replace(
        on,
        src=ints(on.src[link]),
        dst=ints(on.dst[link]),
        alpha_s=floats(on.alpha_s[link]),
        beta_s_per_byte=floats(beta),
        ports=(),
        link_port_start=ints(np.zeros(len(link) + 1)),
        link_port=ints([]),
        port_beta_s_per_byte=floats([]),
        queues=False,
    )
    return replace(schedule, network=streams, link=schedule.stream, stream=ints([]))


def busiest_s_per_byte(schedule: Schedule, network: Network | None = None) -> float:
    """Return how long all sends hold the busiest link or port, in seconds per byte of a chunk; O(sends)."""
    on = network or schedule.network
    uses = np.bincount(schedule.link, minlength=on.links)
    held = np.bincount(on.link_port, weights=on.held_s_per_byte * uses[on.port_user], minlength=1)
    return max(float(held.max()), float((uses * on.beta_s_per_byte).max(initial=0.0)))


def streams_of(schedule: Schedule, rows: Indices | Mask) -> Ints:
    """Return the streams of the sends ``rows``, renumbered without gaps; empty if there are no streams."""
    if not len(schedule.stream):
        return schedule.stream
    return ints(np.unique(schedule.stream[rows], return_inverse=True)[1])


def _link_of_stream(schedule: Schedule) -> Indices:
    found = np.zeros(int(schedule.stream.max(initial=-1)) + 1, dtype=np.int64)
    found[schedule.stream] = schedule.link
    return found
