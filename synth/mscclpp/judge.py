"""Judges execution plans: their form, balance, deadlock, data races and result.

By the rules of the library's executor, the judge proves that

- the plan is well formed and within the limits;
- each launch has as many signals as waits, and no thread waits for ever;
- no two accesses to a cell race, including those of the next launch and of the caller;
- in every launch each output chunk holds exactly its contributions, each once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from probes.base import Mask
from synth.mscclpp.elements import PlanElement, atoms_of, other
from synth.mscclpp.happens_before import ExecutedElement, history
from synth.mscclpp.memory import PlanMemory, expected, finenesses, known
from synth.mscclpp.plan import ExecutionPlan
from synth.mscclpp.well_formed import form

__all__ = ["PlanVerdict", "examine_plan", "judge_plan"]

# A plan may break a rule at every operation; more findings would only fill the report.
_ENOUGH = 1000
# Threadblocks that an A100 runs at once, one on each multiprocessor; newer GPUs have more.
_RESIDENT = 108


@dataclass(frozen=True)
class PlanVerdict:
    """The judgement: ``findings`` are errors; ``cautions`` break no rule, but matter to users."""

    findings: tuple[str, ...]
    cautions: tuple[str, ...] = ()


def judge_plan(plan: ExecutionPlan) -> list[str]:
    """Return findings, each with its place in the file; an empty list proves the plan."""
    return list(examine_plan(plan).findings)


def examine_plan(plan: ExecutionPlan) -> PlanVerdict:
    """Return findings against a plan, and cautions; O(threadblocks · events) bits."""
    if found := form(plan):
        return PlanVerdict(tuple(found[:_ENOUGH]))
    if plan.reuse_resources:
        return PlanVerdict(
            ("reuse_resources: scratch used round and round is not something that is proven here",)
        )
    if plan.in_place and not known(plan.collective) and _sizes_differ(plan):
        return PlanVerdict(
            (f"inplace: nothing says how the buffers of {plan.collective!r} lie on each other",)
        )
    findings: list[str] = []
    cautions: list[str] = []
    for cells in finenesses(plan):
        memory = PlanMemory(plan, cells)
        found, told = _examine(plan, memory)
        findings += found
        cautions += told
        if found:
            break
    if not known(plan.collective):
        cautions.append(f"nothing says what the results of {plan.collective!r} must be")
    cautions += _large(plan)
    return PlanVerdict(tuple(dict.fromkeys(findings))[:_ENOUGH], tuple(dict.fromkeys(cautions)))


def _sizes_differ(plan: ExecutionPlan) -> bool:
    return any(gpu.input_chunks != gpu.output_chunks for gpu in plan.gpus)


def _large(plan: ExecutionPlan) -> list[str]:
    found = []
    if plan.threadblocks_max > _RESIDENT:
        found.append(
            f"{plan.threadblocks_max} threadblocks on one rank: all must run at once, "
            f"and an A100 holds {_RESIDENT}"
        )
    names = {one.name for gpu in plan.gpus for block in gpu.threadblocks for one in block.operations}
    if "flush" in names:
        found.append("flush: the library's parser gives it no channels, so that it waits for nothing")
    if "pwsf" in names:
        found.append("pwsf: the library's executor hands on another source offset than the file's")
    return found


def _examine(plan: ExecutionPlan, memory: PlanMemory) -> tuple[list[str], list[str]]:
    launches = 3 if plan.double_scratch else 2
    watched: list[_Watched] = []

    def watching() -> Callable[[ExecutedElement], None]:
        watched[:] = [_Watched(plan, memory, atoms)]
        return watched[0].see

    atoms = atoms_of(plan, memory, launches)
    ran = history(plan, memory, atoms, launches, watching)
    [all_of] = watched
    findings = ran.findings or all_of.balance.findings()
    if findings:
        return findings, []
    accesses = all_of.accesses
    cautions = accesses.told()
    findings = all_of.scratch.findings() + list(dict.fromkeys(accesses.findings)) + all_of.results.told()
    if ran.unfinished_puts:
        cautions.append(
            f"{ran.unfinished_puts // launches} puts over ports are not known to be through when the kernel "
            "ends: the caller may change their sources too early, and the library offers no way to wait"
        )
    return findings, cautions


class _Watched:
    """All that is checked of the events of a run."""

    def __init__(self, plan: ExecutionPlan, memory: PlanMemory, atoms: Mask) -> None:
        self.balance, self.scratch = _Balance(), _MixedScratch(memory)
        self.accesses = _Accesses(plan, memory, atoms)
        self.results = _Results(plan, memory, atoms)

    def see(self, event: ExecutedElement) -> None:
        for each in (self.balance, self.scratch, self.accesses, self.results):
            each.see(event)


class _Balance:
    """The signals and waits of each counter in the first launch."""

    def __init__(self) -> None:
        self.ups: Counter[object] = Counter()
        self.downs: Counter[object] = Counter()
        self.names: dict[object, str] = {}

    def see(self, event: ExecutedElement) -> None:
        element = event.element
        if element is None or event.launch or event.proxy:
            return
        if element.kind == "release" or element.kind == "acquire":
            key: object = (element.rank, element.counter)
            self.names[key] = f"gpus[{element.rank}].semaphores[{element.counter}]"
            (self.ups if element.kind == "release" else self.downs)[key] += 1
        elif element.kind == "signal" or element.signals or element.kind == "wait":
            assert element.end is not None
            end = other(element.end) if element.kind == "wait" else element.end
            if end not in self.names:
                rank, kind, peer, number = end
                self.names[end] = f"{kind} channel {number} from rank {rank} to rank {peer}"
            (self.downs if element.kind == "wait" else self.ups)[end] += 1

    def findings(self) -> list[str]:
        """Return a finding for each counter with more signals than waits in a launch, or fewer."""
        ups, downs = self.ups, self.downs
        return [
            f"{name}: {ups[key]} signals and {downs[key]} waits a launch: the next one begins with the rest"
            for key, name in self.names.items()
            if ups[key] != downs[key]
        ]


class _MixedScratch:
    """The ranks that use scratch for plain chunks, and those that use it for packets."""

    def __init__(self, memory: PlanMemory) -> None:
        self.memory = memory
        self.plain: set[int] = set()
        self.packed: set[int] = set()

    def see(self, event: ExecutedElement) -> None:
        if event.element is not None:
            for cell in (*event.element.reads, *event.element.writes):
                rank, region = divmod(cell // self.memory.span, 6)
                if region >= 2:
                    (self.packed if region >= 4 else self.plain).add(rank)

    def findings(self) -> list[str]:
        return [
            f"gpus[{rank}]: packets and plain chunks in one scratch, where they take other places"
            for rank in sorted(self.plain & self.packed)
        ]


class _Accesses:
    """A check that any two accesses to a cell, one of them a write, are ordered."""

    def __init__(self, plan: ExecutionPlan, memory: PlanMemory, atoms: Mask) -> None:
        self.memory = memory
        self.findings: list[str] = []
        self.relaxed = 0
        self.writer: dict[int, ExecutedElement] = {}
        self.readers: dict[int, list[ExecutedElement]] = {}
        # The number of the caller's turn before a launch of a rank.
        self.turns: dict[tuple[int, int], int] = {}
        self.users = [_user_cells(memory, atoms, rank) for rank in range(plan.ranks)]

    def see(self, event: ExecutedElement) -> None:
        element = event.element
        if element is None:
            self.turns[event.rank, event.launch] = event.number
            for cell in self.users[event.rank]:
                self.write(cell, event)
        elif element.kind == "data" or event.proxy:
            for cell in element.reads:
                self.read(cell, event, packet=cell in element.awaited)
            for cell in element.writes:
                self.write(cell, event)

    def told(self) -> list[str]:
        """Return the cautions."""
        if not self.relaxed:
            return []
        return [
            f"{self.relaxed} accesses to outputs are followed by relaxed signals only, which order no "
            "data: outputs are complete once the kernels of all ranks have ended, not earlier"
        ]

    def read(self, cell: int, event: ExecutedElement, *, packet: bool) -> None:
        self.readers.setdefault(cell, []).append(event)
        writer = self.writer.get(cell)
        if writer is None:
            self.note(f"{event.where} reads {self.memory.name(cell)}, which nothing has written")
        elif writer is not event:
            self.ordered(cell, writer, event, packet=packet)

    def write(self, cell: int, event: ExecutedElement) -> None:
        writer = self.writer.get(cell)
        if writer is not None and writer is not event:
            self.ordered(cell, writer, event, packet=False)
        for reader in self.readers.get(cell, ()):
            if reader is not event and not event.before >> reader.number & 1:
                self.race(cell, reader, "reads", event)
        self.writer[cell] = event
        self.readers[cell] = []

    def ordered(self, cell: int, writer: ExecutedElement, event: ExecutedElement, *, packet: bool) -> None:
        """Check that an access happens after ``writer``, and sees its data."""
        if not event.before >> writer.number & 1:
            self.race(cell, writer, "writes", event)
        elif not (packet or event.seen >> writer.number & 1 or self.has_ended(writer, event)):
            if event.element is None:
                self.relaxed += 1
            else:
                self.note(
                    f"{event.where} follows {writer.where} at {self.memory.name(cell)} by relaxed signals "
                    "or packets of other data only, which do not order its data"
                )

    def has_ended(self, writer: ExecutedElement, event: ExecutedElement) -> bool:
        """Return whether the writer is the caller, or its kernel has ended, so its writes are visible."""
        if writer.element is None:
            return True
        end = self.turns.get((writer.rank, writer.launch + 1))
        return end is not None and bool(event.before >> end & 1)

    def race(self, cell: int, first: ExecutedElement, does: str, event: ExecutedElement) -> None:
        self.note(
            f"{first.where} {does} {self.memory.name(cell)} in a race with "
            f"{event.where}: nothing orders the two"
        )

    def note(self, finding: str) -> None:
        self.findings.append(finding)


class _Values:
    """The value of each cell: the input cells that it is a sum of, with their multiplicities."""

    def __init__(self) -> None:
        self.cells: dict[int, tuple[tuple[int, int], ...]] = {}

    def run(self, element: PlanElement) -> None:
        if element.adds:
            value = _sum([self.cells.get(cell, ()) for cell in element.reads])
            for cell in element.writes:
                self.cells[cell] = value
            return
        if not element.writes:
            return
        # Copy one cell to several, or cell by cell.
        values = [self.cells.get(cell, ()) for cell in element.reads]
        for at, cell in enumerate(element.writes):
            self.cells[cell] = values[at] if len(values) > 1 else values[0]


def _sum(values: list[tuple[tuple[int, int], ...]]) -> tuple[tuple[int, int], ...]:
    total: dict[int, int] = {}
    for value in values:
        for source, times in value:
            total[source] = total.get(source, 0) + times
    return tuple(sorted(total.items()))


class _Results:
    """The value of each cell, and what is wrong with outputs at the ends of launches."""

    def __init__(self, plan: ExecutionPlan, memory: PlanMemory, atoms: Mask) -> None:
        self.plan, self.memory = plan, memory
        self.values = _Values()
        self.wrong: list[str] = []
        self.wanted: dict[tuple[int, int, int], tuple[tuple[int, int], ...]] = {}
        self.inputs = [_heads(memory, atoms, rank, "i") for rank in range(plan.ranks)]
        self.outputs = [_heads(memory, atoms, rank, "o") for rank in range(plan.ranks)]

    def see(self, event: ExecutedElement) -> None:
        if event.element is not None:
            if event.element.kind == "data" or event.proxy:
                self.values.run(event.element)
            return
        rank, launch, memory = event.rank, event.launch, self.memory
        if launch and known(self.plan.collective):
            self.check(rank, launch)
        first = memory.of(rank, "o", 0)
        for at in self.outputs[rank]:
            self.values.cells[first + at] = ((-1, 1),)
        first = memory.of(rank, "i", 0)
        for at in self.inputs[rank]:
            self.values.cells[first + at] = ((_source(memory, launch, rank, at), 1),)

    def check(self, rank: int, launch: int) -> None:
        """Compare the output of a rank at the end of the launch before with what it must be."""
        memory, plan = self.memory, self.plan
        first, chunk_found = memory.of(rank, "o", 0), -1
        for at in self.outputs[rank]:
            chunk = at // memory.cells
            if chunk == chunk_found:
                continue
            wanted = self.expected(rank, at, launch - 1)
            held = self.values.cells.get(first + at, ())
            if held != wanted:
                chunk_found = chunk
                told = _difference(memory, dict(held), dict(wanted), launch - 1)
                self.wrong.append(f"rank {rank} must end with o[{chunk}] of {plan.collective}: {told}")

    def expected(self, rank: int, at: int, launch: int) -> tuple[tuple[int, int], ...]:
        """Return the value that a cell of the output must have, counted from the output's first cell."""
        # These collectives end alike on all ranks.
        key = (-1 if self.plan.collective in ("allreduce", "broadcast") else rank, at, launch)
        if key not in self.wanted:
            chunk, inside = divmod(at, self.memory.cells)
            parts = expected(self.plan, rank, chunk)
            sources = [
                _source(self.memory, launch, source, slot * self.memory.cells + inside)
                for source, slot in parts
            ]
            self.wanted[key] = tuple((source, 1) for source in sorted(sources))
        return self.wanted[key]

    def told(self) -> list[str]:
        """Return the findings."""
        return list(dict.fromkeys(self.wrong))


def _heads(memory: PlanMemory, atoms: Mask, rank: int, buffer: str) -> list[int]:
    """Return the first cell of each atom of input or output, counted from the buffer's first cell."""
    first = memory.of(rank, buffer, 0)
    cells = memory.plan.gpus[rank].chunks(buffer) * memory.cells
    found: list[int] = np.flatnonzero(atoms[first : first + cells]).tolist()
    return found


def _user_cells(memory: PlanMemory, atoms: Mask, rank: int) -> set[int]:
    firsts = [(memory.of(rank, buffer, 0), _heads(memory, atoms, rank, buffer)) for buffer in "io"]
    return {first + at for first, heads in firsts for at in heads}


def _source(memory: PlanMemory, launch: int, rank: int, at: int) -> int:
    """Return the number of an input cell's contribution; it differs from launch to launch."""
    return (launch * memory.plan.ranks + rank) * memory.span + at


def _difference(memory: PlanMemory, held: dict[int, int], wanted: dict[int, int], launch: int) -> str:
    if -1 in held or not held:
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
