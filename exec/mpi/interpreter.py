"""The interpreter of one rank: its threadblocks in turn, tile by tile, in one compiled call (GC3 Sec. 4.4).

A connection consists of two counters, messages written and messages read, and of slots for messages. Within a
host both ends are in shared memory. There a slot holds a flag behind the data: the message's number, counted
over all runs. As in NCCL's LL and LL128, data and flag of a short message are one cache line, which moves
from core to core once. Messages that are read in place have no slot, so the counter of messages written
announces them. The same counter announces messages over wires, where the other end is the transport, for
instance ``exec.mpi.wires``. A threadblock that cannot go on yields to the next one; a rank that cannot go on
yields its core.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import numpy as np
from numba import carray  # type: ignore[attr-defined] # numba has it, and does not list it

from exec.intrinsics import (
    copy_bytes,
    load,
    pointer,
    read_clock,
    read_process,
    sleep_us,
    store,
    yield_core,
)
from exec.mpi.reduce import call_combine, combine_address
from exec.program import CHECKSUM_FACTOR, dtype_of
from exec.sockets import FAILED, NOTHING, serve_ends
from probes.base import Indices
from synth.kernels import compiled_always, machine_code
from synth.prediction import BOUNCE_BYTES
from synth.program import GC3_OPS

__all__ = [
    "DONE",
    "HEADER_WORDS",
    "LINK_WORDS",
    "LOG_WORDS",
    "LOST",
    "OPTIONAL",
    "PIECE_WORDS",
    "STEP_WORDS",
    "advance",
    "compile_for",
    "let_join",
    "runner",
]

BLOCKED, MOVED, DONE, LOST = range(4)
# The numbers of words of the header and of a row of each table; the words are named below. All memory is
# given by address.
HEADER_WORDS, BLOCK_WORDS, STEP_WORDS, PIECE_WORDS, LINK_WORDS = 28, 4, 14, 7, 9
# A row of the log: step, tile, the nanoseconds at which the step began and ended, and those without a core
# before it and during it.
LOG_WORDS = 6
# COMBINE: the address of the loop that combines elements (`exec.mpi.reduce`). JOINS: a word that is 1 once
# the optional input is there. JOINED: a word for each piece and tile, 1 if the optional input was added. LOG:
# the table of the log, 0 if nothing is logged; LOGGED: its number of rows. SUMS: two words for each step, the
# checksums of what it received and of its result; 0 if none are kept. CLOCK: four words for reading clocks.
# BOUNCE: a block of memory for operands copied from other processes; VECTORS: the four words of the two iovec
# that such a copy takes. ONE_PASS: 1 if `advance` returns after each pass, because its caller has other work.
# TCP_ENDS: the address of the wires that `advance` serves after each pass; 0 if the caller serves all wires.
# LONELY: 1 if all connections of this rank are wires, so that it can sleep until one is ready. Then address
# and rows of the five tables.
(
    RUN,
    TILES,
    TILE,
    ITEM_BYTES,
    REDOP,
    COMBINE,
    SPINS,
    ONE_PASS,
    JOINS,
    JOINED,
    LOG,
    LOGGED,
    SUMS,
    CLOCK,
    BOUNCE,
    VECTORS,
    TCP_ENDS,
    LONELY,
    BLOCKS_AT,
    BLOCKS,
    STEPS_AT,
    STEPS,
    PIECES_AT,
    PIECES,
    WAITS_AT,
    WAITS,
    LINKS_AT,
    LINKS,
) = range(HEADER_WORDS)
FIRST, END, AT_TILE, AT_STEP = range(BLOCK_WORDS)
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
) = range(STEP_WORDS)
# If PID is not 0, the operand is in the memory of process PID. BASE is the address of a word that holds a
# base address there, and FAR is the offset from that base.
SRC, DST, FAR, AT, LENGTH, PID, BASE = range(PIECE_WORDS)
# FLAG: the offset of the flag in a slot, 0 on wires. SEEN: the reader's counter as its writer last read it.
# SETTLE: 1 if a run ends only once all messages of the link have been read.
WRITTEN, READ, SLOTS, SLOT_BYTES, DEPTH, PER_TILE, SETTLE, FLAG, SEEN = range(LINK_WORDS)
NOP, S, R, CPY, RE, RRC, RRS, RCS, RRCS = range(len(GC3_OPS))
# OPTIONAL is added to the operation RRC, RRS or RRCS of a step whose local operand is optional. Without the
# operand these act as R, FORWARD (receive and send on) and RCS.
OPTIONAL = len(GC3_OPS)
FORWARD = 2 * OPTIONAL
# A rank that waits polls SPINS times, then yields its core at each of _YIELDS polls, then sleeps _SLEEP_US at
# each of _SLEEPS polls, then returns. Where other processes want the core each yield takes milliseconds, so
# at every _LOOK_AT_CLOCK-th poll it returns if _PATIENCE_NS have passed. A rank that serves wires also
# returns after that time, so that its caller can check the others.
_YIELDS, _SLEEPS, _SLEEP_US, _LOOK_AT_CLOCK, _PATIENCE_NS = 4000, 100, 50, 16, 20_000_000
# The longest sleep until a wire is ready.
_WAIT_MS = _PATIENCE_NS // 1_000_000
# Operand bytes of one block of a reduction: two operands and a result fit into a first-level cache of 32 KiB.
_BLOCK_BYTES = 8192
# Clock ids of Linux: CLOCK_MONOTONIC, and CLOCK_THREAD_CPUTIME_ID, the time that this thread had a core.
# Reading the second clock is a system call of half a microsecond, so it is read at most every _SELDOM_NS. A
# thread that loses its core gets it back only after more time than that.
_MONOTONIC, _THREAD_CPU, _SELDOM_NS = 1, 3, 20_000
# Words at CLOCK: words 0 and 1 receive a clock's value. Word _READ_AT is the time at which the thread's clock
# was last read, and word _READ the value read.
_READ_AT, _READ = 2, 3


def compile_for(dtypes: Iterable[str]) -> None:
    """Compile the interpreter for elements of these types, or load it from the cache."""
    rows = BLOCK_WORDS, STEP_WORDS, PIECE_WORDS, LINK_WORDS
    blocks, steps, pieces, links = [np.zeros((0, words), np.int64) for words in rows]
    waits, there = np.zeros((0, 2), np.int64), np.zeros(1, np.int64)
    header = np.zeros(HEADER_WORDS, np.int64)
    header[JOINS] = there.ctypes.data
    for name in dtypes:
        combine_address(dtype_of(name))
    advance(header, blocks, steps, pieces, waits, links)
    runner(header, (blocks, steps, pieces, waits, links))
    let_join(header)


@compiled_always
def advance(
    header: Indices,
    blocks: Indices,
    steps: Indices,
    pieces: Indices,
    waits: Indices,
    links: Indices,
) -> int:
    """Run all steps that can run, and return a state.

    DONE: the run is over. BLOCKED: no step could run for a while. MOVED: the caller must serve the wires, or
    check the other ranks. LOST: the memory of another rank cannot be read, and the plan can run no more.
    """
    idle, since_ns, began_ns = 0, 0, 0
    while True:
        moved, left = False, False
        for block in range(len(blocks)):
            while blocks[block, AT_TILE] < header[TILES]:
                step = blocks[block, AT_STEP]
                if not _ready(header, blocks, steps, waits, links, block, step):
                    left = True
                    break
                if header[LOG]:
                    _begin(header, step, blocks[block, AT_TILE])
                if not _execute(header, steps, pieces, links, blocks[block, AT_TILE], step):
                    return LOST
                if header[LOG]:
                    _end(header)
                moved = True
                blocks[block, AT_STEP] += steps[step, FUSED]
                if blocks[block, AT_STEP] >= blocks[block, END]:
                    blocks[block, AT_STEP] = blocks[block, FIRST]
                    blocks[block, AT_TILE] += 1
        if not left and _all_read(header, links):
            return DONE
        if header[TCP_ENDS]:
            sleeps = header[LONELY] and not moved and not header[ONE_PASS]
            state = serve_ends(header[TCP_ENDS], _WAIT_MS if sleeps else 0)
            if state == FAILED or (sleeps and state == NOTHING):
                return BLOCKED
            moved = moved or state != NOTHING
            now_ns = _now_ns(header, _MONOTONIC)
            began_ns = began_ns or now_ns
            if now_ns - began_ns > _PATIENCE_NS:
                return MOVED if moved else BLOCKED
        if header[ONE_PASS]:
            return MOVED if moved else BLOCKED
        idle = 0 if moved else idle + 1
        if idle > header[SPINS]:
            yield_core()
            if idle > header[SPINS] + _YIELDS:
                sleep_us(_SLEEP_US)
            if idle > header[SPINS] + _YIELDS + _SLEEPS:
                return BLOCKED
            if idle == header[SPINS] + 1:
                since_ns = _now_ns(header, _MONOTONIC)
            elif idle % _LOOK_AT_CLOCK == 0 and _now_ns(header, _MONOTONIC) - since_ns > _PATIENCE_NS:
                return BLOCKED


@compiled_always
def _begin_run(header_at: int) -> int:
    """Set every threadblock to the first step of the first tile of the next run, and `advance`."""
    header = carray(pointer(header_at), HEADER_WORDS, np.int64)
    blocks = carray(pointer(header[BLOCKS_AT]), (header[BLOCKS], BLOCK_WORDS), np.int64)
    steps = carray(pointer(header[STEPS_AT]), (header[STEPS], STEP_WORDS), np.int64)
    pieces = carray(pointer(header[PIECES_AT]), (header[PIECES], PIECE_WORDS), np.int64)
    waits = carray(pointer(header[WAITS_AT]), (header[WAITS], 2), np.int64)
    links = carray(pointer(header[LINKS_AT]), (header[LINKS], LINK_WORDS), np.int64)
    header[RUN] += 1
    for block in range(len(blocks)):
        blocks[block, AT_TILE] = 0
        blocks[block, AT_STEP] = blocks[block, FIRST]
    return advance(header, blocks, steps, pieces, waits, links)


def runner(header: Indices, tables: Iterable[Indices]) -> Callable[[], int]:
    """Return a function that begins a run and advances it as `advance` does, with little work in Python.

    The function keeps the addresses of ``header`` and of the other ``tables``, so they must not move.
    """
    for column, table in zip(range(BLOCKS_AT, HEADER_WORDS, 2), tables, strict=True):
        header[column : column + 2] = table.ctypes.data, len(table)
    at = int(header.ctypes.data)
    return partial(machine_code(_begin_run, at), at)


@compiled_always
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
        if steps[step, IN_SLOT] and links[link, FLAG]:
            if load(_slot(header, links, link, tile, steps[step, IN_NUMBER]) + links[link, FLAG]) <= number:
                return False
        elif load(links[link, WRITTEN]) <= number:
            return False
    link = steps[step, OUT]
    if link >= 0 and steps[step, OUT_SLOT]:
        number = _number(header, links, link, tile, steps[step, OUT_NUMBER])
        behind = links[link, DEPTH] - 1
        if not links[link, FLAG]:
            # The first messages of a run wait until those of the previous run are read, because both use the
            # same slots.
            behind = min(behind, number - header[RUN] * header[TILES] * links[link, PER_TILE])
        # Reading the reader's counter moves a cache line between cores: do so only if the last value is too
        # low.
        if links[link, SEEN] < number - behind:
            links[link, SEEN] = load(links[link, READ])
            if links[link, SEEN] < number - behind:
                return False
    for row in range(steps[step, WAIT_FIRST], steps[step + steps[step, FUSED] - 1, WAIT_END]):
        link = waits[row, 0]
        if load(links[link, READ]) <= _number(header, links, link, tile, waits[row, 1]):
            return False
    return True


@compiled_always
def _number(header: Indices, links: Indices, link: int, tile: int, number: int) -> int:
    """Return the number of messages that preceded this one on the link, over all runs."""
    before: int = (header[RUN] * header[TILES] + tile) * links[link, PER_TILE] + number
    return before


@compiled_always
def _all_read(header: Indices, links: Indices) -> bool:
    """Return whether other ranks have read all messages that they read in place from this rank's buffers."""
    for link in range(len(links)):
        if links[link, SETTLE]:
            whole = (header[RUN] + 1) * header[TILES] * links[link, PER_TILE]
            if load(links[link, READ]) < whole:
                return False
    return True


