"""Parts of every collective are exact whatever chunks their schedules cut a block into."""

import numpy as np
import pytest
from drawn_examples import chessboard
from threaded_ranks import ThreadedRanks

from exec.adaptive.contexts import Contexts, Result, Version
from exec.adaptive.messages import SERVED, CollectiveCall
from exec.mpi import connections
from synth import synthesize
from synth.networks.families import family

RANKS, COUNT = 4, 503


def given(kind, rank):
    blocks = RANKS if kind in ("reduce_scatter", "all_to_all") else 1
    return np.random.default_rng(rank).integers(-1000, 1000, blocks * COUNT).astype(np.float32)


def expected(kind, rank):
    every = [given(kind, of) for of in range(RANKS)]
    mine = slice(rank * COUNT, (rank + 1) * COUNT)
    if kind == "all_gather":
        return np.concatenate(every)
    if kind == "all_to_all":
        return np.concatenate([one[mine] for one in every])
    whole = np.sum(every, axis=0)
    if kind == "reduce":
        return whole if rank == 0 else whole[:0]
    return whole[mine] if kind == "reduce_scatter" else whole


@pytest.mark.parametrize(
    ("kind", "chunks"), chessboard([kind for kind in SERVED if kind != "broadcast"], [1, 2, 16])
)
def test_a_late_rank_adds_its_part_whether_or_not_chunks_divide_a_block(kind, chunks, monkeypatch):
    monkeypatch.setattr(connections, "FETCHED_BYTES", 1 if chunks == 2 else 1 << 40)
    request = CollectiveCall(kind, "sum", "float32", COUNT, 4, root=0)
    network = family(f"switch:{RANKS}", [1e-5], [1e9])
    schedule = synthesize(network, kind, chunk_bytes=64, chunks=chunks, method="greedy").schedule
    ranks = ThreadedRanks((0,) * RANKS, monkeypatch)
    ready, late = [0, 1, 3], 2

    def run(rank):
        contexts = Contexts(ranks.groups[rank], Version(0, {request: schedule}), range(RANKS))
        result, data = Result(), given(kind, rank)
        contexts.run(request, ready, data if rank != late else None, result)
        contexts.run(request, [late], data if rank == late else None, result)
        found = result.whole(request)
        contexts.close()
        return found

    try:
        found = ranks.on_all(run)
    finally:
        ranks.close()
    for rank in range(RANKS):
        assert found[rank].tolist() == expected(kind, rank).tolist()
