"""Judges execution plans: their form, balance, deadlock, data races and result.

By the rules of the library's executor, the judge proves that

- the plan is well formed and within the limits;
- each launch has as many signals as waits, and no thread waits for ever;
- no two accesses to a cell race, including those of the next launch and of the caller;
- in every launch each output chunk holds exactly its contributions, each once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np

from probes.base import Indices, Mask, gc_paused, plural, spans
from synth.mscclpp.elements import PlanElement, atoms_of
from synth.mscclpp.happens_before import Access, ExecutionOrder, history
from synth.mscclpp.memory import PlanMemory, expected, finenesses, known
from synth.mscclpp.plan import ExecutionPlan
from synth.mscclpp.well_formed import form

__all__ = ["PlanVerdict", "examine_plan", "gpus_holding"]

# A plan may break a rule at every operation; more findings would only fill the report.
_ENOUGH = 1000
# The threadblocks that a GPU runs at once, one on each multiprocessor (docs/reference/networks.md).
_MULTIPROCESSORS = {"A100": 108, "H100": 132, "B200": 148}
# Values that are no sum of inputs: nothing was written, or only before this launch; no value at all.
_NOTHING, _STALE, _NONE = -1, -2, -3
# Operations that a port carries out.
_POSTED = ("put", "pws", "pwsf", "ppkt")
_Cells = TypeVar("_Cells", int, Indices)


@dataclass(frozen=True)
class PlanVerdict:
    """The judgement: ``findings`` are errors; ``cautions`` break no rule, but matter to users."""

    findings: tuple[str, ...]
    cautions: tuple[str, ...] = ()


@gc_paused()
def examine_plan(plan: ExecutionPlan) -> PlanVerdict:
    """Return findings against a plan, and cautions; O(uses of cells · log)."""
    if found := form(plan):
        return PlanVerdict(tuple(found[:_ENOUGH]))
    if plan.reuse_resources:
        return PlanVerdict(
            ("reuse_resources: plans that use their scratch again and again cannot be proven here",)
        )
    sizes_differ = any(gpu.input_chunks != gpu.output_chunks for gpu in plan.gpus)
    if plan.in_place and not known(plan.collective) and sizes_differ:
        return PlanVerdict((f"inplace: it is not known which buffers of {plan.collective!r} share memory",))
    findings: list[str] = []
    cautions: list[str] = []
    for cells in finenesses(plan):
        memory = PlanMemory(plan, cells)
        found, remarks = _examine(plan, memory)
        findings += found
        cautions += remarks
        if found:
            break
    findings += _at_wrong_offset(plan)
    if not known(plan.collective):
        cautions.append(f"the results are not checked: it is not known what {plan.collective!r} must give")
    cautions += _large(plan)
    return PlanVerdict(tuple(dict.fromkeys(findings))[:_ENOUGH], tuple(dict.fromkeys(cautions)))


def _at_wrong_offset(plan: ExecutionPlan) -> list[str]:
    """Return a finding if the executor ignores where an input or output begins in its allocation.

    It adds that offset to no local operand; a port gets the allocation, though, and so does a get.
    """
    places = []
    for rank, gpu in enumerate(plan.gpus):
        for number, block in enumerate(gpu.threadblocks):
            for at, outer in enumerate(block.operations):
                for inside, one in enumerate(outer.inner or (outer,)):
                    if one.name in _POSTED and one.channel_type == "port":
                        wrong = any(operand.buffer in ("i", "o") for operand in one.src)
                    else:
                        names = (gpu.remote_buffers[block.memory_buffers[far.remote]] for far in one.src)
                        wrong = one.name == "get" and any(name.buffer != "s" for name in names)
                    if wrong:
                        inner = f".ops[{inside}]" if outer.inner else ""
                        places.append(f"gpus[{rank}].threadblocks[{number}].ops[{at}]{inner} ({one.name})")
    if not places:
        return []
    return [
        f"{places[0]}, one of {plural(len(places), 'operation')} alike: the executor takes input and output "
        "at the start of their allocation; buffers that begin elsewhere, as most of PyTorch's do, give wrong "
        "data"
    ]


def gpus_holding(threadblocks: int) -> str:
    """Return in words which GPUs can run that many threadblocks at once, and which cannot."""
    named = {name: f"{name} ({count})" for name, count in _MULTIPROCESSORS.items()}
    fits = [named[name] for name, count in _MULTIPROCESSORS.items() if count >= threadblocks]
    too_small = [name for name in named.values() if name not in fits]
    if not fits:
        return f"too many for {', '.join(too_small)}"
    return f"fits {', '.join(fits)}" + (f", not {', '.join(too_small)}" if too_small else "")


def _large(plan: ExecutionPlan) -> list[str]:
    found = []
    if plan.threadblocks_max > min(_MULTIPROCESSORS.values()):
        found.append(
            f"{plan.threadblocks_max} threadblocks on one rank, which must all run at once: "
            f"{gpus_holding(plan.threadblocks_max)}"
        )
    names = {one.name for gpu in plan.gpus for block in gpu.threadblocks for one in block.operations}
    if "flush" in names:
        found.append("flush: the library's parser gives it no channels, so that it waits for nothing")
    if "pwsf" in names:
        found.append("pwsf: before v0.10.0 the executor hands on another source offset than the file's")
    return found


def _examine(plan: ExecutionPlan, memory: PlanMemory) -> tuple[list[str], list[str]]:
    launches = 3 if plan.double_scratch else 2
    atoms = atoms_of(plan, memory, launches)
    ran = history(plan, memory, atoms, launches)
    findings = ran.findings or [
        f"{name}: {ups} signals and {downs} waits a launch: the next launch begins with the rest"
        for name, (ups, downs) in ran.balance.items()
    ]
    if findings:
        return findings, []
    users = [
        np.union1d(
            *(
                memory.first_cell(rank, buffer, 0) + _heads(memory, atoms, rank, buffer)
                for buffer in ("i", "o")
            )
        )
        for rank in range(plan.ranks)
    ]
    uses = _uses_of(ran.accesses, users)
    findings = _mixed_scratch(memory, uses)
    races, relaxed = _Races(memory, ran, uses).found()
    findings += list(dict.fromkeys(races))
    findings += _Results(plan, memory, atoms).wrong(ran.accesses)
    cautions = []
    if relaxed:
        cautions.append(
            f"{relaxed} accesses to outputs are followed by relaxed signals only, which order no "
            "data: outputs are complete once the kernels of all ranks have ended, not earlier"
        )
    puts = np.array(ran.unfinished, dtype=np.int64).reshape(-1, 2)
    if unfinished := int((~ran.graph.orders(puts[:, 0], puts[:, 1], data=False)).sum()):
        cautions.append(
            f"{unfinished // launches} puts over ports may be incomplete when the kernel ends: the caller "
            "may change their sources too early, and the library offers no way to wait"
        )
    return findings, cautions


class _Uses(NamedTuple):
    """The uses of cells in the order of accesses, each with its access and the part of that access."""

    cell: Indices
    access: Indices
    part: Indices
    writes: Mask
    packet: Mask

    def taken(self, rows: Indices) -> _Uses:
        return _Uses(
            self.cell[rows], self.access[rows], self.part[rows], self.writes[rows], self.packet[rows]
        )


def _uses_of(accesses: list[Access], users: list[Indices]) -> _Uses:
    """Return the uses of cells by all accesses; the uses by one thread on one atom are one part."""
    rows: list[Indices] = []
    number, first, writes, waits = [], [], [], []
    parts = 0
    for at, access in enumerate(accesses):
        element = access.element
        reads, into = ((), (users[access.rank],)) if element is None else (element.reads, element.writes)
        for row in reads:
            rows.append(row)
            writes.append(False)
            waits.append(element is not None and bool(element.awaited) and int(row[0]) in element.awaited)
        for row in into:
            rows.append(row)
            writes.append(True)
            waits.append(False)
        number += [at] * (len(reads) + len(into))
        first += [parts] * (len(reads) + len(into))
        parts += max(map(len, (*reads, *into)), default=0)
    sizes = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
    return _Uses(
        np.concatenate(rows).astype(np.int64),
        np.repeat(np.array(number, dtype=np.int64), sizes),
        spans(np.array(first, dtype=np.int64), sizes),
        np.repeat(np.array(writes, dtype=bool), sizes),
        np.repeat(np.array(waits, dtype=bool), sizes),
    )


def _mixed_scratch(memory: PlanMemory, uses: _Uses) -> list[str]:
    """Return a finding for each rank that uses scratch both for plain chunks and for packets."""
    rank, region = np.divmod(np.unique(uses.cell // memory.span), 6)
    mixed = np.intersect1d(rank[(region == 2) | (region == 3)], rank[region >= 4])
    return [
        f"gpus[{one}]: scratch holds packets and plain chunks, which lay out its bytes differently"
        for one in mixed.tolist()
    ]


class _Races:
    """A check that any two uses of a cell, one of them a write, are ordered."""

    def __init__(self, memory: PlanMemory, ran: ExecutionOrder, uses: _Uses) -> None:
        self.memory, self.accesses, self.graph = memory, ran.accesses, ran.graph
        # The uses of a cell lie together, in the order of accesses.
        self.order = np.argsort(uses.cell, kind="stable")
        self.uses = uses.taken(self.order)
        self.event = np.fromiter((one.event for one in ran.accesses), dtype=np.int64)

    def found(self) -> tuple[list[str], int]:
        """Return the findings, and the number of uses by callers that see data by relaxed signals only."""
        cell, access, part, writes, _ = self.uses
        at = np.arange(len(cell))
        begins = np.diff(cell, prepend=-1) != 0
        first = np.maximum.accumulate(np.where(begins, at, 0))
        # The last write before each use, and the first write after it, of the same cell.
        last = np.maximum.accumulate(np.where(writes, at, -1))
        last = np.concatenate([[-1], last[:-1]])
        last[last < first] = -1
        after = np.minimum.accumulate(np.where(writes, at, len(at))[::-1])[::-1]
        after = np.concatenate([after[1:], [len(at)]])
        after[(after < len(at)) & (first[np.minimum(after, len(at) - 1)] != first)] = len(at)
        reported = [(use, -1, "") for use in np.flatnonzero(~writes & (last < 0)).tolist()]
        later = np.flatnonzero((last >= 0) & (part != part[last]))
        blind, relaxed = self.blind(last[later], later)
        reported += blind
        earlier = np.flatnonzero(~writes & (after < len(at)) & (part != part[np.minimum(after, len(at) - 1)]))
        free = ~self.graph.orders(self.event[access[earlier]], self.event[access[after[earlier]]], data=False)
        reported += [(int(after[use]), int(use), "reads") for use in earlier[free].tolist()]
        reported.sort(key=lambda one: (int(self.order[one[0]]), int(self.order[one[1]])))
        return [self.named(*one) for one in reported[:_ENOUGH]], relaxed

    def blind(self, writer: Indices, later: Indices) -> tuple[list[tuple[int, int, str]], int]:
        """Return the uses that do not surely follow the last write, or do not see its data."""
        access, packet = self.uses.access, self.uses.packet
        one, two = self.event[access[writer]], self.event[access[later]]
        open_uses = np.flatnonzero(~self.graph.orders(one, two, data=True))
        writer, later, one, two = writer[open_uses], later[open_uses], one[open_uses], two[open_uses]
        ordered = self.graph.orders(one, two, data=False)
        reported = [
            (use, write, "writes")
            for write, use in zip(writer[~ordered].tolist(), later[~ordered].tolist(), strict=True)
        ]
        unseen = np.flatnonzero(ordered & ~packet[later])
        unseen = unseen[~self.has_ended(access[writer[unseen]], two[unseen])]
        relaxed = 0
        for write, use in zip(writer[unseen].tolist(), later[unseen].tolist(), strict=True):
            if self.accesses[access[use]].element is None:
                relaxed += 1
            else:
                reported.append((use, write, ""))
        return reported, relaxed

    def has_ended(self, writers: Indices, events: Indices) -> Mask:
        """Return whether the writer is the caller, or its kernel has ended, so its writes are visible."""
        turns = {(one.rank, one.launch): one.event for one in self.accesses if one.element is None}
        writes = [self.accesses[writer] for writer in writers.tolist()]
        ends = np.array([turns.get((one.rank, one.launch + 1), -1) for one in writes], dtype=np.int64)
        callers = np.array([one.element is None for one in writes], dtype=bool)
        ended = (ends >= 0) & (ends < events)
        found: Mask = callers.copy()
        found[ended] |= self.graph.orders(ends[ended], events[ended], data=False)
        return found

    def named(self, use: int, other: int, does: str) -> str:
        where = self.accesses[self.uses.access[use]].where
        cell = self.memory.name(int(self.uses.cell[use]))
        if other < 0:
            return f"{where} reads {cell}, which nothing has written"
        first = self.accesses[self.uses.access[other]].where
        if does:
            return f"{first} {does} {cell} in a race with {where}: nothing orders the two"
        return (
            f"{where} follows {first} at {cell} by relaxed signals or packets of other data only, which do "
            "not order its data"
        )


class _Values:
    """The value of each cell: the number of an input cell, below ``singles``, or that of a sum of values."""

    def __init__(self, cells: int, singles: int) -> None:
        self.held = np.full(cells, _NOTHING, dtype=np.int64)
        self.singles = singles
        self.sums: list[tuple[int, ...]] = []
        self.numbers: dict[tuple[int, ...], int] = {}

    def run(self, element: PlanElement) -> None:
        """Apply an element on data to the values."""
        if element.adds:
            # Sums in another order are the same.
            terms = np.sort(np.stack([self.held[row] for row in element.reads]), axis=0)
            value = np.array(self.added(terms.tolist()), dtype=np.int64)
        elif element.writes:
            value = self.held[element.reads[0]]
        for row in element.writes:
            self.held[row] = value

    def added(self, terms: list[list[int]]) -> list[int]:
        """Return the number of each sum; ``terms`` has a row for each operand, whose columns rise."""
        found, numbers, sums = [], self.numbers, self.sums
        for each in zip(*terms, strict=True):
            new = self.singles + len(sums)
            number = numbers.setdefault(each, new)
            if number == new:
                sums.append(each)
            found.append(number)
        return found

    def parts(self, number: int) -> dict[int, int]:
        """Return how often each input cell is in a value; O(sums in it · depth)."""
        found = dict[int, int]()
        level = {number: 1}
        while level:
            below = dict[int, int]()
            for one, times in level.items():
                if one >= self.singles:
                    for term in self.sums[one - self.singles]:
                        below[term] = below.get(term, 0) + times
                elif one != _NOTHING:
                    found[one] = found.get(one, 0) + times
            level = below
        return found


class _Results:
    """A check of the outputs at the ends of launches."""

    def __init__(self, plan: ExecutionPlan, memory: PlanMemory, atoms: Mask) -> None:
        self.plan, self.memory = plan, memory
        launches = 4  # more than are ever run
        self.values = _Values(memory.total(), launches * plan.ranks * memory.span)
        # A value that is known to be what an output must have in each cell, or _NONE, by rank and launch.
        self.right: dict[tuple[int, int], Indices] = {}
        self.inputs = [_heads(memory, atoms, rank, "i") for rank in range(plan.ranks)]
        self.outputs = [_heads(memory, atoms, rank, "o") for rank in range(plan.ranks)]

    def wrong(self, accesses: list[Access]) -> list[str]:
        """Return a finding for each wrong chunk of an output."""
        found: list[str] = []
        memory, held = self.memory, self.values.held
        for access in accesses:
            if access.element is not None:
                self.values.run(access.element)
                continue
            rank, launch = access.rank, access.launch
            if launch and known(self.plan.collective):
                found += self.checked(rank, launch - 1)
            held[memory.first_cell(rank, "o", 0) + self.outputs[rank]] = _STALE
            held[memory.first_cell(rank, "i", 0) + self.inputs[rank]] = _source(
                memory, launch, rank, self.inputs[rank]
            )
        return list(dict.fromkeys(found))

    def checked(self, rank: int, launch: int) -> Iterator[str]:
        """Compare the output of a rank at the end of a launch with what it must be."""
        memory, plan = self.memory, self.plan
        at = self.outputs[rank]
        held = self.values.held[memory.first_cell(rank, "o", 0) + at]
        # These collectives end alike on all ranks, mostly with the same values.
        key = (-1 if plan.collective in ("allreduce", "broadcast") else rank, launch)
        right = self.right.setdefault(key, np.full(memory.span, _NONE))
        open_rows = np.flatnonzero(held != right[at])
        first, told = _source(memory, launch, 0, 0), -1
        for cell, value in zip(at[open_rows].tolist(), held[open_rows].tolist(), strict=True):
            chunk, offset = divmod(cell, memory.cells)
            wanted = {
                first + source * memory.span + slot * memory.cells + offset: 1
                for source, slot in expected(plan, rank, chunk)
            }
            parts = self.values.parts(value)
            if parts == wanted:
                right[cell] = value
            elif chunk != told:
                told = chunk
                what = _difference(memory, parts, wanted, launch)
                yield f"rank {rank} must end with o[{chunk}] of {plan.collective}: {what}"


def _heads(memory: PlanMemory, atoms: Mask, rank: int, buffer: str) -> Indices:
    """Return the first cell of each atom of input or output, counted from the buffer's first cell."""
    first = memory.first_cell(rank, buffer, 0)
    cells = memory.plan.gpus[rank].chunks(buffer) * memory.cells
    return np.flatnonzero(atoms[first : first + cells])


def _source(memory: PlanMemory, launch: int, rank: int, at: _Cells) -> _Cells:
    """Return the number of an input cell's contribution, which differs from launch to launch."""
    return (launch * memory.plan.ranks + rank) * memory.span + at


def _difference(memory: PlanMemory, held: Mapping[int, int], wanted: Mapping[int, int], launch: int) -> str:
    if _STALE in held or not held:
        return "nothing of this launch is written there"

    def name(source: int) -> str:
        place, at = divmod(source, memory.span)
        when, rank = divmod(place, memory.plan.ranks)
        return f"i[{at // memory.cells}] of rank {rank}{'' if when == launch else ' of an earlier launch'}"

    if lacking := [source for source in wanted if source not in held]:
        return f"{name(lacking[0])} is missing"
    if extra := [source for source in held if source not in wanted]:
        return f"it holds {name(extra[0])} as well"
    return f"{name(next(source for source in held if held[source] != 1))} is in it more than once"