@compiled_always
def _slot(header: Indices, links: Indices, link: int, tile: int, number: int) -> int:
    at = tile * links[link, PER_TILE] + number
    if links[link, FLAG]:
        at = _number(header, links, link, tile, number)
    at %= links[link, DEPTH]
    address: int = links[link, SLOTS] + at * links[link, SLOT_BYTES]
    return address


@compiled_always
def _execute(header: Indices, steps: Indices, pieces: Indices, links: Indices, tile: int, step: int) -> bool:
    """Run a step and count its messages; return False, counting none, if memory could not be read."""
    into, out = steps[step, IN], steps[step, OUT]
    received, sent = 0, 0
    if into >= 0 and steps[step, IN_SLOT]:
        received = _slot(header, links, into, tile, steps[step, IN_NUMBER])
    if out >= 0 and steps[step, OUT_SLOT]:
        sent = _slot(header, links, out, tile, steps[step, OUT_NUMBER])
    ahead, before = tile * header[TILE], 0
    for piece in range(steps[step, PIECE_FIRST], steps[step, PIECE_END]):
        count = min(header[TILE], pieces[piece, LENGTH] - ahead)
        if count > 0:
            offset = ahead * header[ITEM_BYTES]
            arrived = received + pieces[piece, AT] if received else pieces[piece, FAR] + offset
            leaving = sent + pieces[piece, AT] if sent else 0
            op = steps[step, OP]
            if op > OPTIONAL:
                op = _optional_op(header, op - OPTIONAL, piece, tile)
            if pieces[piece, PID] == 0 or received:
                _move(header, steps, pieces, op, step, piece, offset, count, arrived, leaving)
            elif not _fetch_and_move(header, steps, pieces, op, step, piece, offset, count, arrived, leaving):
                return False
            if header[SUMS]:
                there = arrived if into >= 0 else 0
                _add_sums(header, pieces, op, step, piece, before + ahead, offset, count, there, leaving)
        before += pieces[piece, LENGTH]
    if into >= 0:
        store(links[into, READ], _number(header, links, into, tile, steps[step, IN_NUMBER]) + 1)
    if out >= 0:
        number = _number(header, links, out, tile, steps[step, OUT_NUMBER])
        if sent and links[out, FLAG]:
            store(sent + links[out, FLAG], number + 1)
        else:
            store(links[out, WRITTEN], number + 1)
    return True


