"""The memory of FIFOs: one allocation (arena) for each rank.

All ranks compute the layout of every arena, so they exchange only base addresses. A FIFO's slots and its
count of messages put in are in the receiver's arena; its count of messages taken out is in the sender's arena
(GC3 Sec. 4.3). Each count has a cache line of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from exec.cuda.kernel.encode import BLOCK, LINK, Encoded
from probes.base import Indices

__all__ = ["LINE_BYTES", "Arenas", "arenas"]

# NVIDIA's GPUs have cache lines of 128 bytes.
LINE_BYTES = 128


@dataclass(frozen=True, eq=False)
class Arenas:
    """The size of each rank's arena, and the two ranks of each FIFO with its offsets in their arenas.

    ``slots`` and ``head`` (the count of messages put in) are in the receiver's arena, ``credit`` (the count
    of messages taken out) in the sender's.
    """

    sizes: Indices
    sender: Indices
    receiver: Indices
    head: Indices
    credit: Indices
    slots: Indices

    def links(self, encoded: Encoded, bases: Sequence[int], blocks: range) -> Indices:
        """Return the kernel's table of addresses for these threadblocks.

        ``bases[rank]`` is the address of that rank's arena in this process. Only the addresses of this rank
        and its peers are used.
        """
        base = np.array(bases, dtype=np.int64)
        table = np.zeros((len(blocks), len(LINK)), dtype=np.int64)
        out, into = encoded.fifos[blocks.start : blocks.stop].T
        for direction, fifos in (("out", out), ("in", into)):
            rows = np.flatnonzero(fifos >= 0)
            fifo = fifos[rows]
            table[rows, LINK.index(f"{direction}_slots")] = base[self.receiver[fifo]] + self.slots[fifo]
            table[rows, LINK.index(f"{direction}_head")] = base[self.receiver[fifo]] + self.head[fifo]
            table[rows, LINK.index(f"{direction}_credit")] = base[self.sender[fifo]] + self.credit[fifo]
        return table


def arenas(encoded: Encoded, host_of: Sequence[int] = ()) -> Arenas:
    """Return the arenas of all ranks: counts first, then slots; O(threadblocks).

    ``host_of`` is the host of each rank. If it is given, FIFOs between hosts have their slots in pinned
    memory, not here.
    """
    fifos = len(encoded.room)
    sender, receiver = (np.full(fifos, -1, dtype=np.int64) for _ in range(2))
    ranks, to, source = (encoded.blocks[:, BLOCK.index(name)] for name in ("rank", "to", "from"))
    out, into = encoded.fifos.T
    sender[out[out >= 0]], receiver[out[out >= 0]] = ranks[out >= 0], to[out >= 0]
    sender[into[into >= 0]], receiver[into[into >= 0]] = source[into >= 0], ranks[into >= 0]
    sizes = np.zeros(encoded.layout.program.ranks, dtype=np.int64)
    head = _place(receiver, np.full(fifos, LINE_BYTES), sizes)
    credit = _place(sender, np.full(fifos, LINE_BYTES), sizes)
    places = _whole_lines(encoded.room * encoded.place_bytes)
    if len(host_of):
        host = np.array(host_of)
        places = np.where(host[sender] == host[receiver], places, 0)
    slots = _place(receiver, places, sizes)
    return Arenas(sizes, sender, receiver, head, credit, slots)


def _place(owner: Indices, sizes: Indices, used: Indices) -> Indices:
    """Return an offset in its owner's arena for each piece, and add the pieces' sizes to ``used``."""
    offsets = np.zeros(len(owner), dtype=np.int64)
    for piece, (rank, size) in enumerate(zip(owner.tolist(), sizes.tolist(), strict=True)):
        offsets[piece] = used[rank]
        used[rank] += size
    return offsets


def _whole_lines(sizes: Indices) -> Indices:
    lines: Indices = -(-sizes // LINE_BYTES) * LINE_BYTES
    return lines
