"""Judges execution plans: their form, balance, deadlock, data races and result.

By the rules of the library's executor, the judge proves that

- the plan is well formed and within the limits;
- each launch has as many signals as waits, and no thread waits for ever;
- no two accesses to a cell race, including those of the next launch and of the caller;
- in every launch each output chunk holds exactly its contributions, each once.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from synth.mscclpp.elements import PlanElement, other
from synth.mscclpp.happens_before import ExecutedElement, ExecutionOrder, history
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
    """Return findings against a plan, and cautions; O(events²) bits for events of all launches."""
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
    ran = history(plan, memory, launches)
    findings = ran.findings or _unbalanced(ran)
    if findings:
        return findings, []
    accesses = _Accesses(plan, memory, ran)
    findings = _mixed_scratch(memory, ran) + accesses.findings + _wrong_results(plan, memory, ran)
    cautions = accesses.cautions
    if ran.unfinished_puts:
        cautions.append(
            f"{ran.unfinished_puts // launches} puts over ports are not known to be through when the kernel "
            "ends: the caller may change their sources too early, and the library offers no way to wait"
        )
    return findings, cautions


def _unbalanced(ran: ExecutionOrder) -> list[str]:
    """Return a finding for each counter with more signals than waits in a launch, or fewer."""
    ups: Counter[object] = Counter()
    downs: Counter[object] = Counter()
    names: dict[object, str] = {}
    for event in ran.events:
        element = event.element
        if element is None or event.launch or event.proxy:
            continue
        if element.kind == "release" or element.kind == "acquire":
            key: object = (element.rank, element.counter)
            names[key] = f"gpus[{element.rank}].semaphores[{element.counter}]"
            (ups if element.kind == "release" else downs)[key] += 1
        elif element.kind == "signal" or element.signals or element.kind == "wait":
            assert element.end is not None
            end = other(element.end) if element.kind == "wait" else element.end
            rank, kind, peer, number = end
            names[end] = f"{kind} channel {number} from rank {rank} to rank {peer}"
            (downs if element.kind == "wait" else ups)[end] += 1
    return [
        f"{names[key]}: {ups[key]} signals and {downs[key]} waits a launch: the next one begins with the rest"
        for key in names
        if ups[key] != downs[key]
    ]


def _mixed_scratch(memory: PlanMemory, ran: ExecutionOrder) -> list[str]:
    plain: set[int] = set()
    packed: set[int] = set()
    for event in ran.events:
        if event.element is not None:
            for cell in (*event.element.reads, *event.element.writes):
                rank, region = divmod(cell // memory.span, 6)
                if region >= 2:
                    (packed if region >= 4 else plain).add(rank)
    return [
        f"gpus[{rank}]: packets and plain chunks in one scratch, where they take other places"
        for rank in sorted(plain & packed)
    ]


class _Accesses:
    """A check that any two accesses to a cell, one of them a write, are ordered."""

    def __init__(self, plan: ExecutionPlan, memory: PlanMemory, ran: ExecutionOrder) -> None:
        self.memory, self.ran = memory, ran
        self.findings: list[str] = []
        self.cautions: list[str] = []
        self.relaxed = 0
        self.writer: dict[int, ExecutedElement] = {}
        self.readers: dict[int, list[ExecutedElement]] = {}
        users = [self._user_cells(plan, rank) for rank in range(plan.ranks)]
        for event in ran.events:
            element = event.element
            if element is None:
                for cell in users[event.rank]:
                    self.write(cell, event)
            elif element.kind == "data" or event.proxy:
                for cell in element.reads:
                    self.read(cell, event, packet=cell in element.awaited)
                for cell in element.writes:
                    self.write(cell, event)
        if self.relaxed:
            self.cautions.append(
                f"{self.relaxed} accesses to outputs are followed by relaxed signals only, which order no "
                "data: outputs are complete once the kernels of all ranks have ended, not earlier"
            )
        self.findings = list(dict.fromkeys(self.findings))

    def _user_cells(self, plan: ExecutionPlan, rank: int) -> set[int]:
        gpu, memory = plan.gpus[rank], self.memory
        cells: set[int] = set()
        for buffer, chunks in (("i", gpu.input_chunks), ("o", gpu.output_chunks)):
            first = memory.of(rank, buffer, 0)
            cells.update(range(first, first + chunks * memory.cells))
        return cells

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
        end = self.ran.turns.get((writer.rank, writer.launch + 1))
        return end is not None and bool(event.before >> end.number & 1)

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


def _wrong_results(plan: ExecutionPlan, memory: PlanMemory, ran: ExecutionOrder) -> list[str]:
    """Return findings on output chunks with wrong contents at the end of a launch."""
    values = _Values()
    found: list[str] = []
    for event in ran.events:
        if event.element is not None:
            if event.element.kind == "data" or event.proxy:
                values.run(event.element)
            continue
        rank, launch = event.rank, event.launch
        if launch and known(plan.collective):
            found += _wrong(plan, memory, values, rank, launch)
        output = memory.of(rank, "o", 0)
        for cell in range(output, output + plan.gpus[rank].output_chunks * memory.cells):
            values.cells[cell] = ((-1, 1),)
        first = memory.of(rank, "i", 0)
        for at in range(plan.gpus[rank].input_chunks * memory.cells):
            values.cells[first + at] = ((_source(memory, launch, rank, at), 1),)
    return list(dict.fromkeys(found))


def _source(memory: PlanMemory, launch: int, rank: int, at: int) -> int:
    """Return the number of an input cell's contribution; it differs from launch to launch."""
    return (launch * memory.plan.ranks + rank) * memory.span + at


def _wrong(plan: ExecutionPlan, memory: PlanMemory, values: _Values, rank: int, launch: int) -> list[str]:
    found = []
    first = memory.of(rank, "o", 0)
    for chunk in range(plan.gpus[rank].output_chunks):
        parts = expected(plan, rank, chunk)
        for at in range(memory.cells):
            wanted = {
                _source(memory, launch - 1, source, slot * memory.cells + at): 1 for source, slot in parts
            }
            held = dict(values.cells.get(first + chunk * memory.cells + at, ()))
            if held != wanted:
                found.append(
                    f"rank {rank} must end with o[{chunk}] of {plan.collective}: "
                    f"{_difference(memory, held, wanted, launch - 1)}"
                )
                break
    return found


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
