"""The checker of programs: it replays the steps, chunk by chunk.

The checker ignores how a program was made. It checks the program's shape, runs its threadblocks with bounded
FIFOs, follows the set of contributions that each slot holds, and demands an order between every two
conflicting accesses to one slot.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from probes.base import Indices
from synth.check.races import overlaps, races
from synth.check.slots import Slots, slots_of
from synth.check.switches import absent_members
from synth.check.symbolic_values import (
    COPIED,
    LENGTH,
    MIXED,
    TWICE,
    UNWRITTEN,
    Values,
    aligned_sums,
    contributors,
    follow,
    missing,
)
from synth.check.waits import Waits, blocked, least_depth, order_of
from synth.check.well_formed import shape, unused_scratch
from synth.program import FIFO_DEPTH, INPUT, OUTPUT, WRITES_DST, Program, in_chunks

__all__ = ["Verdict", "examine", "judge", "stuck_in_chunks"]


# At most this many wrong output slots are listed: one wrong step may spoil half a million.
_MOST_TOLD = 1000


@dataclass(frozen=True)
class Verdict:
    """Errors (``findings``), and facts worth knowing about a correct program (``cautions``).

    ``other_bits`` are the cautions about sums that ranks add up in different orders. ``fifo_depth`` is the
    smallest number of messages that a connection must hold to prevent deadlock; 0 if no number is enough
    or the program is not well formed.
    """

    findings: tuple[str, ...]
    cautions: tuple[str, ...] = ()
    fifo_depth: int = 0
    other_bits: tuple[str, ...] = ()


def judge(program: Program, depth: int = FIFO_DEPTH) -> list[str]:
    """Return findings, each with rank, threadblock and step; an empty list proves the program.

    The proof covers each placement (out of place, in place) that the program claims: every slot exists;
    nothing deadlocks with ``depth`` messages in each FIFO; no step reads an unwritten slot; each rank ends
    with every contribution to its output exactly once, added up in the collective's order if it fixes one; no
    step reads and writes slots that overlap partly; every two conflicting accesses to a slot have a certain
    order; where a step sums or copies at all ranks of a group, each has started before it and ends after it.
    O(steps), and O(steps) more for each access that the waits within its rank leave unordered.
    """
    return list(examine(program, depth).findings)


def examine(program: Program, depth: int = FIFO_DEPTH) -> Verdict:
    """Return the verdict: ``judge``'s findings, cautions, the least FIFO depth, sums in unequal orders."""
    if found := shape(program):
        return Verdict(tuple(found))
    if not program.steps and program.input_chunks:
        return Verdict(("the program has no steps, and its file does not say what the results must be",))
    waits = Waits(program)
    fits = least_depth(waits)
    order = order_of(waits, depth)
    if found := blocked(waits, order, depth):
        hint = f"with {fits} places in each connection it would not" if fits > depth else ""
        return Verdict((*found, *((f"it deadlocks with {depth}; {hint}",) if hint else ())), (), fits)
    placements = [p for p in (False, True) if (program.in_place if p else program.out_of_place)]
    if not placements:
        return Verdict(("the program is valid neither out of place nor in place, as it says itself",))
    every: list[str] = absent_members(waits, order)
    other_bits: list[str] = []
    for in_place in placements:
        slots = slots_of(program, in_place=in_place)
        values = follow(waits, slots, order)
        findings = _wrong_on_the_way(waits, slots, values) + _wrong_at_the_end(program, slots, values)
        findings += overlaps(program, slots) + races(waits, slots, order)
        if not in_place and not program.input_chunks:
            findings += _writes_to_input(program)
        every += [f"{'in place: ' if in_place else ''}{finding}" for finding in findings]
        other_bits = other_bits or _other_bits(program, slots, values)
    cautions = (*other_bits, *unused_scratch(program))
    return Verdict(tuple(dict.fromkeys(every)), cautions, fits, tuple(other_bits))


def stuck_in_chunks(program: Program, depth: int = FIFO_DEPTH) -> str:
    """Return a step at which a program deadlocks if each chunk is a message of its own; "" if none does.

    A program that runs so also runs with several chunks in a message. O(chunks moved).
    """
    if program.count.max(initial=1) == 1:
        return ""
    cut, row = in_chunks(program)
    waits = Waits(cut)
    ran = np.zeros(cut.steps, dtype=bool)
    ran[order_of(waits, depth)] = True
    # A step that only waits for another stuck step is not the cause.
    stuck = np.flatnonzero(
        ~ran & (waits.sends | waits.receives) & (ran[waits.previous] | (waits.previous < 0))
    )
    if ran.all():
        return ""
    step = int(row[stuck[0]]) if len(stuck) else int(row[np.flatnonzero(~ran)[0]])
    return program.place(step)


def _writes_to_input(program: Program) -> list[str]:
    writes = np.array(WRITES_DST)[program.op] & (program.dst_buffer == INPUT)
    return [
        f"{program.place(int(step))} writes i[{program.dst_slot[step]}], "
        "but out of place the input belongs to the caller"
        for step in np.flatnonzero(writes)
    ]


