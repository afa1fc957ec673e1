"""The memory of FIFOs: one allocation a rank, laid out alike on all, so that ranks exchange bases only.

A rank's arena holds the places of the FIFOs it receives from, the count of what was put into each, and
for each FIFO it sends to the count of what was taken out (GC3 Sec. 4.3). Counts are a cache line apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from exec.cuda.kernel.encode import BLOCK, LINK, Encoded
from probes.base import Indices

__all__ = ["Arenas", "arenas"]

_LINE_BYTES = 128


@dataclass(frozen=True, eq=False)
class Arenas:
    """The bytes of each rank's arena, and the ends of each FIFO with their offsets in the arenas."""

    sizes: Indices
    sender: Indices
    receiver: Indices
    head: Indices
    credit: Indices
    slots: Indices

    def links(self, encoded: Encoded, bases: Sequence[int], blocks: range) -> Indices:
        """Return the kernel's table of addresses for these threadblocks.

        ``bases[rank]`` is where this process sees the arena of ``rank``; those of ranks that it does not
        talk to are not looked at.
        """
        base = np.array(bases, dtype=np.int64)
        table = np.zeros((len(blocks), len(LINK)), dtype=np.int64)
        out, into = encoded.fifos[blocks.start : blocks.stop].T
        rows = np.flatnonzero(out >= 0)
        fifo = out[rows]
        table[rows, LINK.index("out_slots")] = base[self.receiver[fifo]] + self.slots[fifo]
        table[rows, LINK.index("out_head")] = base[self.receiver[fifo]] + self.head[fifo]
        table[rows, LINK.index("out_credit")] = base[self.sender[fifo]] + self.credit[fifo]
        rows = np.flatnonzero(into >= 0)
        fifo = into[rows]
        table[rows, LINK.index("in_slots")] = base[self.receiver[fifo]] + self.slots[fifo]
        table[rows, LINK.index("in_head")] = base[self.receiver[fifo]] + self.head[fifo]
        table[rows, LINK.index("in_credit")] = base[self.sender[fifo]] + self.credit[fifo]
        return table


def arenas(encoded: Encoded, host_of: Sequence[int] = ()) -> Arenas:
    """Return the arenas of all ranks: counts first, then places; O(threadblocks).

    With ``host_of``, the host of each rank, FIFOs between hosts get no slots here: they are in pinned memory.
    """
    fifos = len(encoded.room)
    sender, receiver = (np.full(fifos, -1, dtype=np.int64) for _ in range(2))
    ranks, to, source = (encoded.blocks[:, BLOCK.index(name)] for name in ("rank", "to", "from"))
    out, into = encoded.fifos.T
    sender[out[out >= 0]], receiver[out[out >= 0]] = ranks[out >= 0], to[out >= 0]
    sender[into[into >= 0]], receiver[into[into >= 0]] = source[into >= 0], ranks[into >= 0]
    sizes = np.zeros(encoded.layout.program.ranks, dtype=np.int64)
    head = _placed(receiver, np.full(fifos, _LINE_BYTES), sizes)
    credit = _placed(sender, np.full(fifos, _LINE_BYTES), sizes)
    places = _whole_lines(encoded.room * encoded.place_bytes)
    if len(host_of):
        host = np.array(host_of)
        places = np.where(host[sender] == host[receiver], places, 0)
    slots = _placed(receiver, places, sizes)
    return Arenas(sizes, sender, receiver, head, credit, slots)


def _placed(owner: Indices, sizes: Indices, used: Indices) -> Indices:
    """Return an offset for each piece in its owner's arena; ``used`` grows by them."""
    offsets = np.zeros(len(owner), dtype=np.int64)
    for piece, (rank, size) in enumerate(zip(owner.tolist(), sizes.tolist(), strict=True)):
        offsets[piece] = used[rank]
        used[rank] += size
    return offsets


def _whole_lines(sizes: Indices) -> Indices:
    lines: Indices = -(-sizes // _LINE_BYTES) * _LINE_BYTES
    return lines
