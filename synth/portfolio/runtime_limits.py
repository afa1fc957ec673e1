"""The limits of runtimes that a table of sends already shows, and those of programs and MSCCL++'s plans."""

from __future__ import annotations

import numpy as np

from probes.base import UsageError
from synth.check import stuck_in_chunks
from synth.collective import Collective
from synth.msccl import ELEMENT_BYTES, FIFO, TARGETS, beyond, limits_of, uncut_bytes
from synth.mscclpp import ALIGNMENT_BYTES, COLLECTIVES, ExecutionPlan
from synth.program import Program
from synth.schedules import Schedule

__all__ = [
    "MOST_PLAN_OPERATIONS",
    "RUNTIMES",
    "chunk_limit",
    "early_limit",
    "grid_of",
    "plan_limit",
    "program_limits",
    "require_runtime",
    "size_limit",
    "stuck_above",
]

RUNTIMES = (*TARGETS, "mscclpp")
# 261,040 operations take 14 processor seconds and 0.85 GB to compile and prove (dgx-h100:4, 1 MiB,
# benchmarks/loadable.py).
MOST_PLAN_OPERATIONS = 300_000
# Each chunk has a multiple of this: MSCCL++'s executor aligns chunks, and the others count elements.
_UNIT_BYTES = dict.fromkeys(TARGETS, ELEMENT_BYTES) | {"mscclpp": ALIGNMENT_BYTES}
# The kinds whose buffer can have any number of chunks. The others have one block a rank, all of one size.
_ANY_CHUNKS = ("all_reduce", "broadcast", "reduce")
# On a grid of more chunks, the longest range of chunks may be this much longer than the mean. A ratio of 1/32
# would take twice as many chunks for 7, 14 and 28 ranks, which then take longer to judge.
_MOST_UNEVEN = 1 + 1 / 24
# MSCCL's runtimes refuse steps of more chunks (`RuntimeLimits.chunks_a_step`).
_MOST_IN_A_RANGE = 71
# A send of a plan is at least a put, a signal and a wait.
_LEAST_OPERATIONS = 3


def require_runtime(runtime: str) -> None:
    """Raise UsageError for an unknown runtime."""
    if runtime not in RUNTIMES:
        raise UsageError(f": expected {', '.join(RUNTIMES)}, found {runtime!r}", argument="runtime")


