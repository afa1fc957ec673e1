"""Lowers a schedule that only switches carry out to an MSCCL++ plan.

An all_reduce is one ``glres`` a chunk at the rank that owns it: its threads add a word up at all ranks of the
switch channel and store the sum there (``multimem.ld_reduce``, ``multimem.st``). An all_gather is one
``gstore`` a chunk. Before that every rank hears of all others that their data is there, and after it that
their results have arrived. The threadblocks of a rank share these signals, and meet at a barrier.
"""

from __future__ import annotations

from collections.abc import Sequence

from probes.base import UsageError
from synth.mscclpp.plan import COLLECTIVES, ExecutionPlan, Operand, Operation, PlanRank, Switch, Threadblock
from synth.mscclpp.well_formed import MOST_CHANNELS, MOST_CHANNELS_AN_OPERATION, MOST_OPERATIONS
from synth.multimem import operations_of_ranks
from synth.schedules import COPY, Schedule

__all__ = ["switch_plan"]

# NCCL 2.30.7 runs NVLS with 16 threadblocks on Hopper (``NVLS_NCHANNELS_SM90`` in src/transport/nvls.cc).
_BLOCKS = 16
# Operations of a block besides its sums and copies: signals, waits, two barriers, and a nop beside each.
_AROUND = 16
_NOP = Operation("nop")


def switch_plan(schedule: Schedule, name: str = "", *, in_place: bool | None = None) -> ExecutionPlan:
    """Return the plan of a proven schedule; with ``in_place`` None, it is in place.

    Raises UsageError for a schedule with sends that no switch carries out, and for one that MSCCL++ has no
    operations for: sums that stay at one rank, or copies by another rank than the one that summed.
    """
    collective = schedule.collective
    if collective.kind not in ("all_reduce", "all_gather") or not collective.whole:
        raise UsageError(f"with switches a plan of MSCCL++ cannot do {collective.label}", hint=_HINT)
    operations = operations_of_ranks(schedule, "a plan of MSCCL++", _HINT)
    owned = [[chunk for op, chunk in each if op == COPY] for each in operations]
    ranks, most = collective.ranks, max(map(len, owned))
    blocks = max(
        min(_BLOCKS, most), -(-(ranks - 1) // MOST_CHANNELS), -(-most // (MOST_OPERATIONS - _AROUND))
    )
    placed = in_place is not False
    made = ExecutionPlan(
        name=name or f"{schedule.method} {collective.label}",
        collective=COLLECTIVES[collective.kind],
        protocol="Simple",
        in_place=placed,
        gpus=tuple(_rank(schedule, rank, owned[rank], blocks, in_place=placed) for rank in range(ranks)),
    )
    return made.within(0, made.most_bytes)


_HINT = "It can do an all_reduce or all_gather of all ranks of one host."


def _rank(schedule: Schedule, rank: int, chunks: Sequence[int], blocks: int, *, in_place: bool) -> PlanRank:
    shape = schedule.collective
    peers = [peer for peer in range(shape.ranks) if peer != rank]
    everyone = tuple(range(shape.ranks))
    sums = shape.kind == "all_reduce"
    buffers = ("i",) if sums and in_place else ("i", "o") if sums else ("o",)
    source, target = shape.input_slots(rank), shape.output_slots(rank)
    last = len(buffers) - 1
    threadblocks = []
    for block in range(blocks):
        channels = tuple(range(block, len(peers), blocks))
        moves = []
        for chunk in chunks[block::blocks]:
            into = Operand(int(target[chunk]), 1, switch=last)
            given = Operand(int(source[chunk]), 1, switch=0) if sums else Operand(int(source[chunk]), 1, "i")
            name, reduce_op = ("glres", "sum") if sums else ("gstore", "")
            moves.append(Operation(name, (given,), (into,), "switch", reduce_op=reduce_op))
        operations = [
            *_over(channels, "rlxsignal", "rlxwait"),
            *_barrier(0, blocks),
            *moves,
            *_barrier(1, blocks),
            *_over(channels, "signal", "wait"),
        ]
        threadblocks.append(
            Threadblock(tuple(operations), memory=channels, switch=tuple(range(len(buffers))))
        )
    return PlanRank(
        input_chunks=int((source >= 0).sum()),
        output_chunks=int((target >= 0).sum()),
        scratch_chunks=0,
        memory=tuple(peers),
        port=(),
        switch=tuple(Switch(buffer, everyone) for buffer in buffers),
        remote_buffers=(),
        semaphores=(),
        threadblocks=tuple(threadblocks),
    )


def _over(channels: Sequence[int], *names: str) -> list[Operation]:
    """Return signals over all channels of a block, and then waits, as many at once as an operation has."""
    places, most = range(len(channels)), MOST_CHANNELS_AN_OPERATION
    batches = [tuple(places[at : at + most]) for at in range(0, len(places), most)]
    return [Operation(name, channel_type="memory", channels=batch) for name in names for batch in batches]


def _barrier(number: int, blocks: int) -> list[Operation]:
    return [_NOP, Operation("barrier", barrier=number, blocks=blocks), _NOP]
