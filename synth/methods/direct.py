"""Direct: every rank sends each target its data over one link, in one step.

all_reduce is all-pairs (GC3 Sec. 6.1) and takes two steps: each rank reduces its share from all others, then
sends it to all. In each step rank r begins with rank r + 1, so that no receiver has all senders at once.
In a custom collective of copies, each target receives each chunk from the nearest rank that holds it.
"""

from __future__ import annotations

import numpy as np

from probes.base import Floats, Ints
from synth.collective import Collective
from synth.errors import NotApplicableError
from synth.network import Network
from synth.networks import link_table, links_between
from synth.schedules import COPY, REDUCE, Schedule
from synth.scheduling import Sends

__all__ = ["all_pairs", "synthesize"]


def synthesize(
    network: Network, collective: Collective, chunk_bytes: int, *, seed: int = 0, method: str = "direct"
) -> Schedule:
    """Return a schedule that sends every chunk from its sources to its targets over one link each.

    Raises NotApplicableError if a link is missing. O(ranks · chunks) sends.
    """
    copies = collective.kind == "custom" and not collective.reduces
    if not collective.whole and not copies:
        raise NotApplicableError(f"{method} does not serve {collective.label}")
    table = link_table(network, chunk_bytes)
    sends = Sends()
    if copies:
        _add_copies(sends, table, network.travel_s(chunk_bytes), collective, method)
        return sends.schedule(network, collective, chunk_bytes, method, seed)
    chunk = np.arange(collective.chunks)
    source, target = collective.source_of(), collective.target_of()
    if collective.reduces:
        _add(sends, table, REDUCE, collective, method)
    if (target < 0).all():
        _add(sends, table, COPY, collective, method)
    elif not collective.reduces:
        moves = np.flatnonzero(source != target)
        link = links_between(table, source[moves], target[moves], method)
        sends.add(chunk[moves], link, COPY, (target - source)[moves] % network.ranks)
    return sends.schedule(network, collective, chunk_bytes, method, seed)


def all_pairs(network: Network, collective: Collective, chunk_bytes: int, *, seed: int = 0) -> Schedule:
    """Return the all-pairs all_reduce under its own method name."""
    if collective.kind != "all_reduce":
        raise NotApplicableError(f"all_pairs does not serve {collective.kind}")
    return synthesize(network, collective, chunk_bytes, seed=seed, method="all_pairs")


def _add_copies(sends: Sends, table: Ints, travel_s: Floats, collective: Collective, method: str) -> None:
    """Add a send to each target of each chunk, from one of the nearest ranks that hold it at first.

    If several are equally near, targets and chunks use them in turn.
    """
    for chunk in range(collective.chunks):
        sources = collective.sources.of(chunk)
        for turn, target in enumerate(np.setdiff1d(collective.targets.of(chunk), sources).tolist()):
            ways = table[sources, target]
            time_s = np.where(ways >= 0, travel_s[ways], np.inf)
            nearest = sources[time_s <= time_s.min()]
            source = nearest[(turn + chunk) % len(nearest)]
            link = links_between(table, np.array([source]), np.array([target]), method)
            sends.add(chunk, link, COPY, (target - source) % len(table))


def _add(sends: Sends, table: Ints, op: int, collective: Collective, method: str) -> None:
    """Add sends between each chunk's owner and all other ranks: reduces to the owner, or copies from it.

    On each link the first chunks of all owners go before their second chunks, and copies go after sums. When
    an owner's copies have their turn, its first chunks are already summed, even if later chunks still arrive.
    """
    ranks = len(table)
    owner, lap = collective.owner_of()
    step = np.arange(1, ranks)
    other = (owner[:, None] + step) % ranks
    owners = np.broadcast_to(owner[:, None], other.shape)
    src, dst = (other, owners) if op == REDUCE else (owners, other)
    link = links_between(table, src, dst, method)
    turn = lap[:, None] * ranks + step
    before = (int(lap.max(initial=0)) + 1) * ranks if op == COPY else 0
    sends.add(np.arange(len(owner))[:, None], link, op, turn + before)
