"""The time of an execution plan on a network, by the costs of MSCCL++'s executor.

- A threadblock puts, copies and sums with its own threads, at its own rate or the link's if that is slower. A
  signal after a put arrives one hop later, so a message arrives as a whole.
- Over a port a thread of the host sends, and the threadblock goes on.
- Operations of a switch take their share of the ports, as in `synth.multimem`; all blocks run beside each
  other.
- A nop takes no time. A block adds operands one after the other, and handles the semaphores of an operation
  at once.

The executor (microsoft/mscclpp, 1f5f065d) ran on one H200 whose 2 to 8 ranks shared it. Five costs were
fitted to 95 plans of ours. Their error is 18 % there (root mean square), and 30 % on 18 other plans. Puts
over NVLink and over ports could not be measured so; MSCCL++ publishes their costs for H100:

| cost                      | from                                                                          |
|---------------------------|-------------------------------------------------------------------------------|
| 1.3 us a launch           | the fit                                                                       |
| 1.2 us an operation       | the fit: a put, copy or sum, besides its bytes                                |
| 1.5 us a semaphore        | the fit: each operation that acquires or releases                             |
| 3.3 us a hop              | the fit: a signal after data and its wait; without data 2.3 (pull request 768) |
| 37 GB/s of a block        | the fit: copies within the GPU, sums of two; each further operand as long     |
| 12 GB/s of a block, put   | 32 blocks put 1 MiB in 2.75 us more than 1 KiB (docs, 03-memory-channel.md)    |
| 9 us over a port          | all_reduce of 8 KiB: 15.1 us on two hosts, 6.2 us in one (perf_ndmv5.jsonl)   |
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np

from probes.base import UsageError, gc_paused, offsets
from synth.mscclpp.elements import End, opposite_end
from synth.mscclpp.plan import ExecutionPlan, Operation, Switch, Threadblock
from synth.network import Network, fastest_links
from synth.simulation import run_threadblocks

__all__ = ["plan_time_s"]

_LAUNCH_S = 1.3e-6
_OPERATION_S = 1.2e-6
_SEMAPHORE_S = 1.5e-6
_HOP_S = {"memory": 3.3e-6, "port": 9e-6}
_PUT_BYTES_PER_S = 12e9
_LOCAL_BYTES_PER_S = 37e9


@gc_paused()
def plan_time_s(plan: ExecutionPlan, network: Network, size_bytes: int) -> float:
    """Return the seconds of a plan that `plan_of` made, on a buffer of this size; infinite if it deadlocks.

    Each threadblock of such a plan sends data to at most one peer, and receives from at most one. Raises
    UsageError if the network lacks a link that the plan needs. O(operations · log threadblocks).
    """
    chunks = max(max(gpu.input_chunks, gpu.output_chunks) for gpu in plan.gpus)
    chunk_bytes = -(-size_bytes // chunks)
    pairs = {
        (rank, peer) for rank, gpu in enumerate(plan.gpus) for kind in _HOP_S for peer in gpu.peers(kind)
    }
    steps = _Steps(network, fastest_links(network, chunk_bytes, pairs), chunk_bytes)
    for rank, gpu in enumerate(plan.gpus):
        ends = {kind: _ends(rank, kind, gpu.peers(kind)) for kind in ("memory", "port")}
        for block in gpu.threadblocks:
            steps.add(rank, block, ends, len(gpu.threadblocks), gpu.switch)
    return steps.time_s()


def _ends(rank: int, kind: str, peers: tuple[int, ...]) -> list[End]:
    """Return the rank's end of each of its channels of a kind."""
    seen: dict[int, int] = defaultdict(int)
    found = []
    for peer in peers:
        found.append((rank, kind, peer, seen[peer]))
        seen[peer] += 1
    return found


@dataclass(slots=True)
class _Step:
    """An operation for the simulator; it starts after step ``goal`` and the message of step ``sender``.

    The block is busy for ``busy_s``, the link for ``wire_s``; the message arrives ``alpha_s`` later.
    """

    block: int
    busy_s: float = 0.0
    wire_s: float = 0.0
    alpha_s: float = 0.0
    link: int = -1
    goal: int = -1
    sender: int = -1


