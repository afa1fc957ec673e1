"""Inputs whose results are known exactly, and those results.

Every rank repeats a pattern of small integers whose length is a prime, so that a chunk in the
wrong place, twice or not at all shows. Sums of them are exact in float32 for up to two million
ranks; of the factors of a product only two ranks' differ from one, whatever their number.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from exec.layout import Layout
from exec.redops import Array, ufunc_of
from synth.program import INPUT, OUTPUT

__all__ = ["expected", "given"]

_PERIOD = 8191


def given(layout: Layout, rank: int, dtype: np.dtype[Any], redop: str) -> Array:
    """The input of ``rank``: flat, as long as the program's input for this layout."""
    own = _repeated(_pattern(layout, rank, redop), 0, layout.elements(rank, INPUT), dtype)
    collective, slots = layout.program.collective, layout.slots
    copied = collective.sources.has(rank) & (collective.sources.sizes() > 1) & ~collective.reduced
    # What several ranks hold copies of is the same on all of them: what the first one has.
    for chunk in np.flatnonzero(copied).tolist():
        slot = slots.input_of(rank, chunk)
        start, length = layout.start(INPUT, slot), layout.length(slot)
        first = int(collective.sources.of(chunk)[0])
        own[start : start + length] = _at_source(layout, first, chunk, redop).astype(dtype)[:length]
    return own


def expected(layout: Layout, rank: int, dtype: np.dtype[Any], redop: str) -> Array:
    """The output that ``rank`` must end with, bit for bit."""
    collective, count = layout.program.collective, layout.count
    length = layout.elements(rank, OUTPUT)
    if not collective.whole or collective.kind in ("gather", "scatter", "all_to_next"):
        return _chunk_by_chunk(layout, rank, dtype, redop)
    if collective.reduces:
        first = rank * count if collective.kind == "reduce_scatter" else 0
        return _repeated(_reduced(layout, redop), first, length, dtype)
    if collective.kind == "broadcast":
        return _repeated(_pattern(layout, collective.root, redop), 0, length, dtype)
    first = rank * count if collective.kind == "all_to_all" else 0
    blocks = [
        _repeated(_pattern(layout, source, redop), first, count, dtype) for source in range(collective.ranks)
    ]
    return np.concatenate(blocks)


def _chunk_by_chunk(layout: Layout, rank: int, dtype: np.dtype[Any], redop: str) -> Array:
    """The output from the sources of each of its chunks."""
    collective, slots = layout.program.collective, layout.slots
    combine = ufunc_of(redop)
    result = np.zeros(layout.elements(rank, OUTPUT), dtype)
    for slot, chunk in enumerate(slots.output_chunks(rank).tolist()):
        sources = collective.sources.of(chunk).tolist()
        total = _at_source(layout, sources[0], chunk, redop)
        for source in sources[1:] if collective.reduced[chunk] else ():
            total = combine(total, _at_source(layout, source, chunk, redop))
        start, length = layout.start(OUTPUT, slot), layout.length(slot)
        result[start : start + length] = np.resize(total.astype(dtype), length)
    return result


def _at_source(layout: Layout, source: int, chunk: int, redop: str) -> Array:
    """A period of what ``source`` holds, or longer, from ``chunk`` on, as int64."""
    first = layout.start(INPUT, layout.slots.input_of(source, chunk))
    return np.resize(
        np.roll(_pattern(layout, source, redop), -(first % _PERIOD)), max(_PERIOD, layout.largest)
    )


def _reduced(layout: Layout, redop: str) -> Array:
    combine = ufunc_of(redop)
    total = _pattern(layout, 0, redop)
    for rank in range(1, layout.program.ranks):
        total = combine(total, _pattern(layout, rank, redop))
    return total


def _pattern(layout: Layout, rank: int, redop: str) -> Array:
    """One period of what ``rank`` holds, as int64."""
    return _period(layout.program.ranks, rank, layout.program.collective.reduces and redop == "prod")


@lru_cache(maxsize=1024)
def _period(ranks: int, rank: int, for_product: bool) -> Array:
    if for_product:
        place = np.arange(_PERIOD) % ranks
        return np.where(place == rank, 2, np.where(place == (rank + 1) % ranks, 3, 1))
    return np.random.default_rng(rank).integers(-7, 8, _PERIOD)


def _repeated(pattern: Array, first: int, length: int, dtype: np.dtype[Any]) -> Array:
    shifted = np.roll(pattern, -(first % len(pattern))).astype(dtype)
    return np.resize(shifted, length)
