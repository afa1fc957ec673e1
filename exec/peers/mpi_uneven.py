"""MPI's v-collectives on our buffers: Allgatherv, Reduce_scatter, Scatterv, Gatherv and Alltoallv."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from exec.program import Array, Buffers
from synth.collective import UnevenBlocks

__all__ = ["uneven_call"]


def uneven_call(
    comm: Any, blocks: UnevenBlocks, buffers: Buffers, op: Any
) -> tuple[Callable[[], object], Array]:
    """Return (call, its result array) of the library's uneven collective; ``op`` is MPI's operator."""
    elements, rank, ranks = buffers.layout.block_elements(), comm.Get_rank(), comm.Get_size()
    send, recv, root = buffers.send, buffers.recv, blocks.root
    if blocks.kind == "all_to_all":
        pairs = elements.reshape(ranks, ranks)
        sent, received = pairs[rank].tolist(), pairs[:, rank].tolist()
        return partial(comm.Alltoallv, [send, sent], [recv, received]), recv
    counts = elements.tolist()
    match blocks.kind:
        case "all_gather":
            return partial(comm.Allgatherv, send, [recv, counts]), recv
        case "reduce_scatter":
            return partial(comm.Reduce_scatter, send, recv, counts, op), recv
        case "scatter":
            return partial(comm.Scatterv, [send, counts] if rank == root else None, recv, root), recv
    return partial(comm.Gatherv, send, [recv, counts] if rank == root else None, root), recv
