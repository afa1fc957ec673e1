"""Well-formedness of programs: whether steps fit their threadblocks and buffers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from probes.base import Indices, offsets
from synth.check.slots import slots_of
from synth.program import BUFFERS, GLRE, READS_SRC, RECEIVES, SCRATCH, SENDS, WRITES_DST, Program

__all__ = ["shape", "unused_scratch"]


def shape(program: Program) -> list[str]:
    """Return findings: missing peers, two threadblocks on one end of a connection, slots out of range."""
    sizes = slots_of(program, in_place=False).size
    found = _peers(program) + _ends(program)
    found += _slots(program, sizes, READS_SRC, program.src_buffer, program.src_slot, "reads")
    found += _slots(program, sizes, WRITES_DST, program.dst_buffer, program.dst_slot, "writes")
    return found + _at_members(program, sizes)


def unused_scratch(program: Program) -> list[str]:
    """Return at most one caution: how much scratch no step touches. Assumes that steps fit buffers."""
    start = offsets(np.array(program.scratch_chunks, dtype=np.int64))
    # +1 where touched slots begin, -1 behind them: the running sum is above 0 in between.
    edges = np.zeros(start[-1] + 1, dtype=np.int64)
    for uses, buffer, slot in (
        (READS_SRC, program.src_buffer, program.src_slot),
        (WRITES_DST, program.dst_buffer, program.dst_slot),
    ):
        rows = np.flatnonzero(np.array(uses)[program.op] & (buffer == SCRATCH))
        low = start[program.tb_rank[program.tb_of[rows]]] + slot[rows]
        np.add.at(edges, low, 1)
        np.add.at(edges, low + program.count[rows], -1)
    idle = np.cumsum(edges)[:-1] == 0
    if not idle.any():
        return []
    rank = np.searchsorted(start, np.flatnonzero(idle), side="right") - 1
    slot = np.flatnonzero(idle)[0] - start[rank[0]]
    return [
        f"no step touches {idle.sum()} of {start[-1]} scratch slots, on {len(np.unique(rank))} of "
        f"{program.ranks} ranks: s[{slot}] of rank {rank[0]} is the first"
    ]


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
    """Return findings on connections with two senders or receivers, whose order would be undefined."""
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


def _at_members(program: Program, sizes: Indices) -> list[str]:
    """Return findings on steps of a group with one rank, or of which a member lacks the slots."""
    found = []
    for step in program.in_group.tolist():
        rank = int(program.tb_rank[program.tb_of[step]])
        others = [member for member in program.members(rank).tolist() if member != rank]
        if not others:
            found.append(f"{program.place(step)}: there is no other rank in the group of rank {rank}")
        reads = program.op[step] == GLRE
        buffer = int((program.src_buffer if reads else program.dst_buffer)[step])
        slot = int((program.src_slot if reads else program.dst_slot)[step])
        end = slot + int(program.count[step])
        found += [
            f"{program.place(step)} {'reads' if reads else 'writes'} {BUFFERS[buffer]}[{slot}:{end}] of rank "
            f"{member}, where that buffer has {sizes[member, buffer]} slots"
            for member in others
            if end > sizes[member, buffer]
        ]
    return found
