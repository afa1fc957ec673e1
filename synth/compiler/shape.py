"""Whether the steps of a program fit its threadblocks and buffers, before anything runs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from synth.program import BUFFERS, READS_SRC, RECEIVES, SENDS, WRITES_DST, Program
from synth.slots import Memory

__all__ = ["shape"]


def shape(program: Program) -> list[str]:
    """Findings: peers that a step needs and lacks, two ends on one connection, slots out of range."""
    sizes = np.array(Memory(program, in_place=False).size, dtype=np.int64)
    found = _peers(program) + _ends(program)
    found += _slots(program, sizes, READS_SRC, program.src_buffer, program.src_slot, "reads")
    return found + _slots(program, sizes, WRITES_DST, program.dst_buffer, program.dst_slot, "writes")


def _peers(program: Program) -> list[str]:
    found = [
        f"{program.tb_name(int(tb))} has its own rank as a peer"
        for tb in np.flatnonzero((program.tb_send == program.tb_rank) | (program.tb_recv == program.tb_rank))
    ]
    for needs, peer, verb in ((SENDS, program.tb_send, "sends"), (RECEIVES, program.tb_recv, "receives")):
        lacking = np.array(needs)[program.op] & (peer[program.tb_of] < 0)
        found += [
            f"{program.place(int(step))} {verb}, but its threadblock has no peer for that"
            for step in np.flatnonzero(lacking)
        ]
    return found


def _ends(program: Program) -> list[str]:
    """A connection has one sending and one receiving threadblock; more would share it in any order."""
    found = []
    for peer, verb in ((program.tb_send, "send to"), (program.tb_recv, "receive from")):
        seen: dict[tuple[int, int, int], int] = {}
        columns = (program.tb_rank.tolist(), peer.tolist(), program.tb_channel.tolist())
        for tb, key in enumerate(zip(*columns, strict=True)):
            first = seen.setdefault(key, tb)
            if key[1] >= 0 and first != tb:
                found.append(
                    f"{program.tb_name(first)} and {program.tb_name(tb)} both {verb} rank {key[1]} "
                    f"on channel {key[2]}"
                )
    return found


def _slots(
    program: Program,
    sizes: NDArray[np.int64],
    uses: Sequence[bool],
    buffer: NDArray[np.uint8],
    slot: NDArray[np.int32],
    verb: str,
) -> list[str]:
    size = sizes[program.tb_rank[program.tb_of], buffer]
    end = slot.astype(np.int64) + program.count
    outside = np.array(uses)[program.op] & ((slot < 0) | (end > size))
    return [
        f"{program.place(step)} {verb} {BUFFERS[buffer[step]]}[{slot[step]}:{end[step]}], "
        f"but that buffer has {size[step]} slots"
        for step in np.flatnonzero(outside).tolist()
    ]
