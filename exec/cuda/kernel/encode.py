"""A program as flat tables of integers, which the interpreter kernel reads (GC3 Sec. 4.1, 4.3).

A step of several chunks becomes one row for each chunk, so each message is one chunk, cut into tiles. A FIFO
has room for ``depth`` of its largest messages, so the tables deadlock only if the program does. Consecutive
local reductions into one place become one row with several sources.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from exec.cuda.kernel.rows import BY_SWITCH, DOES, STEP, Rows
from exec.program import Layout, moves
from probes.base import DataError, Indices, UsageError
from synth.program import FIFO_DEPTH, Program
from synth.simulation import links_of

__all__ = [
    "BLOCK",
    "LINK",
    "LL128_MOST_BYTES",
    "LL_MOST_BYTES",
    "PACK_BYTES",
    "RECORD",
    "SHORT_TILE_BYTES",
    "SLICE_BYTES",
    "SPARE_SLOTS",
    "TILE_BYTES",
    "Encoded",
    "WireProtocol",
    "encoded",
    "tile_bytes_for",
    "wire_protocol_of",
]

# A receiver detects a message by a count of messages (Simple), by a flag in each line of 16 bytes (LL), or by
# a flag in each line of 128 bytes (LL128).
WireProtocol = Literal["Simple", "LL", "LL128"]
# Columns of the tables; exec.cuda.kernel.source turns them into enumerations of the kernel.
BLOCK = (
    "rank",
    "number",
    "first",
    "steps",
    "sends",
    "receives",
    "to",
    "from",
    "channel",
    "room_out",
    "room_in",
    "credit_every",
    "buffers",
)
LINK = ("out_slots", "out_head", "out_credit", "in_slots", "in_head", "in_credit")
RECORD = ("state", "reason", "rank", "number", "origin", "peer", "channel", "tile", "slice", "seen", "wanted")
# The bytes of long and of short tiles. GC3 (Sec. 4.3) cuts chunks of more than 4 MB into tiles. Long tiles
# keep a few threadblocks busy; short ones keep the slots of many threadblocks in the L2 cache. On an H100, an
# all_reduce of 64 MiB on 8 ranks takes 5.8 ms with 8 threadblocks and tiles of 512 KiB (64 KiB: 8.8 ms). With
# 128 threadblocks and tiles of 64 KiB it takes 0.81 ms (512 KiB: 1.04 ms).
TILE_BYTES, SHORT_TILE_BYTES = 512 << 10, 64 << 10
# Each tile travels in up to _MOST_SLICES slices, so that the next hop starts before the whole tile has
# arrived.
SLICE_BYTES = 64 << 10
_MOST_SLICES = 4
# The most slots that the kernel's FIFOs get beyond those that the program needs. With 16 slots a receiver
# publishes once in eight short messages how many it has taken out, and a sender reads it as seldom.
SPARE_SLOTS = 14
# The kernel moves 16 bytes at once; its tiles and slices end at multiples of them.
PACK_BYTES = 16
# Switches sum and copy at least this many bytes.
WORD_BYTES = 4
# LL128 is fastest for messages between these sizes, LL for shorter and Simple for longer ones. TO BE MEASURED
# over NVLink: the sizes follow from the latency and the rate of a threadblock in NCCL's tuning model
# (synth.simulation.protocols). LL takes 1.3 us less than LL128 and 50 ps a byte more, Simple 1.5 us more and
# 8.3 ps a byte less. Within one H200 LL is faster than Simple up to 4 KiB and up to 17 % slower from 8 to
# 32 KiB; LL128 is slower than both at all sizes.
LL_MOST_BYTES, LL128_MOST_BYTES = 26_000, 180_000


@dataclass(frozen=True, eq=False)
class Encoded:
    """The tables of all ranks: rows of ``steps`` in order of threadblocks, of ``blocks`` in order of ranks.

    ``more`` holds (buffer, first element) of the further sources of fused reductions. A tile has ``tile``
    elements, a chunk at most ``tiles`` tiles, and a tile travels in ``slices`` slices. ``fifos`` holds the
    FIFO that each threadblock sends to and the FIFO that it receives from (-1: none). ``room`` is the number
    of slots of each FIFO; a slot has ``place_bytes``. A receiver publishes after each ``credit_every``-th
    message that slots are free.
    """

    layout: Layout
    itemsize: int
    tile: int
    tiles: int
    slices: int
    steps: Indices
    blocks: Indices
    more: Indices
    fifos: Indices
    room: Indices
    wire_protocol: WireProtocol = "Simple"

    @property
    def place_bytes(self) -> int:
        """The bytes of a FIFO's slot."""
        return _slot_bytes(self.tile * self.itemsize, self.wire_protocol)

    @property
    def moved_bytes(self) -> int:
        """Bytes that all steps of all ranks read and write in one run, in buffers and FIFOs."""
        does, more, length = (self.steps[:, STEP.index(name)] for name in ("does", "more_count", "length"))
        operands = sum((does & bit != 0).astype(np.int64) for bit in DOES.values()) + more
        return int((operands * length).sum()) * self.itemsize

    def blocks_of(self, rank: int) -> range:
        first, last = np.searchsorted(self.blocks[:, BLOCK.index("rank")], [rank, rank + 1])
        return range(int(first), int(last))