@compiled_always
def _fetch_and_move(
    header: Indices,
    steps: Indices,
    pieces: Indices,
    op: int,
    step: int,
    piece: int,
    offset: int,
    count: int,
    ahead: int,
    leaving: int,
) -> bool:
    """Receive one piece of one tile from another process's memory: copy it once, or add it by blocks.

    Returns False if that memory cannot be read.
    """
    item_bytes = header[ITEM_BYTES]
    pid, far = pieces[piece, PID], load(pieces[piece, BASE]) + ahead
    if op in (R, RCS):
        dst = pieces[piece, DST] + offset
        if not _fetch(header, pid, far, dst, count * item_bytes):
            return False
        if leaving:
            _copy(leaving, dst, count * item_bytes)
        return True
    block = BOUNCE_BYTES // item_bytes
    for first in range(0, count, block):
        size, at = min(block, count - first), first * item_bytes
        if not _fetch(header, pid, far + at, header[BOUNCE], size * item_bytes):
            return False
        to = leaving + at if leaving else 0
        _move(header, steps, pieces, op, step, piece, offset + at, size, header[BOUNCE], to)
    return True


@compiled_always
def _fetch(header: Indices, pid: int, far: int, to: int, size_bytes: int) -> bool:
    """Copy bytes out of another process; return False if that fails, for instance because it has ended."""
    here, there = header[VECTORS], header[VECTORS] + 16
    done = 0
    while done < size_bytes:
        store(here, to + done)
        store(here + 8, size_bytes - done)
        store(there, far + done)
        store(there + 8, size_bytes - done)
        read = read_process(pid, pointer(here), 1, pointer(there), 1, 0)
        if read <= 0:
            return False
        done += read
    return True