def _wrong_on_the_way(waits: Waits, slots: Slots, values: Values) -> list[str]:
    program = waits.program
    found = [
        f"{program.place(int(step))} reads {slots.name(int(cell))}, which nothing has written"
        for step, cell in values.unread
    ]
    return found + [
        f"{program.place(int(step))} expects {program.messages[step]} chunks, the message has {length}"
        for step, length in values.uneven
    ]


def _wrong_at_the_end(program: Program, slots: Slots, values: Values) -> list[str]:
    """Return the output slots that violate the postcondition: the first 1000, and a count of the others."""
    outputs, collective = slots.outputs, program.collective
    if not len(outputs.rank):
        return []
    held = _held(slots, values)
    wanted = _complete(program, values.bits.shape[1])[collective.sources.group[outputs.chunk]]
    copied = ~np.asarray(collective.reduced)[outputs.chunk]
    wanted[copied] = 0
    wanted[copied, 0] = 1
    right = (held >= 0) & (values.flaw[held] == 0) & (values.chunk[held] == outputs.chunk)
    right &= (values.bits[held] == wanted).all(axis=1)
    if collective.sum_order == "aligned":
        fixed = aligned_sums(collective)[outputs.chunk]
        right &= copied | (values.expression[held] == fixed)
    wrong = np.flatnonzero(~right)
    more = len(wrong) - _MOST_TOLD
    return [
        f"rank {outputs.rank[row]} must end with chunk {outputs.chunk[row]} in o[{outputs.slot[row]}]: "
        f"{_lacks(program, values, int(held[row]), int(outputs.chunk[row]))}"
        for row in wrong[:_MOST_TOLD]
    ] + ([f"{more} more output slots do not hold what they must"] if more > 0 else [])


def _held(slots: Slots, values: Values) -> Indices:
    outputs = slots.outputs
    held: Indices = values.cell[slots.same[slots.first[outputs.rank, OUTPUT] + outputs.slot]]
    return held


def _complete(program: Program, words: int) -> Indices:
    """Return for each group of sources the bits of the contributions that make a chunk complete."""
    sets = program.collective.sources
    bits = np.zeros((len(sets.start) - 1, words), dtype=np.uint64)
    owner = np.repeat(np.arange(len(sets.start) - 1), np.diff(sets.start))
    if words > 1 or program.collective.reduces:
        np.bitwise_or.at(bits, (owner, sets.rank // 64), np.uint64(1) << (sets.rank % 64).astype(np.uint64))
    return bits


def _lacks(program: Program, values: Values, held: int, chunk: int) -> str:
    """Return the reason why a value is not the complete chunk, in words."""
    if held < 0:
        return "nothing is written there"
    flaw, found = int(values.flaw[held]), values.chunk[held]
    if flaw == 0:
        if found != chunk:
            return f"it holds chunk {found}"
        lacking = missing(program.collective, chunk, values.bits[held])
        if not lacking:
            return "its contributions are added up in another order than that of the aligned tree"
        return f"the contribution of {_ranks(lacking)} is missing"
    twice = _ranks(contributors(values.bits[held]))
    words = {
        UNWRITTEN: "reads what nothing has written",
        LENGTH: "expects another number of chunks than the message has",
        TWICE: f"adds the contribution of {twice} to chunk {found} a second time",
        MIXED: f"adds chunk {found} to another chunk",
        COPIED: f"reduces chunk {found}, which {program.collective.kind} only copies",
    }
    return f"{program.place(int(values.step[held]))} {words[flaw]}"


def _other_bits(program: Program, slots: Slots, values: Values) -> list[str]:
    """Return chunks that ranks sum up in different orders, so that floating-point results differ."""
    outputs = slots.outputs
    if not program.collective.reduces or not len(outputs.rank):
        return []
    held = _held(slots, values)
    rows = np.flatnonzero((held >= 0) & np.asarray(program.collective.reduced)[outputs.chunk])
    rows = rows[np.argsort(outputs.chunk[rows], kind="stable")]
    chunk, built = outputs.chunk[rows], values.expression[held[rows]]
    first = np.searchsorted(chunk, chunk)
    other = np.flatnonzero(built != built[first])
    if not len(other):
        return []
    chunks = np.unique(chunk[other])
    one, two = rows[first[other[0]]], rows[other[0]]
    return [
        f"{len(chunks)} of {program.collective.chunks} chunks are added up in different orders on different "
        f"ranks, so floating-point results differ in their last bits: chunk {outputs.chunk[two]} on "
        f"rank {outputs.rank[one]} and on rank {outputs.rank[two]}"
    ]


def _ranks(found: list[int]) -> str:
    shown = ", ".join(map(str, found[:8])) + (" …" if len(found) > 8 else "")
    return f"rank {shown}" if len(found) == 1 else f"ranks {shown}"