def wire_protocol_of(program: Program, *, message_bytes: int = 0, whole_lines: bool = False) -> WireProtocol:
    """Return the kernel's protocol for a program: usually its own, for LL128 the fastest that can run.

    ``whole_lines`` says whether lines of 128 bytes arrive whole between all ranks, as they do within a GPU
    and over NVLink. If not, a program that asks for LL128 uses Simple. Otherwise it uses LL for short
    messages, LL128 for longer ones, and Simple for the longest.
    """
    if program.protocol != "LL128":
        return program.protocol
    if not whole_lines or message_bytes > LL128_MOST_BYTES:
        return "Simple"
    return "LL128" if message_bytes > LL_MOST_BYTES else "LL"


def tile_bytes_for(threadblocks: int, cache_bytes: int, wire_protocol: WireProtocol) -> int:
    """Return the bytes of a tile for a GPU that runs ``threadblocks`` and has ``cache_bytes`` of L2 cache."""
    slots_bytes = threadblocks * FIFO_DEPTH * _slot_bytes(TILE_BYTES, wire_protocol)
    return TILE_BYTES if slots_bytes <= cache_bytes else SHORT_TILE_BYTES


def _slot_bytes(data_bytes: int, wire_protocol: WireProtocol) -> int:
    """Return the bytes that hold ``data_bytes``: LL puts 8 of data into 16, LL128 puts 120 into 128."""
    data, line = {"Simple": (1, 1), "LL": (8, 16), "LL128": (120, 128)}[wire_protocol]
    return -(-data_bytes // data) * line


def encoded(
    layout: Layout,
    itemsize: int,
    *,
    tile_bytes: int = TILE_BYTES,
    slice_bytes: int = SLICE_BYTES,
    depth: int = FIFO_DEPTH,
    spare_slots: int = 0,
    wire_protocol: WireProtocol = "Simple",
) -> Encoded:
    """Return the tables of ``layout``'s program; O(chunks moved). In LL and LL128 a message is one slice.

    FIFOs of messages of one slice get up to ``spare_slots`` more slots, but no more memory than slots of
    whole tiles would take.

    Raises DataError if the program deadlocks with ``depth`` messages in each FIFO, or if two threadblocks of
    a rank share one end of a connection; UsageError if a switch would sum or copy a part of a word.
    """
    program = layout.program
    links = links_of(program)
    _refuse_shared_ends(program, links.send, links.recv)
    rows = Rows(layout)
    rows.fill(moves(layout, depth))
    steps = rows.table()
    _refuse_parts_of_words(layout, steps, itemsize)
    tile = _tile(layout.largest, itemsize, tile_bytes)
    longest = min(tile, layout.largest) * itemsize
    slices = 1 if wire_protocol != "Simple" else max(1, min(_MOST_SLICES, longest // slice_bytes))
    needed = np.ones(links.fifos, dtype=np.int64)
    for fifo, chunks in rows.largest_message.items():
        needed[fifo] = depth * chunks
    fitting = max(0, depth * (tile_bytes // (tile * itemsize) - 1)) if slices == 1 else 0
    room = needed + min(spare_slots, fitting)
    fifos = np.stack([links.send, links.recv], axis=1)
    return Encoded(
        layout=layout,
        itemsize=itemsize,
        tile=tile,
        tiles=-(-layout.largest // tile),
        slices=slices,
        steps=steps,
        blocks=_blocks(program, rows, fifos, room, needed),
        more=np.array(rows.more, dtype=np.int64).reshape(-1, 2),
        fifos=fifos,
        room=room,
        wire_protocol=wire_protocol,
    )


def _tile(largest: int, itemsize: int, tile_bytes: int) -> int:
    """Return the elements of a tile: a multiple of 16 bytes, and no more than the largest chunk needs."""
    pack = PACK_BYTES // itemsize
    wanted = min(max(tile_bytes // itemsize, pack), max(largest, 1))
    return -(-wanted // pack) * pack


def _refuse_shared_ends(program: Program, *ends: Indices) -> None:
    for fifos in ends:
        used = fifos[fifos >= 0]
        counts = np.bincount(used, minlength=1)
        if (counts > 1).any():
            shared = np.flatnonzero(fifos == int(np.argmax(counts)))[:2].tolist()
            problem = f"{' and '.join(map(program.tb_name, shared))} share one end of a connection"
            raise DataError(f"program {program.name}", [problem])


def _refuse_parts_of_words(layout: Layout, steps: Indices, itemsize: int) -> None:
    """Raise UsageError for a row that a switch carries out and whose elements do not fill words."""
    by_switch = steps[:, STEP.index("does")] & sum(BY_SWITCH.values()) != 0
    ends = steps[by_switch][:, [STEP.index(name) for name in ("src_start", "dst_start", "length")]] * itemsize
    if (ends % WORD_BYTES).any():
        raise UsageError(
            f"switches sum and copy words of {WORD_BYTES} bytes, and chunks of {layout.program.name} end "
            f"within one at {layout.count} elements",
            hint=f"Choose a size of which each of {layout.program.collective.share} chunks is whole words.",
        )


def _blocks(program: Program, rows: Rows, fifos: Indices, room: Indices, needed: Indices) -> Indices:
    table = np.zeros((program.threadblocks, len(BLOCK)), dtype=np.int64)
    # The program keeps as many slots as it needs, even if all that are free are not yet published.
    every = np.maximum(1, np.minimum(room // 2, room - needed + 1))
    first = np.searchsorted(program.tb_rank, program.tb_rank)
    columns: dict[str, Any] = {
        "rank": program.tb_rank,
        "buffers": program.tb_rank,
        "number": np.arange(program.threadblocks) - first,
        "first": rows.first,
        "steps": np.diff([*rows.first, len(rows.steps)]),
        "sends": rows.sends,
        "receives": rows.receives,
        "to": program.tb_send,
        "from": program.tb_recv,
        "channel": program.tb_channel,
        "room_out": np.where(fifos[:, 0] >= 0, np.append(room, 0)[fifos[:, 0]], 0),
        "credit_every": np.where(fifos[:, 1] >= 0, np.append(every, 1)[fifos[:, 1]], 1),
        "room_in": np.where(fifos[:, 1] >= 0, np.append(room, 0)[fifos[:, 1]], 0),
    }
    for name, column in columns.items():
        table[:, BLOCK.index(name)] = column
    return table
