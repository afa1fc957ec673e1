"""The interpreter of one rank: its threadblocks in turn, tile by tile, in one compiled call (GC3 Sec. 4.4).

A connection is two counters, messages written and messages read, and slots between them. On one host both
ends count in shared memory; over a wire ``exec.mpi.wires`` stands for the other end. A threadblock that
cannot go on lets the next one run; a rank that cannot go on lets others have its core.
"""

from __future__ import annotations

from exec.mpi.intrinsics import copy_bytes, load, pointer, sleep_us, store, yield_core
from exec.mpi.reduce import combine
from exec.program.dtypes import Array
from probes.columns import Indices
from synth.kernels.compiled import compiled
from synth.program import OPS

__all__ = [
    "BLOCK_COLUMNS",
    "DONE",
    "HEADER",
    "LINK_COLUMNS",
    "OPTIONAL",
    "PIECE_COLUMNS",
    "STEP_COLUMNS",
    "advance",
    "let_join",
]

BLOCKED, MOVED, DONE = range(3)
# What the columns of the tables mean; all memory is given as addresses. JOINS is where it says whether what
# is optional is there, JOINED where a word for each piece and tile notes that it was added.
HEADER = ("RUN", "TILES", "TILE", "ITEM_BYTES", "REDOP", "SPINS", "WIRED", "JOINS", "JOINED")
BLOCK_COLUMNS = ("FIRST", "END", "AT_TILE", "AT_STEP")
STEP_COLUMNS = (
    "OP",
    "FUSED",
    "GOAL_BLOCK",
    "GOAL_STEP",
    "IN",
    "IN_NUMBER",
    "IN_SLOT",
    "OUT",
    "OUT_NUMBER",
    "OUT_SLOT",
    "PIECE_FIRST",
    "PIECE_END",
    "WAIT_FIRST",
    "WAIT_END",
)
PIECE_COLUMNS = ("SRC", "DST", "FAR", "AT", "LENGTH")
LINK_COLUMNS = ("WRITTEN", "READ", "SLOTS", "SLOT_BYTES", "DEPTH", "PER_TILE", "SETTLE")
RUN, TILES, TILE, ITEM_BYTES, REDOP, SPINS, WIRED, JOINS, JOINED = range(len(HEADER))
FIRST, END, AT_TILE, AT_STEP = range(len(BLOCK_COLUMNS))
(
    OP,
    FUSED,
    GOAL_BLOCK,
    GOAL_STEP,
    IN,
    IN_NUMBER,
    IN_SLOT,
    OUT,
    OUT_NUMBER,
    OUT_SLOT,
    PIECE_FIRST,
    PIECE_END,
    WAIT_FIRST,
    WAIT_END,
) = range(len(STEP_COLUMNS))
SRC, DST, FAR, AT, LENGTH = range(len(PIECE_COLUMNS))
WRITTEN, READ, SLOTS, SLOT_BYTES, DEPTH, PER_TILE, SETTLE = range(len(LINK_COLUMNS))
NOP, S, R, CPY, RE, RRC, RRS, RCS, RRCS = range(len(OPS))
# Added to RRC, RRS and RRCS where the local operand is optional: without it they are R, a send and RCS.
OPTIONAL = len(OPS)
# After SPINS polls in vain a rank gives its core away at every poll, then for longer, then it returns.
_YIELDS, _SLEEPS, _SLEEP_US = 4000, 100, 50
# What two operands and a result take of the innermost cache.
_BLOCK_BYTES = 8192


@compiled
def advance(
    header: Indices,
    blocks: Indices,
    steps: Indices,
    pieces: Indices,
    waits: Indices,
    links: Indices,
    sample: Array,
) -> int:
    """Run what can run. DONE; BLOCKED when nothing could for a while; MOVED when wires must be served."""
    idle = 0
    while True:
        moved, left = False, False
        for block in range(len(blocks)):
            while blocks[block, AT_TILE] < header[TILES]:
                step = blocks[block, AT_STEP]
                if not _ready(header, blocks, steps, waits, links, block, step):
                    left = True
                    break
                _execute(header, steps, pieces, links, blocks[block, AT_TILE], step, sample)
                moved = True
                blocks[block, AT_STEP] += steps[step, FUSED]
                if blocks[block, AT_STEP] >= blocks[block, END]:
                    blocks[block, AT_STEP] = blocks[block, FIRST]
                    blocks[block, AT_TILE] += 1
        if not left and _settled(header, links):
            return DONE
        if header[WIRED]:
            return MOVED if moved else BLOCKED
        idle = 0 if moved else idle + 1
        if idle > header[SPINS]:
            yield_core()
            if idle > header[SPINS] + _YIELDS:
                sleep_us(_SLEEP_US)
            if idle > header[SPINS] + _YIELDS + _SLEEPS:
                return BLOCKED


@compiled
def _ready(
    header: Indices,
    blocks: Indices,
    steps: Indices,
    waits: Indices,
    links: Indices,
    block: int,
    step: int,
) -> bool:
    tile = blocks[block, AT_TILE]
    for fused in range(step, step + steps[step, FUSED]):
        goal = steps[fused, GOAL_BLOCK]
        if goal >= 0:
            there = blocks[goal, AT_TILE]
            if there < tile or (there == tile and blocks[goal, AT_STEP] <= steps[fused, GOAL_STEP]):
                return False
    link = steps[step, IN]
    if link >= 0:
        number = _number(header, links, link, tile, steps[step, IN_NUMBER])
        if load(links[link, WRITTEN]) <= number:
            return False
    link = steps[step, OUT]
    if link >= 0 and steps[step, OUT_SLOT]:
        number = _number(header, links, link, tile, steps[step, OUT_NUMBER])
        # The first messages of a run wait until the last run's are read: they share the slots.
        before = number - header[RUN] * header[TILES] * links[link, PER_TILE]
        behind = min(before, links[link, DEPTH] - 1)
        if load(links[link, READ]) < number - behind:
            return False
    for row in range(steps[step, WAIT_FIRST], steps[step + steps[step, FUSED] - 1, WAIT_END]):
        link = waits[row, 0]
        if load(links[link, READ]) <= _number(header, links, link, tile, waits[row, 1]):
            return False
    return True


