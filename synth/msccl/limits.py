"""Limits of the runtimes that execute MSCCL XML, and the places where a program exceeds them.

The limits are those of the executors' parsers. ``msccl`` stands for two, microsoft/msccl and Azure's executor
for NCCL (c6f6b36), and has the smaller of their limits: 64 steps of a threadblock (Azure's; Microsoft's: 256)
and 216 threadblocks of a rank (Microsoft's; Azure's: 1024). All threadblocks of a rank run at once, so its
GPU must have at least as many multiprocessors (GC3 Sec. 4.4).

The parsers turn nops into waits of the next step, and join neighbouring reductions. The kernel numbers the
steps that are left. So some programs do something else than their file says (`misread_steps`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from probes.base import Indices, Mask, UsageError, first_of, plural
from synth.collective import Kind
from synth.msccl.names import chunks_per_loop
from synth.program import OPS, RECEIVES, SENDS, Program, Protocol

__all__ = [
    "ELEMENT_BYTES",
    "FIFO",
    "MOST_FUSED",
    "TARGETS",
    "RuntimeLimits",
    "beyond",
    "doubts",
    "granule_bytes",
    "joined_reductions",
    "limits_of",
    "misread_steps",
    "never_ends",
    "uncut_bytes",
]

_NOP, _RE = OPS.index("nop"), OPS.index("re")
# Calls of NCCL have a root, which the runtimes do not compare with that of a file.
_ROOTED = ("broadcast", "reduce")
# Calls are counted in elements, here of float32.
ELEMENT_BYTES = 4
# The messages that a connection holds: of its 8 steps, a message takes 4 with Simple.
FIFO = {"Simple": 2, "LL": 8, "LL128": 8}
# The bytes of a message, which has several chunks only if they fit into it.
_MESSAGE_BYTES = {"Simple": 2 << 20, "LL": 32 << 10, "LL128": 576_000}
_ROOTED_MESSAGE_BYTES = _MESSAGE_BYTES | {"Simple": 512 << 10}
# The most threadblocks in clusters of 4 that run at once on a GPU with that many multiprocessors, as an H200
# said (cudaOccupancyMaxActiveClusters). Clusters do not cross the groups of multiprocessors on the chip.
_IN_CLUSTERS = {132: 120}
# MSCCL_MAX_REDUCE_FUSION: the most reductions that can be one step, and the reduction of a threadblock after
# which none is added to a step.
MOST_FUSED = 16

# A program often exceeds a limit in many places; the first ones show which.
_ENOUGH = 8


@dataclass(frozen=True)
class RuntimeLimits:
    """The limits of one runtime; ``awaited_threadblock`` and ``slot`` are the largest possible numbers.

    ``multiprocessors`` is the number in each GPU that runs programs, 0 if unknown. On Hopper, threadblocks
    start ``in_clusters`` of 4, if their number is a multiple of 4.
    """

    steps: int
    threadblocks: int
    channels: int
    chunks_a_step: int
    peers_a_channel: int
    awaited_threadblock: int
    slot: int
    ranks: int
    elements: int
    in_clusters: bool
    collectives: tuple[Kind, ...]
    multiprocessors: int = 0

    @property
    def most_threadblocks(self) -> int:
        """The most threadblocks of a rank."""
        return min(self.threadblocks, self._at_once or self.threadblocks)

    @property
    def allowed_threadblocks(self) -> str:
        """The most threadblocks of a rank, and whether runtime or GPU forbids more, for messages."""
        if self.most_threadblocks < self.threadblocks:
            return f"at most {self._at_once} threadblocks run at once on its GPU"
        return f"at most {self.threadblocks} threadblocks are allowed"

    @property
    def _at_once(self) -> int:
        most = self.multiprocessors
        return _IN_CLUSTERS.get(most, most) if self.in_clusters else most


_CALLED: tuple[Kind, ...] = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "broadcast",
    "reduce",
)
TARGETS = {
    "msccl": RuntimeLimits(64, 216, 32, 71, 32, 127, 32767, 1024, 4095, True, _CALLED),
    "rccl": RuntimeLimits(64, 64, 64, 71, 32, 127, 32767, 1024, 4095, False, (*_CALLED, "gather", "scatter")),
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


def misread_steps(program: Program) -> list[str]:
    """Return the steps that MSCCL's interpreters carry out differently than the file says."""
    return [*_nops(program), *_fusions(program)]


def doubts(program: Program, target: str) -> list[str]:
    """Return what the runtime leaves to the caller of a program within its limits."""
    kind = program.collective.kind
    if target != "msccl" or kind not in _ROOTED:
        return []
    found = [
        f"{target}: it runs for each root of {kind}, as the runtime does not compare roots; the result is "
        f"right only for root {program.collective.root}"
    ]
    if never_ends(program, target, program.protocol):
        found.append(
            f"{target}: between hosts, a {kind} with Simple never ends in Azure's executor, whose host and "
            "kernel count its messages differently; with LL or LL128 it does"
        )
    return found


def never_ends(program: Program, target: str, protocol: Protocol) -> bool:
    """Return whether a call with a protocol never ends where ranks do not reach each other's memory."""
    return target == "msccl" and program.collective.kind in _ROOTED and protocol == "Simple"


