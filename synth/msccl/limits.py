"""Limits of the runtimes that execute MSCCL XML, and the places where a program exceeds them.

The limits are those of the executors' parsers: Azure's MSCCL executor for NCCL, and RCCL's. All threadblocks
of a rank run at once, so its GPU must have at least as many multiprocessors (GC3 Sec. 4.4).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from probes.base import Indices, UsageError, first_of, plural
from synth.msccl.names import COLL
from synth.program import Program

__all__ = ["TARGETS", "RuntimeLimits", "beyond", "limits_of"]

# A program often exceeds a limit in many places; the first ones show which.
_ENOUGH = 8


@dataclass(frozen=True)
class RuntimeLimits:
    """The limits of one runtime; ``awaited_threadblock`` and ``slot`` are the largest possible numbers.

    ``multiprocessors`` is the number in each GPU that runs programs, 0 if unknown.
    """

    steps: int
    threadblocks: int
    channels: int
    chunks_a_step: int
    peers_a_channel: int
    awaited_threadblock: int
    slot: int
    multiprocessors: int = 0

    @property
    def most_threadblocks(self) -> int:
        """The most threadblocks of a rank."""
        return min(self.threadblocks, self.multiprocessors or self.threadblocks)

    @property
    def allowed_threadblocks(self) -> str:
        """The most threadblocks of a rank, and whether runtime or GPU forbids more, for messages."""
        if self.most_threadblocks < self.threadblocks:
            return f"at most {self.multiprocessors} threadblocks run at once on its GPU"
        return f"at most {self.threadblocks} threadblocks are allowed"


TARGETS = {
    "msccl": RuntimeLimits(256, 1024, 32, 71, 32, 127, 32767),
    "rccl": RuntimeLimits(64, 64, 64, 71, 32, 127, 32767),
}


def limits_of(target: str, multiprocessors: int = 0) -> RuntimeLimits:
    """Return the limits of a runtime on GPUs with so many multiprocessors (0: unknown).

    Raises UsageError for an unknown target.
    """
    if target not in TARGETS:
        raise UsageError(f": expected {' or '.join(TARGETS)}, found {target!r}", argument="target")
    return replace(TARGETS[target], multiprocessors=multiprocessors)


def beyond(program: Program, target: str, multiprocessors: int = 0) -> list[str]:
    """Return a finding for each limit of `limits_of` that the program exceeds, with its place."""
    limits = limits_of(target, multiprocessors)
    found = [finding for rule in _RULES for finding in rule(program, limits)]
    return [f"{target}: {finding}" for finding in first_of(found, _ENOUGH, "finding")]


def _collective(program: Program, limits: RuntimeLimits) -> Iterator[str]:
    if program.input_chunks or program.collective.kind not in COLL or not program.collective.whole:
        yield f"its parser knows no collective {program.collective.label}"


def _steps(program: Program, limits: RuntimeLimits) -> Iterator[str]:
    lengths = np.diff(program.tb_start)
    for tb in np.flatnonzero(lengths > limits.steps):
        yield f"{program.tb_name(int(tb))} has {lengths[tb]} steps, at most {limits.steps} are allowed"


def _threadblocks(program: Program, limits: RuntimeLimits) -> Iterator[str]:
    counts = np.bincount(program.tb_rank, minlength=1)
    for rank in np.flatnonzero(counts > limits.most_threadblocks):
        yield f"rank {rank} has {plural(int(counts[rank]), 'threadblock')}, {limits.allowed_threadblocks}"


def _channels(program: Program, limits: RuntimeLimits) -> Iterator[str]:
    if program.channels > limits.channels:
        yield f"it uses {program.channels} channels, at most {limits.channels} are allowed"


def _counts(program: Program, limits: RuntimeLimits) -> Iterator[str]:
    for step in np.flatnonzero(program.count > limits.chunks_a_step):
        yield (
            f"{program.place(int(step))} moves {program.count[step]} chunks, "
            f"at most {limits.chunks_a_step} are allowed"
        )


def _peers(program: Program, limits: RuntimeLimits) -> Iterator[str]:
    for peer, verb in ((program.tb_send, "sends to"), (program.tb_recv, "receives from")):
        rows = np.flatnonzero(peer >= 0)
        key = program.tb_rank[rows].astype(np.int64) * (program.channels + 1) + program.tb_channel[rows]
        keys, counts = np.unique(key, return_counts=True)
        for at in np.flatnonzero(counts > limits.peers_a_channel):
            rank, channel = divmod(int(keys[at]), program.channels + 1)
            yield (
                f"rank {rank} {verb} {counts[at]} peers on channel {channel}, "
                f"at most {limits.peers_a_channel} are allowed"
            )


def _waits(program: Program, limits: RuntimeLimits) -> Iterator[str]:
    first = np.searchsorted(program.tb_rank, program.tb_rank[program.tb_of])
    number: Indices = np.where(program.wait_tb >= 0, program.wait_tb - first, -1)
    for step in np.flatnonzero(number > limits.awaited_threadblock):
        yield (
            f"{program.place(int(step))} waits for threadblock {number[step]}, whose number the runtime "
            f"keeps in a signed byte: at most {limits.awaited_threadblock}"
        )


def _slots(program: Program, limits: RuntimeLimits) -> Iterator[str]:
    largest = max(int(program.src_slot.max(initial=0)), int(program.dst_slot.max(initial=0)))
    if largest > limits.slot:
        yield f"it uses slot {largest}, at most {limits.slot} can be counted"


_RULES: tuple[Callable[[Program, RuntimeLimits], Iterator[str]], ...] = (
    _collective,
    _channels,
    _threadblocks,
    _steps,
    _counts,
    _peers,
    _waits,
    _slots,
)
