"""The data model of MSCCL++'s execution plans, in the format of v0.8 and later (2025).

Buffers are cut into chunks of one size; operands count in chunks. Each rank has a ``PlanRank``. The k-th
channel of a type from rank a to rank b is one end of a connection, whose other end is the k-th channel from b
to a: a signal on one end wakes a wait on the other. A threadblock refers to channels and remote buffers by
index into its own lists, which in turn index its rank's lists.

| operations               | meaning                                                                  |
|--------------------------|--------------------------------------------------------------------------|
| nop, barrier             | all threads of a block meet; of several blocks of a rank                  |
| signal, wait             | count up at the peer's end; wait for the next count at the rank's end     |
| rlxsignal, rlxwait       | the same, but they order no data                                         |
| sem_release, sem_acquire | count a semaphore of the rank up; wait and count it down                  |
| put, pws, pwsf, get      | copy to a peer (pws: and signal, pwsf: and flush); copy from a peer       |
| copy, re, res, rre, rres | copy; add up; add up and put; add up peers' data; add up peers' data, put |
| ppkt … recspkt           | the same with packets: data and flag in one word, so no signal is needed |
| glres, gstore            | add up data of all ranks of a switch channel and store it there; store    |
| pipeline                 | repeat operations for one piece of the data after the other               |
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

__all__ = [
    "ALIGNMENT_BYTES",
    "BUFFERS",
    "CHANNEL_TYPES",
    "COLLECTIVES",
    "MOST_MIN_BYTES",
    "OPERATIONS",
    "PACKET_OPERATIONS",
    "PARTS",
    "ExecutionPlan",
    "Operand",
    "Operation",
    "PlanRank",
    "RemoteBuffer",
    "Switch",
    "Threadblock",
]

# The executor cuts chunks into units of so many bytes, if a plan does not say otherwise.
ALIGNMENT_BYTES = 16
# The executor reads min_message_size as a signed number of 32 bits.
MOST_MIN_BYTES = (1 << 31) - 1
# It computes offsets, of scratch too, in 32 bits.
_OFFSETS = 1 << 32
COLLECTIVES = {
    "all_gather": "allgather",
    "reduce_scatter": "reducescatter",
    "all_reduce": "allreduce",
    "all_to_all": "alltoall",
}
# The buffer that, in place, is each rank's part of the other one; the other one is whole.
PARTS = {"allgather": "i", "reducescatter": "o"}
Buffer = Literal["i", "o", "s"]
BUFFERS = ("i", "o", "s")
CHANNEL_TYPES = ("memory", "port", "switch", "none")
PACKET_OPERATIONS = ("ppkt", "rppkt", "respkt", "repkt", "recpkt", "recspkt", "cpkt", "upkt")
OPERATIONS = (
    *("nop", "barrier", "signal", "wait", "rlxsignal", "rlxwait", "sem_acquire", "sem_release", "flush"),
    *("put", "pws", "pwsf", "get", "copy", "re", "res", "rre", "rres"),
    *PACKET_OPERATIONS,
    *("glres", "gstore", "pipeline"),
)


@dataclass(frozen=True, slots=True)
class Operand:
    """``size`` chunks from ``index`` on: of a buffer of the rank, a remote buffer, or a switch channel.

    Exactly one of ``buffer`` ("": none), ``remote`` and ``switch`` (-1: none) is set; the latter two are
    places in the threadblock's lists.
    """

    index: int
    size: int
    buffer: str = ""
    remote: int = -1
    switch: int = -1


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of a threadblock; fields that it does not need keep their defaults.

    ``slices`` threadblocks share the data of an operation, and this threadblock handles slice ``slice``. Only
    a pipeline has ``unit_bytes``, ``chunks`` and ``inner``, its operations.
    """

    name: str
    src: tuple[Operand, ...] = ()
    dst: tuple[Operand, ...] = ()
    channel_type: str = "none"
    channels: tuple[int, ...] = ()
    slice: int = 0
    slices: int = 1
    barrier: int = -1
    blocks: int = 0
    semaphores: tuple[int, ...] = ()
    unit_bytes: int = 0
    chunks: int = 0
    inner: tuple[Operation, ...] = ()
    reduce_op: str = ""