def uncut_bytes(program: Program) -> int:
    """Return the largest buffer with which the runtime cuts no step into several messages."""
    moves = (np.array(SENDS) | np.array(RECEIVES))[program.op]
    most = int(program.count[moves].max(initial=1))
    sizes = _ROOTED_MESSAGE_BYTES if program.collective.kind in _ROOTED else _MESSAGE_BYTES
    known = program.input_chunks + program.output_chunks
    chunks = max(known) if known else chunks_per_loop(program.collective)
    return sizes[program.protocol] // most * chunks


def granule_bytes(program: Program) -> int:
    """Return the bytes, in elements of float32, of which a call must have a multiple.

    At other sizes NCCL or RCCL runs an algorithm of its own, without a message (``msccl_lifecycle.cc`` of
    Azure's executor and of RCCL: elements must be a multiple of ``nchunksperloop``).
    """
    return ELEMENT_BYTES * chunks_per_loop(program.collective)


def joined_reductions(program: Program) -> Mask:
    """Return the reductions that the parser adds to the step before: same target, no wait between them.

    A reduction for which others wait ends a step.
    """
    real = np.flatnonzero(program.op != _NOP)
    found = np.zeros(program.steps, dtype=bool)
    row, before = real[1:], real[:-1]
    reduces = program.op == _RE
    joined = reduces[row] & reduces[before] & (program.tb_of[row] == program.tb_of[before])
    for column in (program.dst_buffer, program.dst_slot, program.src_buffer):
        joined &= column[row] == column[before]
    joined &= (program.wait_tb[row] < 0) & ~_awaited(program)[before]
    before_row = np.concatenate([[0], np.cumsum(reduces)])
    number = before_row[before + 1] - before_row[program.tb_start[program.tb_of[before]]]
    found[row] = joined & (number != MOST_FUSED)
    return found


def _awaited(program: Program) -> Mask:
    """Return the steps for which another one waits."""
    waits = program.wait_tb >= 0
    found = np.zeros(program.steps, dtype=bool)
    found[program.tb_start[program.wait_tb[waits]] + program.wait_step[waits]] = True
    return found


def _collective(program: Program, limits: RuntimeLimits) -> Iterator[str]:
    wanted = program.collective
    if program.input_chunks or wanted.kind not in limits.collectives or not wanted.whole:
        yield f"it has no collective {wanted.label}"


def _fusions(program: Program) -> Iterator[str]:
    """Yield reductions that become one step with others, and do not have its number of chunks."""
    joined = joined_reductions(program)
    rows = np.flatnonzero(program.op == _RE)
    chain = np.cumsum(~joined[rows])
    last = np.searchsorted(chain, chain, side="right") - 1
    for row, end in zip(rows, rows[last], strict=True):
        if program.count[row] != program.count[end]:
            yield (
                f"{program.place(int(row))} becomes one step with {program.place(int(end))}, which gives it "
                f"{program.count[end]} instead of {program.count[row]} chunks"
            )
    lengths = np.bincount(chain, minlength=1)
    for number in np.flatnonzero(lengths > MOST_FUSED):
        yield (
            f"{program.place(int(rows[np.searchsorted(chain, number)]))} begins {lengths[number]} reductions "
            f"that become one step, at most {MOST_FUSED} are allowed"
        )


def _nops(program: Program) -> Iterator[str]:
    """Yield waits that get lost, and steps whose number in the kernel is not that of the file."""
    nop, waits, awaited = program.op == _NOP, program.wait_tb >= 0, _awaited(program)
    for row in np.flatnonzero(nop & awaited):
        yield f"{program.place(int(row))} is awaited, and a nop never tells that it is done"
    start = program.tb_start[program.tb_of]
    carried = np.concatenate([[0], np.cumsum(nop & waits)])
    idle = np.concatenate([[0], np.cumsum(nop & ~waits)])
    rows = np.arange(program.steps)
    real = np.maximum.accumulate(np.where(nop, -1, rows)) if len(rows) else rows
    behind = np.maximum(np.concatenate([[-1], real[:-1]])[: len(rows)] + 1, start)
    for row in np.flatnonzero(~nop & ~waits & (carried[rows] > carried[behind])):
        yield f"{program.place(int(row))} follows a nop that waits, and must itself wait for a step"
    for row in np.flatnonzero(~nop & awaited & (idle[rows] > idle[start])):
        yield (
            f"{program.place(int(row))} is awaited for ever: the runtime does not count the nops before it "
            "that wait for nothing"
        )


def _elements(program: Program, limits: RuntimeLimits) -> Iterator[str]:
    """Yield too many elements of the file for the tables of its parser, which skips those of other ranks."""
    if program.ranks > limits.ranks:
        yield f"it has {program.ranks} ranks, at most {limits.ranks} are allowed"
    blocks = np.bincount(program.tb_rank, minlength=program.ranks)
    steps = np.bincount(program.tb_rank[program.tb_of], minlength=program.ranks)
    elements = 1 + program.ranks + blocks + steps
    for rank in np.flatnonzero(elements > limits.elements):
        yield (
            f"rank {rank} reads {elements[rank]} elements (the algo, each gpu, its own threadblocks and "
            f"steps), at most {limits.elements} are allowed"
        )


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


def _switches(program: Program, limits: RuntimeLimits) -> Iterator[str]:
    for step in program.in_group[:1].tolist():
        yield f"{program.place(step)} needs a switch that sums and copies, for which it has no instruction"


_RULES: tuple[Callable[[Program, RuntimeLimits], Iterator[str]], ...] = (
    _switches,
    _collective,
    _channels,
    _threadblocks,
    _steps,
    _elements,
    _counts,
    _peers,
    _waits,
    _slots,
    lambda program, limits: iter(misread_steps(program)),
)