@dataclass(slots=True)
class _Steps:
    """The steps of all threadblocks, and the steps that count each channel end and semaphore up and down."""

    network: Network
    links: dict[tuple[int, int], int]
    chunk_bytes: int
    steps: list[_Step] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    signals: dict[End, list[int]] = field(default_factory=lambda: defaultdict(list))
    waits: dict[End, list[int]] = field(default_factory=lambda: defaultdict(list))
    releases: dict[tuple[int, int], list[int]] = field(default_factory=lambda: defaultdict(list))
    acquires: dict[tuple[int, int], list[int]] = field(default_factory=lambda: defaultdict(list))

    def add(
        self,
        rank: int,
        block: Threadblock,
        ends: dict[str, list[End]],
        blocks: int,
        switches: tuple[Switch, ...],
    ) -> None:
        """Add the steps of one of the rank's ``blocks``, which has the channels ``ends`` and ``switches``."""
        before = len(self.steps)
        # A put over memory whose signal has not come yet, and its bytes.
        put, put_bytes = -1, 0
        for operation in block.operations:
            name, kind = operation.name, operation.channel_type
            numbers = {"memory": block.memory, "port": block.port}.get(kind, ())
            channels = [ends[kind][numbers[channel]] for channel in operation.channels]
            if name == "pws":
                self._send(self._append(), channels[0], self._bytes(operation))
            elif name in ("put", "res", "copy", "re"):
                size_bytes = self._bytes(operation)
                rate = _PUT_BYTES_PER_S if name in ("put", "res") else _LOCAL_BYTES_PER_S
                further_s = max(0, len(operation.src) - 2) * size_bytes / _LOCAL_BYTES_PER_S
                done = self._append(_OPERATION_S + size_bytes / rate + further_s)
                if name in ("put", "res"):
                    put, put_bytes = done, size_bytes
            elif name in ("glres", "gstore"):
                # Sums and copies of all ranks share a port, as do copies alone.
                members = switches[block.switch[operation.dst[0].switch]].ranks
                shares = blocks * (len(members) + (name == "glres"))
                wire_s = self._bytes(operation) * self.network.multimem_s_per_byte * shares
                self._append(_OPERATION_S + wire_s)
            elif name.endswith("signal") and put >= 0:
                self._send(put, channels[0], put_bytes)
                put = -1
            elif name.endswith("signal"):
                for end in channels:
                    self.signals[end].append(self._append())
            elif name.endswith("wait"):
                for end in channels:
                    self.waits[end].append(self._append())
            elif name.startswith("sem_"):
                self._semaphores(rank, operation)
        self.lengths.append(len(self.steps) - before)

    def _semaphores(self, rank: int, operation: Operation) -> None:
        """Add one step per semaphore: its threads release them at once, or acquire them as they come."""
        release = operation.name == "sem_release"
        counts, semaphores = self.releases if release else self.acquires, operation.semaphores
        busy = semaphores[0] if release else semaphores[-1]
        for one in semaphores:
            counts[rank, one].append(self._append(_SEMAPHORE_S if one == busy else 0.0))

    def _append(self, busy_s: float = 0.0) -> int:
        self.steps.append(_Step(len(self.lengths), busy_s))
        return len(self.steps) - 1

    def _bytes(self, operation: Operation) -> int:
        return self.chunk_bytes * operation.src[0].size

    def _send(self, number: int, end: End, size_bytes: int) -> None:
        """Make a step the sender of a message, whose signal ends it."""
        rank, kind, peer, _ = end
        if (rank, peer) not in self.links:
            raise UsageError(f"rank {rank} sends to {peer}: {self.network.name} has no such link")
        step, link = self.steps[number], self.links[rank, peer]
        step.link, step.wire_s = link, float(self.network.beta_s_per_byte[link]) * size_bytes
        hop_s = max(_HOP_S[kind], float(self.network.alpha_s[link]))
        if kind == "memory":
            step.busy_s = max(step.busy_s, step.wire_s)
            hop_s += step.busy_s - step.wire_s
        step.alpha_s = hop_s
        self.signals[end].append(number)

    def time_s(self) -> float:
        """Return when the last step ends."""
        steps, blocks = self.steps, len(self.lengths)
        send, receive = np.full(blocks, -1), np.full(blocks, -1)
        fifos = {end: number for number, end in enumerate(self.signals)}
        for end, waits in self.waits.items():
            for wait, signal in zip(waits, self.signals.get(opposite_end(end), ()), strict=False):
                source, step = steps[signal], steps[wait]
                if source.link < 0:
                    step.goal, step.busy_s = signal, _HOP_S[end[1]]
                else:
                    step.sender = signal
                    send[source.block] = receive[step.block] = fifos[opposite_end(end)]
        for counter, acquires in self.acquires.items():
            for acquire, release in zip(acquires, self.releases[counter], strict=False):
                steps[acquire].goal = release
        link = np.array([step.link for step in steps])
        sender = np.array([step.sender for step in steps])
        network = self.network
        ends_s = run_threadblocks(
            offsets(np.array(self.lengths)),
            np.array([step.block for step in steps]),
            np.array([step.goal for step in steps]),
            link >= 0,
            sender >= 0,
            sender,
            send,
            receive,
            len(fifos),
            max(map(len, self.signals.values()), default=1),
            link >= 0,
            np.maximum(link, 0),
            network.link_port_start.astype(np.int64),
            network.link_port.astype(np.int64),
            network.port_part,
            network.links,
            len(network.ports),
            np.array([step.busy_s for step in steps]),
            np.array([step.wire_s for step in steps]),
            np.array([step.alpha_s for step in steps]),
            np.zeros(len(steps)),
            1.0,
        )[1]
        return _LAUNCH_S + float(ends_s.max(initial=0.0))
