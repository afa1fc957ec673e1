"""GC3-EF: what each rank executes (GC3 Sec. 4).

A program gives every rank threadblocks; a threadblock runs its steps in order, sends to at most one
peer and receives from at most one, on one channel. A step may wait for one step of another
threadblock of its rank; more dependencies are carried by ``nop`` steps before it. A connection
(rank, peer, channel) is a FIFO: the k-th message sent is the k-th received.

| op   | meaning                                  | op   | meaning                                  |
|------|------------------------------------------|------|------------------------------------------|
| s    | send src                                 | rrc  | dst := received + src                    |
| r    | dst := received                          | rrs  | forward received + src                   |
| cpy  | dst := src                               | rcs  | dst := received, forward it              |
| re   | dst := dst + src                         | rrcs | dst := received + src, forward it        |
| nop  | only wait                                |      |                                          |

In rrc, rrs and rrcs ``src`` is the local operand, where the runtime reads it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from probes.columns import Bytes, Ints
from synth.collective import Collective

__all__ = ["BUFFERS", "OPS", "Program"]

OPS = ("nop", "s", "r", "cpy", "re", "rrc", "rrs", "rcs", "rrcs")
BUFFERS = ("i", "o", "s")


@dataclass(frozen=True, eq=False)
class Program:
    """Threadblocks and steps as columns.

    Threadblock t belongs to rank ``tb_rank[t]`` (rows sorted by rank), talks to ``tb_send[t]`` and
    ``tb_recv[t]`` (-1: none) on ``tb_channel[t]``, and runs steps ``tb_start[t] … tb_start[t+1]``.
    Step columns: ``op`` indexes OPS; ``src_buffer``/``dst_buffer`` index BUFFERS and ``src_slot``/
    ``dst_slot`` count chunks in that buffer (-1 where unused); ``count`` is in chunks;
    ``wait_tb`` (the row number of a threadblock of the same rank, or -1) and ``wait_step`` (counted
    within that threadblock) name the step that must have finished first.
    The program is valid with separate input and output (``out_of_place``), with output and input
    sharing memory as the collective defines it (``in_place``), or both.
    """

    name: str
    collective: Collective
    protocol: Literal["Simple", "LL", "LL128"]
    scratch_chunks: tuple[int, ...]
    tb_rank: Ints
    tb_send: Ints
    tb_recv: Ints
    tb_channel: Ints
    tb_start: Ints
    op: Bytes
    src_buffer: Bytes
    src_slot: Ints
    dst_buffer: Bytes
    dst_slot: Ints
    count: Ints
    wait_tb: Ints
    wait_step: Ints
    out_of_place: bool = True
    in_place: bool = True

    @property
    def ranks(self) -> int:
        return self.collective.ranks

    @property
    def steps(self) -> int:
        return len(self.op)
