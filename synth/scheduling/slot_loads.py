"""Time slots, and the load and the price of each link and port in each slot.

A link or port can be held in a slot for as long as the slot lasts.
The price of a second in a slot grows exponentially with the load there (Awerbuch, Azar and Plotkin's routing
of virtual circuits, FOCS 1993).

Slots begin at multiples of the least latency, or of some holds of a chunk if they take longer, counted from
the start and from the end. So where all latencies are multiples of the least, a send passes the place within
its slot on to the sends that wait for it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from probes.base import Floats, Indices, floats, offsets
from synth.kernels import compiled
from synth.network import Network

__all__ = ["SAME_S", "Held", "Load", "TimedLinks", "add", "held_by", "slots_s", "timed_links", "unloaded"]

# Prices grow by this power of e until a slot is full. On four networks of `benchmarks/sizes.py --unusual`, 3
# is slower, and 10 and 40 are about as good.
_STEEPNESS = 20.0
# A second costs at most this power of e, even where slots are too short for one send.
_STEEPEST = 300.0
# Instants that are closer are the same, because sums of floats round.
SAME_S = 1e-12
# Sums of floats round by less than this share.
_ROUNDED = 1e-9
# The most multiples of the least latency at which slots begin; if there are more, slots are longer. With 24
# two networks of sites far apart lose 3 % (`benchmarks/sizes.py --unusual 24 --seed 20270301`).
_MOST_STEPS = 96
# A slot lasts at least so many holds of a chunk on the slowest link, if links differ. With 2, 4 and 8 an
# all_reduce of 1 MiB among nine ranks (`benchmarks/sizes.py`, drawn:2) comes to 93, 88 and 85 % of the bound.
_HOLDS = 4


class Held(NamedTuple):
    """The links and ports that a send over a link holds, for how long, and the users of each of these."""

    start: Indices
    resource: Indices
    hold_s: Floats
    user_start: Indices
    user: Indices


class Load(NamedTuple):
    """Capacity, load and price by link or port and slot; the cost of a send by link and slot."""

    capacity_s: Floats
    load_s: Floats
    price: Floats
    cost: Floats


class TimedLinks(NamedTuple):
    """The ends and latency of each link; by latency and slot, the slot in which a send has arrived.

    Latencies are numbered. The number of slots stands for an arrival after all of them. ``last`` is the last
    slot in which a send over a link of that latency ends in time, −1 if none is, and ``prior`` the last of
    which sends have arrived by a slot. The links into (0) and out of (1) rank r are
    ``links_at[way, links_at_start[way, r]:links_at_start[way, r + 1]]``.
    """

    src: Indices
    dst: Indices
    latency: Indices
    next: Indices
    last: Indices
    prior: Indices
    links_at_start: Indices
    links_at: Indices


def slots_s(network: Network, chunk_bytes: int, within_s: float) -> Floats:
    """Return where each slot begins, and where the last one ends: the last start of a send."""
    alpha_s, hold_s = float(network.alpha_s.min()), network.hold_s(chunk_bytes)
    last_s = max(within_s - alpha_s, SAME_S)
    longest_s = float(hold_s.max())
    alike = longest_s <= float(hold_s.min()) * (1 + _ROUNDED)
    step_s = max(alpha_s, longest_s * (1 if alike else _HOLDS), last_s / _MOST_STEPS)
    steps_s = np.arange(int(last_s / step_s) + 1) * step_s
    found = np.unique(np.concatenate((steps_s, last_s - steps_s)))
    return floats(found[np.append(np.diff(found) > SAME_S, True)])


def timed_links(network: Network, begin_s: Floats, within_s: float) -> TimedLinks:
    """Return in which slots sends arrive, for slots that begin at ``begin_s``."""
    alpha_s, latency = np.unique(np.round(network.alpha_s, 12), return_inverse=True)
    arrive_s = begin_s[:-1] + alpha_s[:, None]
    then = np.searchsorted(begin_s, arrive_s + SAME_S, side="right") - 1
    last = np.searchsorted(begin_s, within_s - alpha_s - SAME_S, side="left") - 1
    slots = np.arange(len(begin_s))
    prior = [
        np.minimum(np.searchsorted(row, slots, side="right") - 1, end)
        for row, end in zip(then, last, strict=True)
    ]
    into = np.stack((network.dst, network.src)).astype(np.int64)
    return TimedLinks(
        into[1],
        into[0],
        latency.astype(np.int64),
        then.astype(np.int64),
        last.astype(np.int64),
        np.array(prior, np.int64),
        np.stack([offsets(np.bincount(end, minlength=network.ranks)) for end in into]),
        np.argsort(into, axis=1, kind="stable"),
    )


def held_by(network: Network, chunk_bytes: int) -> Held:
    """Return what a send of a chunk over each link holds."""
    start, resource = network.link_resources
    order = np.argsort(resource, kind="stable")
    user = np.repeat(np.arange(network.links), np.diff(start))
    user_start = offsets(np.bincount(resource, minlength=network.links + len(network.ports)))
    return Held(start.astype(np.int64), resource, network.held_s(chunk_bytes), user_start, user[order])


def unloaded(network: Network, begin_s: Floats, held: Held) -> Load:
    """Return the load before any send."""
    lasts_s = np.diff(begin_s)
    capacity_s = floats(np.tile(lasts_s, (network.links + len(network.ports), 1)))
    cost_s = np.add.reduceat(held.hold_s, held.start[:-1])
    # The loop writes to the others, and a column of `floats` is read-only.
    return Load(capacity_s, np.zeros(capacity_s.shape), 1 / capacity_s, cost_s[:, None] / lasts_s)


@compiled
def add(link: int, slot: int, held: Held, load: Load, times: float) -> None:
    """Load the link and its ports with a send, and raise the costs of all sends that share them.

    ``times`` is 1, or -1 to take the send away.
    """
    for at in range(held.start[link], held.start[link + 1]):
        resource = held.resource[at]
        load.load_s[resource, slot] += times * held.hold_s[at]
        full = load.load_s[resource, slot] / load.capacity_s[resource, slot]
        price = math.exp(min(_STEEPNESS * full, _STEEPEST)) / load.capacity_s[resource, slot]
        load.price[resource, slot] = price
        # Prices differ by so many powers of ten that a sum of them cannot follow the change of one.
        for place in range(held.user_start[resource], held.user_start[resource + 1]):
            user, cost = held.user[place], 0.0
            for one in range(held.start[user], held.start[user + 1]):
                cost += held.hold_s[one] * load.price[held.resource[one], slot]
            load.cost[user, slot] = cost
