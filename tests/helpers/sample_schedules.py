"""Schedules that the compiler and the executors are tested with: random trees, and the ring."""

import itertools

import numpy as np

from probes.base.columns import bytes_of, ints
from synth.collective import collective
from synth.network import Link, build
from synth.schedules import COPY, REDUCE, Schedule


def complete(ranks, parallel=1):
    """A network in which every rank has ``parallel`` links to every other."""
    links = [
        Link(a, b, 1e-6, 1e-9) for a in range(ranks) for b in range(ranks) if a != b for _ in range(parallel)
    ]
    return build(f"complete:{ranks}", [f"h{rank}" for rank in range(ranks)], links)


def schedule_of(network, wanted, sends):
    """A schedule from (chunk, src, dst, op) of each send, over the first link of each pair."""
    link_of = {}
    for link, pair in enumerate(zip(network.src.tolist(), network.dst.tolist(), strict=True)):
        link_of.setdefault(pair, link)
    return Schedule(
        network=network,
        collective=wanted,
        chunk_bytes=1024,
        method="by hand",
        seed=0,
        chunk=ints([send[0] for send in sends]),
        link=ints([link_of[send[1], send[2]] for send in sends]),
        op=bytes_of([send[3] for send in sends]),
    )


def _chunk_sends(wanted, chunk, rng):
    """A random in-tree of reduces to one rank, then a random out-tree, or a path, of copies from it."""
    ranks, source, target = wanted.ranks, wanted.source_of()[chunk], wanted.target_of()[chunk]
    root = int(source if source >= 0 else target)
    root = root if root >= 0 else int(rng.integers(ranks))
    order = [root, *(int(rank) for rank in rng.permutation(ranks) if rank != root)]
    parent = {rank: order[int(rng.integers(at))] for at, rank in enumerate(order) if at}
    sends = [(chunk, rank, parent[rank], REDUCE) for rank in order[:0:-1]] if wanted.reduces else []
    if target < 0:
        sends += [(chunk, parent[rank], rank, COPY) for rank in order[1:]]
    elif not wanted.reduces:
        path = [int(target)]
        while path[-1] != root:
            path.append(parent[path[-1]])
        sends += [(chunk, after, before, COPY) for before, after in [*itertools.pairwise(path)][::-1]]
    return sends


def random_schedule(kind, ranks, chunks, seed):
    """A valid schedule of random trees, the sends of its chunks mixed at random."""
    rng = np.random.default_rng(seed)
    ranks = max(ranks, 2) if kind == "all_to_next" else ranks
    wanted = collective(kind, ranks, chunks, root=int(rng.integers(ranks)))
    waiting = [_chunk_sends(wanted, chunk, rng) for chunk in range(wanted.chunks)]
    mixed = []
    while any(waiting):
        mixed.append(waiting[int(rng.choice([at for at, sends in enumerate(waiting) if sends]))].pop(0))
    return schedule_of(complete(ranks), wanted, mixed)


def ring_all_reduce(ranks, chunks=1):
    """The classic ring with ``chunks`` chunks a rank: reduce once round, copy once round."""
    wanted = collective("all_reduce", ranks, ranks * chunks)
    sends = [
        (
            part * ranks + chunk,
            (chunk + turn) % ranks,
            (chunk + turn + 1) % ranks,
            REDUCE if turn < ranks - 1 else COPY,
        )
        for turn in range(2 * (ranks - 1))
        for part in range(chunks)
        for chunk in range(ranks)
    ]
    return schedule_of(complete(ranks), wanted, sends)