@compiled
def _number(header: Indices, links: Indices, link: int, tile: int, number: int) -> int:
    """How many messages of the link came before this one, in all runs."""
    before: int = (header[RUN] * header[TILES] + tile) * links[link, PER_TILE] + number
    return before


@compiled
def _settled(header: Indices, links: Indices) -> bool:
    """Whether all that others read in our buffers has been read."""
    for link in range(len(links)):
        if links[link, SETTLE]:
            whole = (header[RUN] + 1) * header[TILES] * links[link, PER_TILE]
            if load(links[link, READ]) < whole:
                return False
    return True


@compiled
def _slot(header: Indices, links: Indices, link: int, tile: int, number: int) -> int:
    at = (tile * links[link, PER_TILE] + number) % links[link, DEPTH]
    address: int = links[link, SLOTS] + at * links[link, SLOT_BYTES]
    return address


@compiled
def _execute(
    header: Indices, steps: Indices, pieces: Indices, links: Indices, tile: int, step: int, sample: Array
) -> None:
    into, out = steps[step, IN], steps[step, OUT]
    received, sent = 0, 0
    if into >= 0 and steps[step, IN_SLOT]:
        received = _slot(header, links, into, tile, steps[step, IN_NUMBER])
    if out >= 0 and steps[step, OUT_SLOT]:
        sent = _slot(header, links, out, tile, steps[step, OUT_NUMBER])
    ahead = tile * header[TILE]
    for piece in range(steps[step, PIECE_FIRST], steps[step, PIECE_END]):
        count = min(header[TILE], pieces[piece, LENGTH] - ahead)
        if count > 0:
            offset = ahead * header[ITEM_BYTES]
            arrived = received + pieces[piece, AT] if received else pieces[piece, FAR] + offset
            leaving = sent + pieces[piece, AT] if sent else 0
            _move(header, steps, pieces, step, piece, offset, count, arrived, leaving, sample)
    if into >= 0:
        store(links[into, READ], _number(header, links, into, tile, steps[step, IN_NUMBER]) + 1)
    if out >= 0:
        store(links[out, WRITTEN], _number(header, links, out, tile, steps[step, OUT_NUMBER]) + 1)


@compiled
def _move(
    header: Indices,
    steps: Indices,
    pieces: Indices,
    step: int,
    piece: int,
    offset: int,
    count: int,
    arrived: int,
    leaving: int,
    sample: Array,
) -> None:
    """One piece of one tile; ``leaving`` is 0 where the message is read from where it lies."""
    op, item_bytes = steps[step, OP], header[ITEM_BYTES]
    src, dst = pieces[piece, SRC] + offset, pieces[piece, DST] + offset
    if op == S:
        if leaving:
            _copy(leaving, src, count * item_bytes)
    elif op == CPY:
        _copy(dst, src, count * item_bytes)
    elif op == R:
        _copy(dst, arrived, count * item_bytes)
    elif op == RRS:
        combine(header[REDOP], leaving, arrived, src, count, sample)
    elif op in (RE, RCS, RRC, RRCS):
        stride = steps[step, PIECE_END] - steps[step, PIECE_FIRST]
        block = _BLOCK_BYTES // item_bytes
        for first in range(0, count, block):
            size, at = min(block, count - first), first * item_bytes
            if op == RE:
                for other in range(steps[step, FUSED]):
                    operand = pieces[piece + other * stride, SRC] + offset + at
                    combine(header[REDOP], dst + at, dst + at, operand, size, sample)
            elif op == RCS:
                _copy(dst + at, arrived + at, size * item_bytes)
            else:
                combine(header[REDOP], dst + at, arrived + at, src + at, size, sample)
            if leaving:
                _copy(leaving + at, dst + at, size * item_bytes)
    elif op > OPTIONAL:
        _add_if_there(header, op - OPTIONAL, piece, offset, count, (src, dst, arrived, leaving), sample)


@compiled
def _add_if_there(
    header: Indices,
    op: int,
    piece: int,
    offset: int,
    count: int,
    addresses: tuple[int, int, int, int],
    sample: Array,
) -> None:
    """Pass one piece of one tile on, with the local operand where that is there by now."""
    src, dst, arrived, leaving = addresses
    size_bytes = count * header[ITEM_BYTES]
    to = leaving if op == RRS else dst
    if load(header[JOINS]):
        tile = offset // (header[TILE] * header[ITEM_BYTES])
        store(header[JOINED] + 8 * (piece * header[TILES] + tile), 1)
        combine(header[REDOP], to, arrived, src, count, sample)
    else:
        _copy(to, arrived, size_bytes)
    if leaving and to != leaving:
        _copy(leaving, to, size_bytes)


@compiled
def let_join(header: Indices) -> None:
    """From now on what is optional is added; it has to be there before."""
    store(header[JOINS], 1)


@compiled
def _copy(to: int, source: int, size_bytes: int) -> None:
    if to != source:
        copy_bytes(pointer(to), pointer(source), size_bytes)
