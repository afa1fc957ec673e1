"""Whether the steps of a program fit its threadblocks and buffers, before anything runs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from probes.columns import Indices
from synth.cells import cells_of
from synth.program import BUFFERS, READS_SRC, RECEIVES, SENDS, WRITES_DST, Program

__all__ = ["shape"]


def shape(program: Program) -> list[str]:
    """Findings: peers that a step needs and lacks, two ends on one connection, slots out of range."""
    sizes = cells_of(program, in_place=False).size
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
    span = int(program.tb_channel.max(initial=0)) + 1
    for peer, verb in ((program.tb_send, "send to"), (program.tb_recv, "receive from")):
        key = (program.tb_rank.astype(np.int64) * (program.ranks + 1) + peer) * span + program.tb_channel
        rows = np.flatnonzero(peer >= 0)
        rows = rows[np.argsort(key[rows], kind="stable")]
        first = rows[np.searchsorted(key[rows], key[rows])] if len(rows) else rows
        found += [
            f"{program.tb_name(one)} and {program.tb_name(two)} both {verb} rank {peer[one]} "
            f"on channel {program.tb_channel[one]}"
            for one, two in zip(first.tolist(), rows.tolist(), strict=True)
            if one != two
        ]
    return found


def _slots(
    program: Program,
    sizes: Indices,
    uses: Sequence[bool],
    buffer: Indices,
    slot: Indices,
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
