"""Streams: sends that follow each other at a rate of their own, next to others on the same links and ports.

A network of NICs and switches carries many connections at once and keeps them to no order. There a
pipeline over trees is a set of streams, one for each link of each tree and each way. They divide links and
ports by rates: each gets the part of the time that it has of the bytes, so that all are through when the
busiest link or port is. A schedule of streams is a plain one on the divided network, whose links are the
streams.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from probes.base import Indices, Ints, Mask, floats, ints
from synth.network import Network
from synth.schedules import Schedule

__all__ = ["busiest_s_per_byte", "divided", "streams_of"]


def divided(schedule: Schedule, network: Network | None = None) -> Schedule:
    """Return the same sends on links of their own, one for each stream; a schedule without streams as it is.

    Row s of the divided network's links is stream s. On ``network``, one with the same links, the rates are
    those that it allows. O(sends).
    """
    on = network or schedule.network
    if not len(schedule.stream):
        return schedule if network is None else replace(schedule, network=on)
    link = _links(schedule)
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
    """Return seconds for each byte of a chunk that the busiest link or port is busy with all sends.

    O(sends).
    """
    on = network or schedule.network
    uses = np.bincount(schedule.link, minlength=on.links)
    held = np.bincount(on.link_port, weights=on.held_s_per_byte * uses[on.port_user], minlength=1)
    return max(float(held.max()), float((uses * on.beta_s_per_byte).max(initial=0.0)))


def streams_of(schedule: Schedule, rows: Indices | Mask) -> Ints:
    """Return the streams of some sends, numbered without gaps; empty for a schedule without streams."""
    if not len(schedule.stream):
        return schedule.stream
    return ints(np.unique(schedule.stream[rows], return_inverse=True)[1])


def _links(schedule: Schedule) -> Indices:
    """For each stream the link that it goes over."""
    found = np.zeros(int(schedule.stream.max(initial=-1)) + 1, dtype=np.int64)
    found[schedule.stream] = schedule.link
    return found
