"""A program as text: for each rank its threadblocks, and in each the steps in their order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ccctl import console
from ccctl.pictures.units import plural

if TYPE_CHECKING:
    from synth.program import Program

__all__ = ["draw"]


def draw(program: Program, lines: int = 32) -> None:
    """Print ``program``; at most ``lines`` steps."""
    blocks = len(program.tb_rank)
    channels = int(program.tb_channel.max(initial=-1)) + 1
    console.data(
        f"{program.name}: {program.collective.label} on {program.ranks} ranks, "
        f"{plural(program.collective.chunks, 'chunk')}, protocol {program.protocol}"
    )
    console.data(
        f"{plural(blocks, 'threadblock')}, {plural(channels, 'channel')}, {plural(program.steps, 'step')}, "
        f"at most {plural(max(program.scratch_chunks, default=0), 'scratch chunk')} a rank"
    )
    left = lines
    for block in range(blocks):
        if left <= 0:
            break
        left -= _block(program, block, left)
    if program.steps > lines:
        console.data(f"\n… and {program.steps - lines} more steps; --lines {program.steps} shows all")


def _block(program: Program, block: int, most: int) -> int:
    """Print one threadblock, at most ``most`` of its steps; how many were printed."""
    start, end = int(program.tb_start[block]), int(program.tb_start[block + 1])
    peers = [
        f"{verb} {peer}"
        for verb, peer in (("sends to", program.tb_send[block]), ("receives from", program.tb_recv[block]))
        if peer >= 0
    ]
    console.data(
        f"\nrank {program.tb_rank[block]}, threadblock {block}, channel {program.tb_channel[block]}: "
        f"{', '.join(peers) or 'local'}"
    )
    shown = range(start, min(end, start + most))
    console.table(
        ("step", "op", "from", "to", "chunks", "after"), [_step(program, row, row - start) for row in shown]
    )
    return len(shown)


def _step(program: Program, row: int, number: int) -> tuple[object, ...]:
    from synth.program import OPS

    waits = program.wait_tb[row] >= 0
    return (
        number,
        OPS[program.op[row]],
        _place(int(program.src_buffer[row]), int(program.src_slot[row])),
        _place(int(program.dst_buffer[row]), int(program.dst_slot[row])),
        program.count[row],
        f"step {program.wait_step[row]} of {program.wait_tb[row]}" if waits else "",
    )


def _place(buffer: int, slot: int) -> str:
    from synth.program import BUFFERS

    return f"{BUFFERS[buffer]}[{slot}]" if slot >= 0 else "-"
