"""Test inputs whose results are known exactly, and these results.

Every rank repeats a pattern of small integers. The length of the pattern is a prime, so a chunk that is
misplaced, missing or added twice gives a wrong result. The integers are small enough that their sums are
exact in the element type, for up to 16 million ranks in float32 and 256 in bfloat16. For products, only two
ranks hold a factor other than 1 at each element.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache, reduce
from typing import Any

import numpy as np

from exec.program.dtypes import BFLOAT16, Array, combine_of, divided, encoded
from exec.program.layout import Layout
from probes.base import Ints
from synth.program import INPUT, OUTPUT

__all__ = ["expected", "given"]

# Elements of a pattern: a prime (2^13 - 1), so that no usual chunk size shares a factor with it.
_PERIOD = 8191
_LARGEST = 7
# The largest n for which every integer from -n to n can be represented; 2^24 for other types.
_EXACT = {np.dtype(np.float16): 1 << 11, BFLOAT16: 1 << 8}


def given(layout: Layout, rank: int, dtype: np.dtype[Any], redop: str) -> Array:
    """Return the input of ``rank``: flat, as long as the program's input for this layout."""
    patterns = _Patterns(layout, dtype, redop)
    values = _repeated(patterns.of(rank), 0, layout.elements(rank, INPUT))
    collective = layout.program.collective
    copied = collective.sources.has(rank) & (collective.sources.sizes() > 1) & ~collective.reduced
    # A chunk that is copied, not reduced, must be the same on all ranks that hold it: use the first rank's.
    for chunk in np.flatnonzero(copied).tolist():
        slot = patterns.input_slot(rank, chunk)
        start, length = layout.start(rank, INPUT, slot), layout.length(rank, INPUT, slot)
        first = int(collective.sources.of(chunk)[0])
        values[start : start + length] = patterns.at_source(first, chunk)[:length]
    return values


def expected(layout: Layout, rank: int, dtype: np.dtype[Any], redop: str) -> Array:
    """Return the output that ``rank`` must end with, bit for bit."""
    patterns = _Patterns(layout, dtype, redop)
    collective, count = layout.program.collective, layout.count
    length = layout.elements(rank, OUTPUT)
    if not collective.whole or collective.kind in ("gather", "scatter", "all_to_next"):
        return _chunk_by_chunk(patterns, rank)
    if collective.reduces:
        first = rank * count if collective.kind == "reduce_scatter" else 0
        return _repeated(patterns.reduced(range(collective.ranks)), first, length)
    if collective.kind == "broadcast":
        return _repeated(patterns.of(collective.root), 0, length)
    first = rank * count if collective.kind == "all_to_all" else 0
    return np.concatenate(
        [_repeated(patterns.of(source), first, count) for source in range(collective.ranks)]
    )


class _Patterns:
    """The pattern of each rank, as elements of one type, and reductions of patterns."""

    def __init__(self, layout: Layout, dtype: np.dtype[Any], redop: str) -> None:
        self.layout, self.dtype, self.redop = layout, dtype, redop
        self.ranks = layout.program.ranks
        self._slots: dict[int, Ints] = {}
        self.for_product = layout.program.collective.reduces and redop == "prod"
        self.largest = max(1, min(_LARGEST, _EXACT.get(dtype, 1 << 24) // self.ranks))

    def input_slot(self, rank: int, chunk: int) -> int:
        if rank not in self._slots:
            self._slots[rank] = self.layout.program.collective.input_slots(rank)
        return int(self._slots[rank][chunk])

    def of(self, rank: int) -> Array:
        """Return one period of the pattern of ``rank``."""
        return encoded(_period(self.ranks, rank, self.largest, self.for_product), self.dtype)

    def at_source(self, source: int, chunk: int) -> Array:
        """Return the elements of ``source`` from the start of ``chunk`` on: a whole period at least."""
        layout = self.layout
        first = layout.start(source, INPUT, self.input_slot(source, chunk))
        return _repeated(self.of(source), first, max(_PERIOD, layout.largest))

    def reduced(self, sources: Iterable[int]) -> Array:
        return self.combined([self.of(source) for source in sources])

    def combined(self, parts: list[Array]) -> Array:
        total = reduce(combine_of(self.redop, self.dtype), parts)
        return divided(total, len(parts)) if self.redop == "avg" else total


def _chunk_by_chunk(patterns: _Patterns, rank: int) -> Array:
    """Return the output of ``rank``, computed chunk by chunk from the sources of each chunk."""
    layout = patterns.layout
    collective = layout.program.collective
    result = np.zeros(layout.elements(rank, OUTPUT), patterns.dtype)
    for slot, chunk in enumerate(np.flatnonzero(collective.targets.has(rank)).tolist()):
        sources = collective.sources.of(chunk).tolist()
        parts = [
            patterns.at_source(source, chunk)
            for source in sources[: None if collective.reduced[chunk] else 1]
        ]
        total = patterns.combined(parts) if collective.reduced[chunk] else parts[0]
        start, length = layout.start(rank, OUTPUT, slot), layout.length(rank, OUTPUT, slot)
        result[start : start + length] = total[:length]
    return result


@lru_cache(maxsize=1024)
def _period(ranks: int, rank: int, largest: int, for_product: bool) -> Array:
    if for_product:
        place = np.arange(_PERIOD) % ranks
        return np.where(place == rank, 2, np.where(place == (rank + 1) % ranks, 3, 1))
    return np.random.default_rng(rank).integers(-largest, largest + 1, _PERIOD)


def _repeated(pattern: Array, first: int, length: int) -> Array:
    return np.resize(np.roll(pattern, -(first % len(pattern))), length)
