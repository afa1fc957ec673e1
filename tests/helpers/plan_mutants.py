"""Mutates MSCCL++ execution plans: one random change to a correct plan, drawn from a seed."""

import random
from dataclasses import replace

from synth.mscclpp.plan import ExecutionPlan, Operand, Operation

__all__ = ["MUTATIONS", "mutant"]

MUTATIONS = ("signal dropped", "nop dropped", "channel swapped", "offset moved")
_SIGNALS = ("signal", "wait", "rlxsignal", "rlxwait", "sem_acquire", "sem_release", "barrier")


def mutant(plan: ExecutionPlan, mutation: str, draw: random.Random) -> ExecutionPlan | None:
    """Return the plan with one change of a kind; None where it has no place for that."""
    places = [
        (rank, block, at)
        for rank, gpu in enumerate(plan.gpus)
        for block, threadblock in enumerate(gpu.threadblocks)
        for at, operation in enumerate(threadblock.operations)
        if _takes(operation, mutation)
    ]
    if not places:
        return None
    rank, block, at = draw.choice(places)
    operations = list(plan.gpus[rank].threadblocks[block].operations)
    if mutation in ("signal dropped", "nop dropped"):
        operation = operations[at]
        # A put with a signal loses only that.
        operations[at : at + 1] = [replace(operation, name="put")] if operation.src else []
    elif mutation == "channel swapped":
        operations[at] = _swapped(plan, rank, block, operations[at], draw)
    else:
        operations[at] = _moved(operations[at], draw)
    return _with(plan, rank, block, tuple(operations))


def _takes(operation: Operation, mutation: str) -> bool:
    if mutation == "signal dropped":
        return operation.name in (*_SIGNALS, "pws")
    if mutation == "nop dropped":
        return operation.name == "nop"
    if mutation == "channel swapped":
        return bool(operation.channels) or any(one.remote >= 0 for one in (*operation.src, *operation.dst))
    return bool(operation.src)


def _swapped(
    plan: ExecutionPlan, rank: int, block: int, operation: Operation, draw: random.Random
) -> Operation:
    """Another channel, or another remote buffer, of those that the threadblock has."""
    threadblock = plan.gpus[rank].threadblocks[block]
    port = operation.channel_type == "port"
    channels = threadblock.port if port else threadblock.memory
    buffers = threadblock.port_buffers if port else threadblock.memory_buffers
    if operation.channels and (len(channels) > 1 or not operation.src):
        at = draw.randrange(len(operation.channels))
        ids = list(operation.channels)
        ids[at] = draw.randrange(max(len(channels), 2))
        return replace(operation, channels=tuple(ids))
    return replace(
        operation,
        src=tuple(_elsewhere(one, len(buffers), draw) for one in operation.src),
        dst=tuple(_elsewhere(one, len(buffers), draw) for one in operation.dst),
    )


def _elsewhere(operand: Operand, buffers: int, draw: random.Random) -> Operand:
    return replace(operand, remote=draw.randrange(max(buffers, 1))) if operand.remote >= 0 else operand


def _moved(operation: Operation, draw: random.Random) -> Operation:
    """Return one operand, some chunks further or before."""
    sides = [list(operation.src), list(operation.dst)]
    side = draw.choice([one for one in sides if one])
    at = draw.randrange(len(side))
    side[at] = replace(side[at], index=max(0, side[at].index + draw.choice((-2, -1, 1, 2))))
    return replace(operation, src=tuple(sides[0]), dst=tuple(sides[1]))


def _with(plan: ExecutionPlan, rank: int, block: int, operations: tuple[Operation, ...]) -> ExecutionPlan:
    gpu = plan.gpus[rank]
    blocks = list(gpu.threadblocks)
    blocks[block] = replace(blocks[block], operations=operations)
    gpus = list(plan.gpus)
    gpus[rank] = replace(gpu, threadblocks=tuple(blocks))
    return replace(plan, gpus=tuple(gpus))
