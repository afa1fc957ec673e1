"""The search for symmetric schedules: it plans the chunks of one rank of each orbit of ranks.

The chunks of the other ranks follow by translation (`synth.schedules.symmetric` explains both words).

`spread` makes an all_gather, `all_to_all_sends` an all_to_all. A reduce_scatter is an all_gather backwards in
time; an all_reduce is a reduce_scatter and then an all_gather. The search covers one link and one chunk of
each orbit instead of all of them, and all links of an orbit have the same load.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from probes.base import Indices, bytes_of, ints, spans
from synth.collective import Collective, collective
from synth.errors import NotApplicableError
from synth.network import Network
from synth.networks import SymmetricNetwork, found_symmetry
from synth.schedules import COPY, REDUCE, SYMMETRIC, Schedule, SymmetricSchedule
from synth.scheduling.list_scheduling import in_start_order
from synth.scheduling.symmetric_paths import all_to_all_sends
from synth.scheduling.symmetric_spreading import spread
from synth.scheduling.time_reversal import backwards
from synth.simulation import replay

__all__ = ["MOST_COMPARISONS", "comparisons", "suits", "symmetric_schedules", "synthesize"]

# The most pairs of a listed link and a chunk. The search tests each pair once. At 40 ns a test, as measured
# on dragonfly:33x16, this limits the search to 8 s of processor time.
MOST_COMPARISONS = 200_000_000
# Least number of ranks: on fewer, a search for all chunks takes less than 0.02 s of processor time, as for an
# all_gather of 8 chunks a rank.
_FEWEST_RANKS = 24
# Least number of translations: with fewer, the search is hardly smaller.
_FEWEST_TRANSLATIONS = 4


def synthesize(network: Network, collective: Collective, chunk_bytes: int, *, seed: int = 0) -> Schedule:
    """Return the fastest symmetric schedule as a plain schedule, with all sends listed.

    Raises NotApplicableError for collectives that are not SYMMETRIC, if ranks own different numbers of
    chunks, and on networks without translations. O(all sends) besides the search.
    """
    found = found_symmetry(network)
    if found is None:
        raise NotApplicableError(f"{network.name}: no translation of its ranks maps links to links")
    if collective.kind not in SYMMETRIC or not collective.whole or collective.chunks % network.ranks:
        raise NotApplicableError(
            f"symmetric does not serve {collective.label} in {collective.chunks} chunks on these ranks"
        )
    tried = symmetric_schedules(found.network, collective, chunk_bytes, seed)
    best = min(tried, key=lambda made: replay(made.quotient).time_s)
    chunk, link, shift, op = best.implied()
    rows = ints(found.link[link, shift])
    return in_start_order(Schedule(network, collective, chunk_bytes, "symmetric", seed, chunk, rows, op))


def suits(network: Network, shape: Collective) -> bool:
    """Return whether there are enough translations for the search to be worth it."""
    if network.ranks < _FEWEST_RANKS or shape.kind not in SYMMETRIC or not shape.whole:
        return False
    if shape.chunks % network.ranks:
        return False
    found = found_symmetry(network)
    return found is not None and (
        found.network.translations >= _FEWEST_TRANSLATIONS
        and comparisons(found.network, shape) <= MOST_COMPARISONS
    )


def comparisons(network: SymmetricNetwork, shape: Collective) -> int:
    """Return the number of (listed link, chunk) pairs, each of which the search tests once."""
    return shape.chunks * len(network.src)


def symmetric_schedules(
    network: SymmetricNetwork, shape: Collective, chunk_bytes: int, seed: int
) -> Iterator[SymmetricSchedule]:
    """Yield a strict schedule and, if links differ in cost, one that is not strict.

    A block is a set of ranks that faster links join. In a strict schedule, slow links carry a chunk only into
    blocks that lack it. Raises NotApplicableError if links do not lead from each rank to all others.
    """
    if shape.kind == "all_to_all":
        for chunk, link, shift in all_to_all_sends(network, chunk_bytes, shape.share):
            op = bytes_of(np.full(len(chunk), COPY))
            columns = ints(chunk), ints(link), ints(shift), op
            yield SymmetricSchedule(network, shape, chunk_bytes, "symmetric", seed, *columns)
        return
    # If all links cost the same, ``strict`` makes no difference.
    once = len(np.unique(network.beta_s_per_byte)) == 1 or comparisons(network, shape) > MOST_COMPARISONS
    for strict in (True,) if once else (True, False):
        whole = SymmetricSchedule(
            network, shape, chunk_bytes, "symmetric", seed, *(ints([]),) * 3, bytes_of([])
        )
        opposite = _opposite(network)
        summed = spreading = _spreading(whole, network, strict)
        if opposite is None and shape.kind != "all_gather":
            summed = _spreading(whole, network.transposed(), strict)
        if shape.kind == "all_gather":
            yield spreading
        elif shape.kind == "reduce_scatter":
            yield _backwards(summed, whole, opposite)
        else:
            yield _in_sequence(_backwards(summed, whole, opposite), spreading)


def _spreading(whole: SymmetricSchedule, network: SymmetricNetwork, strict: bool) -> SymmetricSchedule:
    """Return an all_gather on ``network`` of the chunks of ``whole``."""
    shape = collective("all_gather", network.ranks, whole.share)
    chunk, link, shift = spread(network, whole.chunk_bytes, whole.share, strict=strict)
    if len(chunk) < len(network.cells) * whole.share * (network.ranks - 1):
        raise NotApplicableError(f"{network.name}: links do not lead from each rank to all others")
    return replace(
        whole,
        network=network,
        collective=shape,
        chunk=ints(chunk),
        link=ints(link),
        shift=ints(shift),
        op=bytes_of(np.full(len(chunk), COPY)),
    )


def _backwards(
    made: SymmetricSchedule, whole: SymmetricSchedule, opposite: Indices | None
) -> SymmetricSchedule:
    """Return the all_gather ``made`` backwards in time, over the ``opposite`` links.

    If ``opposite`` is None, ``made`` is an all_gather on the transposed network.
    """
    order = backwards(replay(made.quotient).arrival_s)
    link, network = made.link[order], whole.network
    if opposite is None:
        shift = network.moved(made.shift[order], network.back(network.shift_of(network.dst))[link])
    else:
        shift = network.turned(link, made.shift[order])
        link = ints(opposite[link])
    return replace(
        whole,
        chunk=made.chunk[order],
        link=link,
        shift=ints(shift),
        op=bytes_of(np.full(len(order), REDUCE)),
    )


def _in_sequence(first: SymmetricSchedule, second: SymmetricSchedule) -> SymmetricSchedule:
    """Return the sends of both; each resource carries sends of ``first`` before sends of ``second``."""
    return replace(
        first,
        chunk=np.concatenate([first.chunk, second.chunk]),
        link=np.concatenate([first.link, second.link]),
        shift=np.concatenate([first.shift, second.shift]),
        op=np.concatenate([first.op, second.op]),
    )


def _opposite(network: SymmetricNetwork) -> Indices | None:
    """Return for each orbit of links the orbit of the reversed links; None if costs or ports differ.

    A link and its reversed link must have equally many ports. The first port of one is then paired with the
    last port of the other, and so on; each orbit of ports must have the same partner on all links.
    """
    turned = network.transposed()
    here, there = (
        np.lexsort((one.beta_s_per_byte, one.alpha_s, one.dst, one.src)) for one in (network, turned)
    )
    for name in ("src", "dst", "alpha_s", "beta_s_per_byte"):
        if not np.array_equal(getattr(network, name)[here], getattr(turned, name)[there]):
            return None
    found = np.empty(len(here), np.int64)
    found[there] = here
    counts = np.diff(network.link_port_start)
    if not np.array_equal(counts, counts[found]):
        return None
    first = network.link_port.astype(np.int64)
    rising = spans(np.zeros_like(counts), counts)
    second = network.link_port[np.repeat(network.link_port_start[1:][found] - 1, counts) - rising]
    pairs = len(np.unique(first * max(1, len(network.ports)) + second))
    return found if pairs == len(np.unique(first)) == len(np.unique(second)) else None
