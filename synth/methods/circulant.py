"""All_reduce round a slow rank: reduce to it and broadcast from it, both at once, on a circulant graph.

In round t rank v sends to rank v + s(t mod q), the q = ⌈log₂ N⌉ skips s each about half of the next (Träff,
arXiv 2312.11236, has such broadcasts that are optimal in rounds). The root sends a chunk each round, and each
rank passes on the newest chunk that its target lacks: n chunks take n − 1 + q rounds where N is a power of
two, else a few more. The reduction is such a broadcast reversed in time with the ranks numbered backwards,
so that it uses the same links in each round: every rank sends and receives one chunk of the one and one of
the other.

The slowest rank is the root. It sends and receives one chunk a round where the others do two, so it may have
half of their bandwidth, and a rank that it speaks with has nothing else to do on that port in that round.
All takes about n + 2q rounds. A tree of depth 1, which a packing has on a switch, ends with N sends one after
the other.
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

# From so much less bandwidth than that of the others on a rank counts as slow.
_SLOWER = 1.04
# Rounds between the last part of a chunk's sum and its broadcast: the latency of a link passes.
_PAUSE = 1


def synthesize(network: Network, collective: Collective, chunk_bytes: int, *, seed: int = 0) -> Schedule:
    """All_reduce of all ranks where each has a link to each; raises NotApplicableError for others.

    The slowest rank is the root, rank 0 where all are alike. O(ranks · chunks) sends.
    """
    if collective.kind != "all_reduce" or not collective.whole:
        raise NotApplicableError(f"circulant does not serve {collective.label}, or not on a subset of ranks")
    table = link_table(network, chunk_bytes)
    ranks = network.ranks
    if ranks < 2:
        raise NotApplicableError("circulant needs two ranks")
    root = int(np.argmax(_rank_betas(network)))
    hold_s = float(np.median(network.hold_s(chunk_bytes)))
    # A chunk that arrives in one round goes on in the next one of its stream: meanwhile latency passes.
    latency_s = 0.0 if network.hold_alpha else float(np.median(network.alpha_s))
    streams = max(1, min(math.ceil((latency_s / hold_s + 1) / 2), collective.chunks))
    sends = _all_reduce(ranks, -(-collective.chunks // streams))
    columns = []
    for stream in range(streams):
        chunk = sends.chunk * streams + stream
        kept = chunk < collective.chunks
        # Reductions first: the broadcast then leaves the root's chunk the rest of the round to arrive.
        turn = (sends.round * streams + stream) * 2 + (sends.op == COPY)
        columns.append(np.stack((turn, chunk, sends.src, sends.dst, sends.op.astype(np.int64)))[:, kept])
    turn, chunk, src, dst, op = np.concatenate(columns, axis=1)
    order = np.argsort(turn, kind="stable")
    link = links_between(table, (src + root) % ranks, (dst + root) % ranks, "circulant")
    columns_in_order = ints(chunk[order]), ints(link[order]), bytes_of(op[order])
    return in_start_order(Schedule(network, collective, chunk_bytes, "circulant", seed, *columns_in_order))


def suits(network: Network, collective: Collective) -> bool:
    """Whether it is an all_reduce on which one rank has less bandwidth to each other than those have."""
    return collective.kind == "all_reduce" and slow_rank(network) is not None


def slow_rank(network: Network) -> int | None:
    """The one rank whose links are slower than the others', where every two ranks are linked; else None."""
    if network.ranks < 4 or (link_table(network, 1 << 20) < 0).sum() > network.ranks:
        return None
    beta = _rank_betas(network)
    slowest = int(np.argmax(beta))
    others = np.delete(beta, slowest)
    alike = others.max() <= _SLOWER * others.min()
    return slowest if alike and beta[slowest] > _SLOWER * others.max() else None


def _rank_betas(network: Network) -> Floats:
    """For each rank the median seconds per byte of the links that it sends over."""
    start, links = network.out_links
    betas = np.split(network.beta_s_per_byte[links], start[1:-1])
    return floats([np.median(each) if len(each) else np.inf for each in betas])


class _Sends(NamedTuple):
    """In each row the round, the chunk, the places of source and destination in the graph, the op."""

    round: Indices
    chunk: Indices
    src: Indices
    dst: Indices
    op: Bytes


@lru_cache(maxsize=4)
def _all_reduce(places: int, chunks: int) -> _Sends:
    """Reduce to place 0 and broadcast from it, the links of both those of one skip in each round."""
    made = [_over(_skips(places, more), places, chunks) for more in (0, 1)]
    return min(made, key=lambda sends: int(sends.round.max()))


def _over(skips: list[int], places: int, chunks: int) -> _Sends:
    """The sends over these skips, of which the reduction uses the last first."""
    count = len(skips)
    at, chunk, src, dst = _broadcast(skips, places, chunks)
    rounds = int(at.max()) + 1
    begins = rounds - chunks + 1 + _PAUSE
    # The broadcast that is reversed goes through the skips backwards, so this one meets it in each round.
    phase = (rounds - 1 - begins) % count
    met = [skips[(phase - step) % count] for step in range(count)]
    then, copied, giver, taker = _broadcast(met, places, chunks)
    return _Sends(
        np.concatenate((rounds - 1 - at, begins + then)),
        np.concatenate((chunks - 1 - chunk, copied)),
        np.concatenate((-dst % places, giver)),
        np.concatenate((-src % places, taker)),
        np.repeat(bytes_of([REDUCE, COPY]), (len(at), len(then))),
    )


def _skips(places: int, more: int) -> list[int]:
    """⌈log₂ N⌉ skips from about N / 2 down to 1, each half of the one before rounded up, and ``more``.

    For some N one of the two keeps up with a chunk a round where the other does not.
    """
    skips = [places]
    for power in reversed(range((places - 1).bit_length())):
        skips.append(min(-(-skips[-1] // 2) + more, 1 << power))
    return skips[1:]


def _broadcast(skips: list[int], places: int, chunks: int) -> tuple[Indices, Indices, Indices, Indices]:
    """(round, chunk, source, destination) of every send, from place 0, in the order of rounds."""
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
