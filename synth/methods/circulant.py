"""All_reduce round a slow rank: reduce to it and broadcast from it, both at once, on a circulant graph.

In round t rank v sends to rank v + s(t mod q), where each of the q = ⌈log₂ N⌉ skips s is about half of the
next (Träff, arXiv 2312.11236, has such broadcasts that are optimal in rounds). The root sends a chunk each
round, and each rank forwards the newest chunk that its target lacks. So n chunks take n − 1 + q rounds if N
is a power of two, and a few more otherwise. The reduction is such a broadcast reversed in time, with the
ranks numbered backwards. Both use the same links in each round: every rank sends and receives one chunk of
the reduction and one of the broadcast.

The slowest rank is the root. It sends and receives one chunk per round while the others send and receive two,
so half of their bandwidth is enough for the root. The rank that sends to the root in a round sends nothing
else meanwhile, and the rank that receives from the root receives nothing else. The all_reduce takes about n +
2q rounds. By contrast, a packing of trees of depth 1, as on a switch, ends with N sends one after the other.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from probes.base import Bytes, Floats, Indices, bytes_of, floats, ints
from synth.collective import Collective
from synth.errors import NotApplicableError
from synth.network import Network
from synth.networks import link_table, links_between
from synth.schedules import COPY, REDUCE, Schedule
from synth.scheduling import in_start_order

__all__ = ["slow_rank", "suits", "synthesize"]

# A rank is slow if its seconds per byte exceed those of all others by this factor.
_SLOWER = 1.04
# Rounds between the end of a chunk's reduction and its broadcast, to hide the latency of a link.
_PAUSE = 1


def synthesize(network: Network, collective: Collective, chunk_bytes: int, *, seed: int = 0) -> Schedule:
    """Return an all_reduce of all ranks, rooted at the slowest rank, or at rank 0 if all are equally fast.

    Raises NotApplicableError for other collectives, and if two ranks have no link. O(ranks · chunks) sends.
    """
    if collective.kind != "all_reduce" or not collective.whole:
        raise NotApplicableError(f"circulant does not serve {collective.label}, or not on a subset of ranks")
    table = link_table(network, chunk_bytes)
    ranks = network.ranks
    if ranks < 2:
        raise NotApplicableError("circulant needs two ranks")
    root = int(np.argmax(_rank_betas(network)))
    hold_s = float(np.median(network.hold_s(chunk_bytes)))
    # Several streams of chunks alternate, so that a chunk's latency passes during rounds of other streams.
    latency_s = 0.0 if network.hold_alpha else float(np.median(network.alpha_s))
    streams = max(1, min(math.ceil((latency_s / hold_s + 1) / 2), collective.chunks))
    sends = _all_reduce(ranks, -(-collective.chunks // streams))
    columns = []
    for stream in range(streams):
        chunk = sends.chunk * streams + stream
        kept = chunk < collective.chunks
        # Reductions go first: the root's chunk then has the rest of the round to arrive before its broadcast.
        turn = (sends.round * streams + stream) * 2 + (sends.op == COPY)
        columns.append(np.stack((turn, chunk, sends.src, sends.dst, sends.op.astype(np.int64)))[:, kept])
    turn, chunk, src, dst, op = np.concatenate(columns, axis=1)
    order = np.argsort(turn, kind="stable")
    link = links_between(table, (src + root) % ranks, (dst + root) % ranks, "circulant")
    columns_in_order = ints(chunk[order]), ints(link[order]), bytes_of(op[order])
    return in_start_order(Schedule(network, collective, chunk_bytes, "circulant", seed, *columns_in_order))


def suits(network: Network, collective: Collective) -> bool:
    """Return whether this is an all_reduce, and one rank has less bandwidth than all others."""
    return collective.kind == "all_reduce" and slow_rank(network) is not None


def slow_rank(network: Network) -> int | None:
    """Return the one rank with slower links than the others; None if there is none or pairs lack links."""
    if network.ranks < 4 or (link_table(network, 1 << 20) < 0).sum() > network.ranks:
        return None
    beta = _rank_betas(network)
    slowest = int(np.argmax(beta))
    others = np.delete(beta, slowest)
    alike = others.max() <= _SLOWER * others.min()
    return slowest if alike and beta[slowest] > _SLOWER * others.max() else None


def _rank_betas(network: Network) -> Floats:
    """Return for each rank the median seconds per byte of the links that it sends over."""
    start, links = network.out_links
    betas = np.split(network.beta_s_per_byte[links], start[1:-1])
    return floats([np.median(each) if len(each) else np.inf for each in betas])


class _Sends(NamedTuple):
    """Table of sends: round, chunk, source and destination as places in the graph, op."""

    round: Indices
    chunk: Indices
    src: Indices
    dst: Indices
    op: Bytes


@lru_cache(maxsize=4)
def _all_reduce(places: int, chunks: int) -> _Sends:
    """Return the sends of a reduction to place 0 and a broadcast from it, with equal skips in each round."""
    made = [_over(_skips(places, more), places, chunks) for more in (0, 1)]
    return min(made, key=lambda sends: int(sends.round.max()))


def _over(skips: list[int], places: int, chunks: int) -> _Sends:
    """Return the sends over these skips; the reduction uses them in reverse order."""
    count = len(skips)
    at, chunk, src, dst = _broadcast(skips, places, chunks)
    rounds = int(at.max()) + 1
    begins = rounds - chunks + 1 + _PAUSE
    # The reduction uses the skips backwards. So does the broadcast, to use the same skip in each round.
    phase = (rounds - 1 - begins) % count
    onward = [skips[(phase - step) % count] for step in range(count)]
    copy_round, copied, giver, taker = _broadcast(onward, places, chunks)
    return _Sends(
        np.concatenate((rounds - 1 - at, begins + copy_round)),
        np.concatenate((chunks - 1 - chunk, copied)),
        np.concatenate((-dst % places, giver)),
        np.concatenate((-src % places, taker)),
        np.repeat(bytes_of([REDUCE, COPY]), (len(at), len(copy_round))),
    )


def _skips(places: int, more: int) -> list[int]:
    """Return ⌈log₂ N⌉ skips from about N / 2 to 1: each half of the one before, rounded up, plus ``more``.

    ``more`` is 0 or 1. For some N only one of these values sustains one chunk per round.
    """
    skips = [places]
    for power in reversed(range((places - 1).bit_length())):
        skips.append(min(-(-skips[-1] // 2) + more, 1 << power))
    return skips[1:]


def _broadcast(skips: list[int], places: int, chunks: int) -> tuple[Indices, Indices, Indices, Indices]:
    """Return (round, chunk, source, destination) of every send of a broadcast from place 0, by rounds."""
    held = np.zeros((places, chunks), dtype=np.bool_)
    held[0] = True
    place = np.arange(places)
    rows: list[tuple[Indices, ...]] = []
    low = step = 0
    while low < chunks:
        target = (place + skips[step % len(skips)]) % places
        high = min(chunks, step + 1)
        lacks = held[:, low:high] & ~held[target, low:high]
        sends = np.flatnonzero(lacks.any(axis=1))
        newest = high - 1 - np.argmax(lacks[sends, ::-1], axis=1)
        held[target[sends], newest] = True
        rows.append((np.full(len(sends), step), newest, sends, target[sends]))
        step += 1
        while low < chunks and held[:, low].all():
            low += 1
    columns = [np.concatenate(column) for column in zip(*rows, strict=True)]
    return columns[0], columns[1], columns[2], columns[3]
