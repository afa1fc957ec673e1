"""Hazards: true, anti and output dependences between operations that touch a slot (GC3 Sec. 5.1)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from probes.base import Indices, Mask
from synth.kernels import compiled
from synth.memory_layout import Cells

__all__ = ["Dependences", "Range", "dependences"]

Range = tuple[Indices, Indices]
"""The first slot of each row, numbered through all memory, and the number of its slots (0: none)."""


@dataclass(frozen=True, eq=False)
class Dependences:
    """The earlier rows ``before[start[n]:start[n + 1]]`` after which each row n must come.

    ``true`` tells for each of these earlier rows whether row n reads what that row wrote. Otherwise row n
    overwrites what that row read or wrote. ``kept[n]`` tells whether any slot that row n wrote still holds
    its value at the end.
    """

    start: Indices
    before: Indices
    true: Mask
    kept: Mask

    @property
    def after(self) -> Indices:
        """The later row of each dependence; ``before`` has the earlier one."""
        return np.repeat(np.arange(len(self.start) - 1), np.diff(self.start))


def dependences(cells: Cells, first: Range, second: Range, written: Range) -> Dependences:
    """Return the dependences of rows, each of which reads two ranges, then writes one; O(slots touched)."""
    touched = int(first[1].sum() + second[1].sum() + 2 * written[1].sum())
    wanted = np.zeros(cells.total, dtype=bool)
    outputs = cells.outputs
    wanted[cells.same[cells.first[outputs.rank, 1] + outputs.slot]] = True
    (a, counts_a), (b, counts_b), (c, counts_c) = first, second, written
    return Dependences(
        *_dependences(a, counts_a, b, counts_b, c, counts_c, cells.same.astype(np.int64), wanted, touched)
    )


@compiled
def _last_writers(written: Indices, written_count: Indices, same: Indices) -> Indices:
    """Return for each cell the last row that writes it; -1 if none does."""
    last = np.full(len(same) + 1, -1, dtype=np.int64)
    for row in range(len(written)):
        for at in range(written[row], written[row] + written_count[row]):
            last[same[at]] = row
    return last


@compiled
def _dependences(
    first: Indices,
    first_count: Indices,
    second: Indices,
    second_count: Indices,
    written: Indices,
    written_count: Indices,
    same: Indices,
    wanted: Mask,
    touched: int,
) -> tuple[Indices, Indices, Mask, Mask]:
    rows = len(first)
    writer = np.full(len(same) + 1, -1, dtype=np.int64)
    # The rows that read a cell since its last write form a linked list, its chain.
    chain = np.full(len(same) + 1, -1, dtype=np.int64)
    link_row = np.empty(touched + 1, dtype=np.int64)
    link_next = np.empty(touched + 1, dtype=np.int64)
    links = 0
    start = np.zeros(rows + 1, dtype=np.int64)
    # A slot read gives at most two pairs: with the last writer and, as a write empties the chain, with the
    # next writer. So there are at most twice as many pairs as slots touched.
    before = np.empty(2 * touched + 1, dtype=np.int64)
    true = np.empty(2 * touched + 1, dtype=np.bool_)
    size = 0
    noted = np.full(rows + 1, -1, dtype=np.int64)
    last = _last_writers(written, written_count, same)
    for row in range(rows):
        for turn in range(2):
            low = first[row] if turn == 0 else second[row]
            for at in range(low, low + (first_count[row] if turn == 0 else second_count[row])):
                cell = same[at]
                source = writer[cell]
                if source >= 0 and noted[source] != row:
                    noted[source] = row
                    before[size], true[size] = source, True
                    size += 1
                link_row[links], link_next[links] = row, chain[cell]
                chain[cell] = links
                links += 1
        for at in range(written[row], written[row] + written_count[row]):
            cell = same[at]
            source = writer[cell]
            if source >= 0 and noted[source] != row:
                noted[source] = row
                before[size], true[size] = source, False
                size += 1
            offset = at - written[row]
            is_alone = second_count[row] == 0 and offset < first_count[row]
            if is_alone and source < 0 and last[cell] == row and same[first[row] + offset] == cell:
                # The only write copies an input in place onto itself, and out of place to where nobody reads
                # yet: others may read the input meanwhile.
                writer[cell] = row
                continue
            link = chain[cell]
            while link >= 0:
                source = link_row[link]
                if source != row and noted[source] != row:
                    noted[source] = row
                    before[size], true[size] = source, False
                    size += 1
                link = link_next[link]
            writer[cell], chain[cell] = row, -1
        start[row + 1] = size
    kept = np.zeros(rows, dtype=np.bool_)
    for cell in range(len(same)):
        if wanted[cell] and writer[cell] >= 0:
            kept[writer[cell]] = True
    return start, before[:size], true[:size], kept