@compiled_always
def _optional_op(header: Indices, op: int, piece: int, tile: int) -> int:
    """Return the operation of an optional step: ``op`` if the input is there, else ``op`` without input.

    If the input is there, its addition is recorded for this piece and tile.
    """
    if load(header[JOINS]):
        store(header[JOINED] + 8 * (piece * header[TILES] + tile), 1)
        return op
    if op == RRS:
        return FORWARD
    return R if op == RRC else RCS


@compiled_always
def _move(
    header: Indices,
    steps: Indices,
    pieces: Indices,
    op: int,
    step: int,
    piece: int,
    offset: int,
    count: int,
    arrived: int,
    leaving: int,
) -> None:
    """Move one piece of one tile; ``leaving`` is 0 if the outgoing message is read in place."""
    item_bytes = header[ITEM_BYTES]
    src, dst = pieces[piece, SRC] + offset, pieces[piece, DST] + offset
    if op == S:
        if leaving:
            _copy(leaving, src, count * item_bytes)
    elif op == CPY:
        _copy(dst, src, count * item_bytes)
    elif op == R:
        _copy(dst, arrived, count * item_bytes)
    elif op == FORWARD:
        _copy(leaving, arrived, count * item_bytes)
    elif op == RRS:
        call_combine(header[COMBINE], header[REDOP], leaving, arrived, src, count)
    elif op in (RE, RCS, RRC, RRCS):
        stride = steps[step, PIECE_END] - steps[step, PIECE_FIRST]
        block = _BLOCK_BYTES // item_bytes
        for first in range(0, count, block):
            size, at = min(block, count - first), first * item_bytes
            if op == RE:
                for other in range(steps[step, FUSED]):
                    operand = pieces[piece + other * stride, SRC] + offset + at
                    call_combine(header[COMBINE], header[REDOP], dst + at, dst + at, operand, size)
            elif op == RCS:
                _copy(dst + at, arrived + at, size * item_bytes)
            else:
                call_combine(header[COMBINE], header[REDOP], dst + at, arrived + at, src + at, size)
            if leaving:
                _copy(leaving + at, dst + at, size * item_bytes)


