"""The memory cells that each step of a program accesses, and which steps surely come before others.

A plan of MSCCL++ has no FIFOs, so a full FIFO never delays a sender. Only the order within a threadblock,
waits and messages put steps in order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

from probes.base import UsageError
from synth.memory_layout import Cells, cells_of
from synth.program import FIFO_DEPTH, OUTPUT, READS_SRC, WRITES_DST, Program
from synth.simulation import ThreadblockLinks, links_of, run

__all__ = ["Accesses"]


class Accesses:
    """The accesses of a program's steps, with the rank and threadblock of each step.

    ``order`` is an order in which the steps can run, ``goal`` the step that each awaits and ``sender`` the
    step whose message it takes (-1: none).
    """

    def __init__(self, program: Program, *, in_place: bool) -> None:
        self.program = program
        self.cells: Cells = cells_of(program, in_place=in_place)
        self.tb: list[int] = program.tb_of.tolist()
        self.rank: list[int] = program.tb_rank[program.tb_of].tolist()
        links: ThreadblockLinks = links_of(program)
        self.goal: list[int] = links.goal.tolist()
        receives = links.receives.tolist()
        self.sender = [send if receives[step] else -1 for step, send in enumerate(links.sender.tolist())]
        self.order: list[int] = run(links, FIFO_DEPTH)[0].tolist()
        if len(self.order) < program.steps:
            raise UsageError(f"{program.name} deadlocks", hint="ccctl verify tells where.")

    @cached_property
    def _before(self) -> list[int]:
        """The steps that surely come before each step, as bits."""
        found = [0] * self.program.steps
        for step in self.order:
            for one in (self.goal[step], self.sender[step], self.previous(step)):
                if one >= 0:
                    found[step] |= found[one] | 1 << one
        return found

    @cached_property
    def touching(self) -> dict[int, list[tuple[int, bool]]]:
        """The steps that access each cell, and whether they write."""
        found: dict[int, list[tuple[int, bool]]] = {}
        for step in range(self.program.steps):
            for cell in self.read(step):
                found.setdefault(cell, []).append((step, False))
            for cell in self.written(step):
                found.setdefault(cell, []).append((step, True))
        return found

    @cached_property
    def results(self) -> set[int]:
        """The cells of all outputs."""
        sizes = self.cells.size[:, OUTPUT].tolist()
        return {cell for rank, size in enumerate(sizes) for cell in self.cells.touched(rank, OUTPUT, 0, size)}

    def join(self, sums: Mapping[int, Sequence[int]]) -> None:
        """Move the accesses of joined additions to the last of them."""
        last = {step: last for last, sum_ in sums.items() for step in sum_}
        for cell, accesses in self.touching.items():
            self.touching[cell] = [(last.get(step, step), writes) for step, writes in accesses]

    def previous(self, step: int) -> int:
        """Return the step before in the same block, or -1."""
        return step - 1 if step and self.tb[step - 1] == self.tb[step] else -1

    def follows(self, later: int, earlier: int) -> bool:
        """Return whether ``earlier`` is ``later`` or happens before it."""
        return later == earlier or bool(self._before[later] >> earlier & 1)

    def read(self, step: int) -> list[int]:
        """Return the cells of the source of a step."""
        program = self.program
        if not READS_SRC[program.op[step]]:
            return []
        return self._touched(step, int(program.src_buffer[step]), int(program.src_slot[step]))

    def written(self, step: int) -> list[int]:
        """Return the cells of the destination of a step."""
        program = self.program
        if not WRITES_DST[program.op[step]]:
            return []
        return self._touched(step, int(program.dst_buffer[step]), int(program.dst_slot[step]))

    def _touched(self, step: int, buffer: int, slot: int) -> list[int]:
        return self.cells.touched(self.rank[step], buffer, slot, int(self.program.count[step]))
