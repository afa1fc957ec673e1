"""Requests for uneven collectives: how the blocks are cut into equal chunks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from probes.base import Longs, UsageError, longs, offsets
from synth.collective import Collective, Kind, uneven
from synth.portfolio.request import CollectiveRequest

__all__ = ["cut_request", "uneven_request"]

# Numbers of chunks to try for the busiest buffer. Fewer than 16 leave no pipeline; more take more work.
_PIECES = (16, 32, 64, 128, 256, 512, 1024, 4096, 16384)
# The busiest buffer may grow by this share when its blocks are rounded up to whole chunks: the planner's own
# schedules are within about as much of their bounds (benchmarks/demands.py).
_MOST_ROUNDING = 0.02
# A search over more chunks takes minutes (benchmarks/demands.py). An all_to_all on many ranks is planned
# without a search; with more chunks, the proof takes minutes.
_MOST_CHUNKS = 4096
_MOST_CHUNKS_OF_PAIR, _MOST_CHUNKS_OF_PAIRS = 32, 1 << 19
# A chunk of an all_gather on 512 ranks takes 511 sends, and 690,000 sends took 54 seconds of a core.
_MOST_SENDS = 1 << 20


def uneven_request(
    kind: Kind, ranks: int, size_bytes: Sequence[int], *, root: int = 0, chunk_bytes: int | None = None
) -> tuple[CollectiveRequest, int]:
    """Return the request for blocks of ``size_bytes``, and the size of its largest buffer in whole chunks.

    ``size_bytes`` has a value for each rank; in an all_to_all it has one for each pair, by source and then
    target. Without ``chunk_bytes``, the chunk is the largest that rounds the busiest buffer up by at most
    2 %. If that takes too many chunks or sends, the chunk is the one that rounds the buffer up least. Raises
    UsageError if the sizes do not suit the collective, or if one chunk a block takes too many sends.
    """
    return cut_request(partial(uneven, kind, ranks, size_bytes, root=root), max(1, *size_bytes), chunk_bytes)


def cut_request(
    made: Callable[..., Collective], largest_bytes: int, chunk_bytes: int | None = None
) -> tuple[CollectiveRequest, int]:
    """Return the request for the collective ``made(chunk_bytes=…)``, and the size of its largest buffer.

    ``largest_bytes`` is its largest block. The chunk is chosen as in ``uneven_request``.
    """
    whole = made(chunk_bytes=chunk_bytes or largest_bytes)
    if chunk_bytes is None:
        chunk_bytes = _chunk_bytes(whole)
        whole = made(chunk_bytes=chunk_bytes)
    return CollectiveRequest("custom", sets=whole), whole.total_bytes(chunk_bytes)


def _chunk_bytes(whole: Collective) -> int:
    assert whole.blocks is not None
    sizes: list[int] = [size for size in whole.blocks.size_bytes.tolist() if size]
    sends = _sends_of_blocks(whole)
    if int(sends.sum()) > _MOST_SENDS:
        raise UsageError(
            f"{whole.label} on {whole.ranks} ranks takes at least {sends.sum()} sends, expected at most "
            f"{_MOST_SENDS}",
            hint="Pad all blocks to the largest: equal blocks need no list of sends."
            if whole.blocks.kind != "custom"
            else "",
        )
    busiest = int(whole.buffer_bytes().max())
    common = math.gcd(*sizes)
    candidates = [-(-busiest // pieces) for pieces in _PIECES]
    if busiest <= common * _PIECES[-1]:
        # Several blocks in a chunk, or a large block in equal chunks.
        candidates += [common * times] if (times := busiest // _PIECES[0] // common) else []
        candidates.append(-(-common // -(-common * _PIECES[0] // busiest)))
    most = _MOST_CHUNKS
    if whole.blocks.kind == "all_to_all":
        most = max(most, min(_MOST_CHUNKS_OF_PAIR * len(sizes), _MOST_CHUNKS_OF_PAIRS))
    block_bytes = longs(sizes)
    fitting = [
        size
        for size in candidates
        if (chunks := -(-block_bytes // size)).sum() <= most and chunks @ sends <= _MOST_SENDS
    ] or [max(candidates)]
    rounding = {size: _rounding(whole, size) for size in fitting}
    near = [size for size in fitting if rounding[size] <= _MOST_ROUNDING]
    return max(near) if near else min(fitting, key=lambda size: rounding[size])


def _sends_of_blocks(whole: Collective) -> Longs:
    """Return the fewest sends of each block with data, if it is one chunk."""
    assert whole.blocks is not None
    filled = whole.blocks.chunks > 0
    first = offsets(whole.blocks.chunks)[:-1][filled]
    ends = whole.sources.sizes()[first].astype(np.int64) + whole.targets.sizes()[first] - 2
    return longs(np.maximum(ends, 1))


def _rounding(whole: Collective, chunk_bytes: int) -> float:
    """Return by which share the busiest buffer grows when each block is rounded up to whole chunks."""
    assert whole.custom is not None and whole.blocks is not None
    sizes = longs(-(-whole.blocks.size_bytes // chunk_bytes) * chunk_bytes)
    rounded = replace(whole, custom=replace(whole.custom, blocks=replace(whole.blocks, size_bytes=sizes)))
    return int(rounded.buffer_bytes().max()) / int(whole.buffer_bytes().max()) - 1