@compiled_always
def _add_sums(
    header: Indices,
    pieces: Indices,
    op: int,
    step: int,
    piece: int,
    first: int,
    offset: int,
    count: int,
    arrived: int,
    leaving: int,
) -> None:
    """Add a piece of one tile to the checksums of its step; ``first`` is its first element in the step."""
    item_bytes, row = header[ITEM_BYTES], header[SUMS] + 16 * step
    result = pieces[piece, DST] + offset
    if op == S:
        result = leaving if leaving else pieces[piece, SRC] + offset
    elif op in (RRS, FORWARD):
        result = leaving
    if arrived:
        store(row, load(row) + _checksum(arrived, count * item_bytes, first * item_bytes))
    store(row + 8, load(row + 8) + _checksum(result, count * item_bytes, first * item_bytes))


@compiled_always
def _checksum(at: int, size_bytes: int, first: int) -> int:
    """Return the part of `exec.program.checksum` of the bytes at an address; ``first`` is their position."""
    content = carray(pointer(at), size_bytes, np.uint8)
    total = 0
    for place in range(size_bytes):
        total += content[place] * ((2 * (first + place) + 1) * CHECKSUM_FACTOR)
    return total


@compiled_always
def _begin(header: Indices, step: int, tile: int) -> None:
    """Log that a step begins."""
    row, now_ns = header[LOG] + 8 * LOG_WORDS * header[LOGGED], _now_ns(header, _MONOTONIC)
    store(row, step)
    store(row + 8, tile)
    store(row + 16, now_ns)
    store(row + 32, _off_ns(header, now_ns))


@compiled_always
def _end(header: Indices) -> None:
    """Log that the step which began last has ended."""
    row, now_ns = header[LOG] + 8 * LOG_WORDS * header[LOGGED], _now_ns(header, _MONOTONIC)
    store(row + 24, now_ns)
    store(row + 40, _off_ns(header, now_ns))
    header[LOGGED] += 1


@compiled_always
def _off_ns(header: Indices, now_ns: int) -> int:
    """Return the time without a core since the last reading; 0 if that is less than _SELDOM_NS ago."""
    clock = header[CLOCK]
    passed_ns = now_ns - load(clock + 8 * _READ_AT)
    if passed_ns < _SELDOM_NS:
        return 0
    computed_ns = _now_ns(header, _THREAD_CPU)
    off_ns: int = max(0, passed_ns - (computed_ns - load(clock + 8 * _READ)))
    store(clock + 8 * _READ_AT, now_ns)
    store(clock + 8 * _READ, computed_ns)
    return off_ns


@compiled_always
def _now_ns(header: Indices, which: int) -> int:
    clock = header[CLOCK]
    read_clock(which, pointer(clock))
    now_ns: int = load(clock) * 1_000_000_000 + load(clock + 8)
    return now_ns


@compiled_always
def let_join(header: Indices) -> None:
    """Add the optional input from now on; it must already be in the send buffer."""
    store(header[JOINS], 1)


@compiled_always
def _copy(to: int, source: int, size_bytes: int) -> None:
    if to != source:
        copy_bytes(pointer(to), pointer(source), size_bytes)