@dataclass(frozen=True, slots=True)
class Threadblock:
    """Operations in order, and the rank's numbers of the block's channels and remote buffers, by type."""

    operations: tuple[Operation, ...]
    memory: tuple[int, ...] = ()
    port: tuple[int, ...] = ()
    switch: tuple[int, ...] = ()
    memory_buffers: tuple[int, ...] = ()
    port_buffers: tuple[int, ...] = ()

    @property
    def stored(self) -> int:
        """Number of operations that the executor stores, including operations inside pipelines."""
        return sum(1 + len(operation.inner) for operation in self.operations)


@dataclass(frozen=True, slots=True)
class RemoteBuffer:
    """A buffer of another rank, and the types of channels that reach it."""

    rank: int
    buffer: str
    access: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Switch:
    """A multicast group: the same buffer of several ranks."""

    buffer: str
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PlanRank:
    """One rank: sizes of its buffers in chunks, the peers of its channels by type, its threadblocks."""

    input_chunks: int
    output_chunks: int
    scratch_chunks: int
    memory: tuple[int, ...]
    port: tuple[int, ...]
    switch: tuple[Switch, ...]
    remote_buffers: tuple[RemoteBuffer, ...]
    semaphores: tuple[int, ...]
    threadblocks: tuple[Threadblock, ...]

    def chunks(self, buffer: str) -> int:
        return (self.input_chunks, self.output_chunks, self.scratch_chunks)[BUFFERS.index(buffer)]

    def peers(self, channel_type: str) -> tuple[int, ...]:
        return self.memory if channel_type == "memory" else self.port


@dataclass(frozen=True, slots=True)
class ExecutionPlan:
    """An execution plan; ``gpus[r]`` is what rank r runs."""

    name: str
    collective: str
    protocol: str
    in_place: bool
    gpus: tuple[PlanRank, ...]
    reuse_resources: bool = False
    double_scratch: bool = False
    threads: int = 1024
    alignment: int = ALIGNMENT_BYTES
    min_bytes: int = 0
    max_bytes: int = (1 << 64) - 1

    @property
    def ranks(self) -> int:
        return len(self.gpus)

    @property
    def granule_bytes(self) -> int:
        """The executor refuses messages that are no multiple of this: chunks have whole alignment units."""
        return self.alignment * self._chunks

    @property
    def most_bytes(self) -> int:
        """The largest message for which all offsets in all buffers have 32 bits."""
        scratch = (1 + (self.protocol == "LL")) * (1 + self.double_scratch)
        longest = max(max(gpu.scratch_chunks for gpu in self.gpus) * scratch, self._chunks)
        return (_OFFSETS - 1) // (longest * self.alignment) * self.granule_bytes

    @property
    def _chunks(self) -> int:
        """The chunks of a message, which is the longer one of input and output."""
        return max(max(gpu.input_chunks, gpu.output_chunks) for gpu in self.gpus)

    def part(self) -> str:
        """Return the buffer that is each rank's part of the other one, "" if there is none."""
        return PARTS.get(self.collective, "") if self.in_place else ""

    def within(self, from_bytes: int, to_bytes: int) -> ExecutionPlan:
        """Return the plan for a range of sizes, as much of it as the executor can take."""
        least, most = min(from_bytes, MOST_MIN_BYTES), min(to_bytes, self.most_bytes)
        return replace(self, min_bytes=least, max_bytes=most)

    @property
    def operations(self) -> int:
        """Number of operations of all threadblocks, as the executor stores them."""
        return sum(block.stored for gpu in self.gpus for block in gpu.threadblocks)

    @property
    def threadblocks_max(self) -> int:
        """Number of threadblocks of the rank that has most."""
        return max((len(gpu.threadblocks) for gpu in self.gpus), default=0)