def early_limit(schedule: Schedule, runtime: str) -> str:
    """Return the limit of a runtime that forbids a schedule however it is compiled; "" if none is seen.

    A step sends at most one message and receives at most one. A threadblock has at most one peer to send to
    and one to receive from. So the table of sends bounds steps and threadblocks from below. O(sends).
    """
    if schedule.uses_switches and runtime != "mscclpp":
        return "it has no instruction with which switches sum and copy (NVLink SHARP)"
    collective = schedule.collective
    known = COLLECTIVES if runtime == "mscclpp" else TARGETS[runtime].collectives
    if collective.kind not in known or not collective.whole:
        return f"it has no collective {collective.label}{'' if collective.whole else ' of some ranks'}"
    if runtime == "mscclpp":
        # An operation of a switch has several sends, and may be one operation of the plan.
        plain = schedule.sends - int((schedule.multimem >= 0).sum())
        if _LEAST_OPERATIONS * plain > MOST_PLAN_OPERATIONS:
            return f"{plain} sends take more than {MOST_PLAN_OPERATIONS} operations"
        return ""
    network = schedule.network
    limits = limits_of(runtime, network.multiprocessors)
    src, dst = network.src[schedule.link].astype(np.int64), network.dst[schedule.link].astype(np.int64)
    pairs = np.unique(src * network.ranks + dst)
    for end, peer, verb in (
        (src, pairs // network.ranks, "sends"),
        (dst, pairs % network.ranks, "receives"),
    ):
        messages, peers = np.bincount(end, minlength=1), np.bincount(peer, minlength=1)
        rank, steps = int(messages.argmax()), limits.most_threadblocks * limits.steps
        if messages[rank] > steps:
            return f"rank {rank} {verb} {messages[rank]} messages, at most {steps} steps are allowed"
        rank = int(peers.argmax())
        if peers[rank] > limits.most_threadblocks:
            return f"rank {rank} {verb} messages with {peers[rank]} peers, {limits.allowed_threadblocks}"
    return ""


def program_limits(program: Program, runtime: str, multiprocessors: int = 0) -> list[str]:
    """Return the limits of an interpreter of MSCCL XML that a program exceeds, for GPUs as in `beyond`."""
    found = beyond(program, runtime, multiprocessors)
    stuck = stuck_above(program)
    return [*found, f"{runtime}: {stuck}"] if stuck else found


def stuck_above(program: Program) -> str:
    """Return the size above which MSCCL's interpreter deadlocks, and where; "" if it does at no size.

    Chunks of several messages fill a connection earlier than a step that is one message.
    """
    most_bytes = uncut_bytes(program)
    if 0 < program.max_bytes <= most_bytes:
        return ""
    depth = FIFO[program.protocol]
    place = stuck_in_chunks(program, depth)
    if not place:
        return ""
    return (
        f"buffers of more than {most_bytes} bytes (maxBytes) deadlock at {place}: each of its chunks is then "
        f"a message, and a connection holds {depth} with {program.protocol}"
    )


def plan_limit(plan: ExecutionPlan, multiprocessors: int) -> str:
    """Return the limit that forbids a plan on GPUs with so many multiprocessors (0: unknown); "" if none."""
    if plan.operations > MOST_PLAN_OPERATIONS:
        return f"it has {plan.operations} operations, more than can be proven ({MOST_PLAN_OPERATIONS})"
    if 0 < multiprocessors < plan.threadblocks_max:
        return (
            f"a rank has {plan.threadblocks_max} threadblocks, "
            f"at most {multiprocessors} threadblocks run at once on its GPU"
        )
    if plan.min_bytes > plan.max_bytes:
        return f"at most {plan.max_bytes} bytes are possible, as its executor has offsets of 32 bits"
    return ""


def chunk_limit(shape: Collective, runtime: str, size_bytes: int) -> str:
    """Return the limit that forbids a buffer of this size in the chunks of a collective; "" if none.

    A size that no program takes, as the blocks of ranks would differ, stands for the next larger one.
    """
    unit_bytes = _UNIT_BYTES[runtime]
    granule_bytes = unit_bytes * shape.total_bytes(1)
    if size_bytes % granule_bytes == 0 or (
        shape.kind not in _ANY_CHUNKS and size_bytes % (unit_bytes * shape.ranks)
    ):
        return ""
    return f"it takes multiples of {granule_bytes} bytes in these chunks, found {size_bytes}"


def grid_of(shape: Collective, runtime: str, size_bytes: int) -> int:
    """Return the number of chunks to cut the buffer into so that the runtime takes a size.

    It is 0 if the runtime takes the size in the collective's own chunks, or in no suitable number of chunks.
    """
    if shape.kind not in _ANY_CHUNKS or not chunk_limit(shape, runtime, size_bytes):
        return 0
    units, rest = divmod(size_bytes, _UNIT_BYTES[runtime])
    grids = np.arange(shape.chunks, _MOST_IN_A_RANGE * shape.chunks + 1)
    grids = grids[units % grids == 0] if not rest else grids[:0]
    longest = -(-grids // shape.chunks)
    even = longest * shape.chunks <= _MOST_UNEVEN * grids
    return int(grids[even][0]) if even.any() else 0


def size_limit(plan: ExecutionPlan, size_bytes: int) -> str:
    """Return the limit that forbids a plan on a buffer of this size, whatever its chunks are; "" if none."""
    if size_bytes > plan.most_bytes:
        return f"at most {plan.most_bytes} bytes are possible, as its executor has offsets of 32 bits"
    return ""
