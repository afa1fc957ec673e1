"""Symbolic values of slots while a program runs: contributions to a chunk, and the order of their sum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from probes.base import Indices, Mask
from synth.check.slots import Slots
from synth.check.switches import MemberSlots, member_slots
from synth.check.waits import Waits
from synth.collective import Collective
from synth.kernels import compiled
from synth.program import GLRE, GSTORE, INPUT, OPS, READS_SRC, WRITES_DST, Program

__all__ = ["Values", "aligned_sums", "contributors", "follow", "missing"]

_CPY, _RE = OPS.index("cpy"), OPS.index("re")
# The bits of a word (NumPy's uint64); each contribution is one bit.
_WORD = 64
# The flaws that make a value invalid; a value keeps the first one.
UNWRITTEN, LENGTH, TWICE, MIXED, COPIED = range(1, 6)


@dataclass(frozen=True, eq=False)
class Values:
    """The values that slots held, numbered in the order of their creation.

    Value v is a sum of contributions to chunk ``chunk[v]``. ``bits[v]`` has a bit for each rank that
    contributed, and ``expression[v]`` is a hash of the order of the additions. ``flaw[v]`` is not 0 for an
    invalid value, which step ``step[v]`` made. ``cell`` gives the value that each cell holds at the end (-1:
    none); slots that share memory are one cell. For each step that reads unwritten cells, ``unread`` has a
    row (step, the first of these cells). ``uneven`` has a row (step, chunks of its message) for each step
    that receives a message of another size than its own. Each row is an error even if nothing uses the value.
    """

    chunk: Indices
    bits: Indices
    expression: Indices
    flaw: Indices
    step: Indices
    cell: Indices
    unread: Indices
    uneven: Indices


def follow(waits: Waits, slots: Slots, order: Indices) -> Values:
    """Run the steps in ``order``, starting from the collective's precondition; O(steps · ranks / 64)."""
    program = waits.program
    inputs, reduced = slots.inputs, _reduced(program)
    rank_of = program.tb_rank[program.tb_of].astype(np.int64)
    count = program.count.astype(np.int64)
    leaves = len(inputs.rank)
    groups = member_slots(program, slots)
    # A switch's sum makes a value for each member but the first.
    adds = np.array([op in ("re", "rrc", "rrs", "rrcs") for op in OPS])[program.op].astype(np.int64)
    adds[program.op == GLRE] = np.diff(groups.start)[program.op == GLRE]
    room = leaves + int((count * adds).sum()) + 2 * len(order) + 1
    words = (program.ranks + _WORD - 1) // _WORD if reduced.any() else 1
    chunk = np.full(room, -1, dtype=np.int64)
    chunk[:leaves] = inputs.chunk
    bits = np.zeros((room, words), dtype=np.uint64)
    bit = np.where(reduced[inputs.chunk], inputs.rank, 0)
    bits[np.arange(leaves), bit // _WORD] = np.uint64(1) << (bit % _WORD).astype(np.uint64)
    expression = np.zeros(room, dtype=np.uint64)
    leaf_rank = np.where(reduced[inputs.chunk], inputs.rank, program.ranks)
    expression[:leaves] = _leaf(inputs.chunk, leaf_rank, program.ranks)
    value = np.full(len(slots.same), -1, dtype=np.int64)
    value[slots.same[slots.first[inputs.rank, INPUT] + inputs.slot]] = np.arange(leaves)
    offset = np.zeros(program.steps, dtype=np.int64)
    offset[waits.sends] = np.cumsum(count[waits.sends]) - count[waits.sends]
    steps = _Steps(
        program.op.astype(np.int64),
        waits.sends,
        waits.receives,
        np.array(READS_SRC)[program.op],
        np.array(WRITES_DST)[program.op],
        slots.first[rank_of, program.src_buffer] + program.src_slot,
        slots.first[rank_of, program.dst_buffer] + program.dst_slot,
        count,
        waits.sender,
        offset,
        program.messages.astype(np.int64),
    )
    table = _Table(chunk, bits, expression, np.zeros(room, dtype=np.int64), np.full(room, -1, dtype=np.int64))
    message = np.full(int(count[waits.sends].sum()) + 1, -1, dtype=np.int64)
    same = slots.same.astype(np.int64)
    made, unread, uneven = _follow(order, steps, groups, table, leaves, same, value, message, reduced)
    flaw, step = table.flaw[:made], table.step[:made]
    return Values(chunk[:made], bits[:made], expression[:made], flaw, step, value, unread, uneven)


def missing(collective: Collective, chunk: int, bits: Indices) -> list[int]:
    """Return the ranks whose contribution to ``chunk`` is not among ``bits``."""
    sources = collective.sources.of(chunk).tolist() if collective.reduced[chunk] else [0]
    held = set(contributors(bits))
    return [rank for rank in sources if rank not in held]


def contributors(bits: Indices) -> list[int]:
    """Return the ranks whose contributions are among ``bits``."""
    held = sum(int(word) << (_WORD * at) for at, word in enumerate(bits))
    return [rank for rank in range(held.bit_length()) if held >> rank & 1]


def aligned_sums(collective: Collective) -> Indices:
    """Return the expression of each reduced chunk's complete sum in the order of the aligned tree."""
    found = np.zeros(collective.chunks, dtype=np.uint64)
    sources = collective.sources
    for group in np.unique(sources.group[collective.reduced]):
        chunks = np.flatnonzero((sources.group == group) & collective.reduced)
        below = [_leaf(chunks, rank, collective.ranks) for rank in sources.of(int(chunks[0]))]
        # Level by level, neighbours are added up; the last node of an odd number moves up unchanged.
        while len(below) > 1:
            pairs = [_sum_of(*pair) for pair in zip(below[::2], below[1::2], strict=False)]
            below = [*pairs, *(below[-1:] if len(below) % 2 else ())]
        found[chunks] = below[0]
    return found


def _leaf(chunk: Indices, rank: Indices | int, ranks: int) -> Indices:
    """Return the expression of a rank's contribution to a chunk; a copied chunk has the rank ``ranks``."""
    return chunk.astype(np.uint64) * np.uint64(ranks + 1) + np.asarray(rank).astype(np.uint64)


def _reduced(program: Program) -> Mask:
    if program.input_chunks:
        return np.ones(sum(program.input_chunks), dtype=bool)
    return np.asarray(program.collective.reduced)


class _Steps(NamedTuple):
    """One row per step: the first slots that it reads and writes, and the start of its message."""

    op: Indices
    sends: Mask
    receives: Mask
    reads: Mask
    writes: Mask
    src: Indices
    dst: Indices
    length: Indices
    sender: Indices
    offset: Indices
    chunks_in_message: Indices


class _Table(NamedTuple):
    """The columns of `Values`, one row per value."""

    chunk: Indices
    bits: Indices
    expression: Indices
    flaw: Indices
    step: Indices


def _sum_of(one: Any, other: Any) -> Any:
    """Return the expression of a sum: equal for a + b and b + a, different for another tree of additions.

    The constants and shifts are like those of the random generator SplitMix64.
    """
    mixed = one * np.uint64(0x9E3779B97F4A7C15) + np.uint64(1)
    mixed ^= mixed >> np.uint64(29)
    added = other * np.uint64(0x9E3779B97F4A7C15) + np.uint64(1)
    added ^= added >> np.uint64(29)
    mixed = (mixed + added) * np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(32)
    return mixed * np.uint64(0x94D049BB133111EB)


# The compiled form adds one pair inside a loop; ``_sum_of`` itself adds whole columns.
_compiled_sum_of = compiled(_sum_of)
# The order in which a switch adds up is unknown: the expression of its sum equals no other rank's.
_OF_SWITCH = np.uint64(0xD6E8FEB86659FD93)


@compiled
def _add(table: _Table, result: int, a: int, b: int, step: int, reduced: Mask) -> None:
    """Write the sum of the valid values ``a`` and ``b``, which ``step`` makes, into row ``result``."""
    chunk, bits, expression, flaw, flaw_step = table
    words = bits.shape[1]
    overlap = False
    for word in range(words):
        if bits[a, word] & bits[b, word]:
            overlap = True
    chunk[result] = chunk[a]
    if chunk[a] != chunk[b]:
        flaw[result], flaw_step[result] = MIXED, step
    elif not reduced[chunk[a]]:
        flaw[result], flaw_step[result] = COPIED, step
    elif overlap:
        flaw[result], flaw_step[result] = TWICE, step
        for word in range(words):
            bits[result, word] = bits[a, word] & bits[b, word]
    else:
        for word in range(words):
            bits[result, word] = bits[a, word] | bits[b, word]
    expression[result] = _compiled_sum_of(expression[a], expression[b])


# One compiled loop: functions could not share the variables that it changes.
@compiled
def _follow(
    order: Indices,
    steps: _Steps,
    groups: MemberSlots,
    table: _Table,
    made: int,
    same: Indices,
    value: Indices,
    message: Indices,
    reduced: Mask,
) -> tuple[int, Indices, Indices]:
    """Run the steps; return (number of values, unread, uneven).

    ``made`` is the number of values before the first step; ``value`` holds the value of each cell.
    """
    op, sends, receives, reads, writes, src, dst, count, sender, offset, chunks_in_message = steps
    flaw, flaw_step = table.flaw, table.step
    moved = np.empty(count.max() if len(count) else 1, dtype=np.int64)
    unread = np.empty((len(order), 2), dtype=np.int64)
    uneven = np.empty((len(order), 2), dtype=np.int64)
    unreads, unevens = 0, 0
    for step in order:
        length = count[step]
        # Executors skip a copy of slots to themselves: it neither reads nor writes.
        if op[step] == _CPY and same[src[step]] == same[dst[step]]:
            continue
        # If a step reads unwritten slots, one invalid value stands for all of them; if it receives a message
        # of another size, one stands for the whole message.
        blank = -1
        receiving = receives[step]
        odd = receiving and chunks_in_message[sender[step]] != chunks_in_message[step]
        if odd:
            uneven[unevens, 0], uneven[unevens, 1] = step, chunks_in_message[sender[step]]
            unevens += 1
            odd_value = made
            flaw[made], flaw_step[made] = LENGTH, step
            made += 1
        both = (receiving and reads[step]) or op[step] == _RE
        first, last = groups.start[step], groups.start[step + 1]
        for at in range(length):
            if op[step] == GLRE:
                result = value[same[groups.slot[first] + at]]
                for member in range(first, last):
                    cell = same[groups.slot[member] + at]
                    b = value[cell]
                    if b < 0 and blank < 0:
                        unread[unreads, 0], unread[unreads, 1] = step, cell
                        unreads += 1
                        blank = made
                        flaw[made], flaw_step[made] = UNWRITTEN, step
                        made += 1
                    if b < 0 or result < 0:
                        result = blank
                    elif member > first and flaw[result] == 0:
                        if flaw[b] != 0:
                            result = b
                        else:
                            _add(table, made, result, b, step, reduced)
                            result = made
                            made += 1
                if last - first > 2 and flaw[result] == 0:
                    table.expression[result] ^= _OF_SWITCH + np.uint64(step)
                moved[at] = result
                continue
            a = -1
            if receiving:
                a = odd_value if odd else message[offset[sender[step]] + at]
            elif op[step] == _RE:
                a = value[same[dst[step] + at]]
            b = -1
            if reads[step]:
                b = value[same[src[step] + at]]
            lacking = -1
            if op[step] == _RE and a < 0:
                lacking = same[dst[step] + at]
            elif reads[step] and b < 0:
                lacking = same[src[step] + at]
            if lacking >= 0:
                if blank < 0:
                    unread[unreads, 0], unread[unreads, 1] = step, lacking
                    unreads += 1
                    blank = made
                    flaw[made], flaw_step[made] = UNWRITTEN, step
                    made += 1
                result = blank
            elif not both:
                result = a if receiving else b
            elif flaw[a] != 0:
                result = a
            elif flaw[b] != 0:
                result = b
            else:
                result = made
                made += 1
                _add(table, result, a, b, step, reduced)
            moved[at] = result
        if op[step] == GSTORE:
            for member in range(first, last):
                for at in range(length):
                    value[same[groups.slot[member] + at]] = moved[at]
        elif writes[step]:
            for at in range(length):
                value[same[dst[step] + at]] = moved[at]
        if sends[step]:
            for at in range(length):
                message[offset[step] + at] = moved[at]
    return made, unread[:unreads], uneven[:unevens]
