"""A file's trial in its runtime: several orders, sizes and placements, in one report."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from exec.runtimes.msccl import ELEMENT_BYTES, MSCCL_BUFFERS, ConnectionBuffer, run_xml
from exec.runtimes.mscclpp import run_plan
from exec.runtimes.results import RuntimeReport
from probes.base import UsageError, plural
from synth.mscclpp import ExecutionPlan
from synth.multimem import refuse_switches
from synth.program import Program

__all__ = ["try_in_runtime"]

# Orders of threadblocks for each size and placement. One run finds the races of many orders.
_ORDERS = 1
# Plans have one size and one placement, and their runs are short.
_ORDERS_OF_PLANS = 3
# Elements of a short chunk, of which many move as one message, and of a long one: two and a half tiles of
# shrunk buffers.
_SHORT, _LONG, _SHRUNK_MESSAGE = 24, 160, 64


def try_in_runtime(
    made: Program | ExecutionPlan, size_bytes: int | None = None, *, seed: int = 0, orders: int = 0
) -> RuntimeReport:
    """Run a program as MSCCL's interpreter would, or a plan as MSCCL++'s executor would.

    A program runs in each placement that its file allows, at ``size_bytes``. Without a size it runs with
    short chunks, and with chunks of several tiles in buffers that are smaller than the runtime's. Each run
    has an order of its own, drawn by a seed from ``seed`` on. The report adds up the runs until one goes
    wrong. Raises UsageError if a size is given for a plan, whose chunks have a few numbers, if the runtime
    does not run the file, or not at this size, or if the size needs too much memory.
    """
    orders = orders or (_ORDERS_OF_PLANS if isinstance(made, ExecutionPlan) else _ORDERS)
    if isinstance(made, ExecutionPlan):
        if size_bytes is not None:
            raise UsageError("a plan runs with a few numbers a chunk, at no other size")
        return _added_up(run_plan(made, seed + order) for order in range(orders))
    refuse_switches(made, "MSCCL's interpreter")
    return _added_up(
        run_xml(made, elements, seed + number, in_place=inside, buffer=buffer)
        for number, ((elements, buffer), inside, _) in enumerate(
            product(_sizes(made, size_bytes), _placements(made), range(orders))
        )
    )


def _placements(program: Program) -> list[bool]:
    """Return whether to run in place, for each placement that the file allows."""
    if program.input_chunks:
        return [False]
    return [
        inside for inside, allowed in ((False, program.out_of_place), (True, program.in_place)) if allowed
    ]


def _sizes(program: Program, size_bytes: int | None) -> list[tuple[int, ConnectionBuffer]]:
    """Return (elements of a chunk, connection buffers) of each run."""
    buffer = MSCCL_BUFFERS[program.protocol]
    if size_bytes is not None:
        known = max(*program.input_chunks, *program.output_chunks, 1) if program.input_chunks else 0
        chunks = known or program.collective.total_bytes(1)
        if size_bytes % (chunks * ELEMENT_BYTES):
            raise UsageError(
                f"the runtime leaves {size_bytes} bytes to an algorithm of NCCL: no multiple of "
                f"{chunks * ELEMENT_BYTES}, {plural(chunks, 'chunk')} of whole elements"
            )
        return [(size_bytes // ELEMENT_BYTES // chunks, buffer)]
    divisor = buffer.message_bytes // (_SHRUNK_MESSAGE * ELEMENT_BYTES)
    return [(_SHORT, buffer), (_LONG, buffer.shrunk(divisor))]


def _added_up(reports: Iterator[RuntimeReport]) -> RuntimeReport:
    total = RuntimeReport(0, 0, 0, 0, ())
    for report in reports:
        total = RuntimeReport(
            total.launches + report.launches,
            total.actions + report.actions,
            total.elements + report.elements,
            total.wrong + report.wrong,
            report.findings,
        )
        if not report.right:
            break
    return total
