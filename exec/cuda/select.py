"""The choice of executor and wires for a program: a pure function of the facts about the GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from probes.base import UnavailableError
from synth.multimem import RUNS_ELSEWHERE
from synth.program import Program

__all__ = ["ExecutorChoice", "Facts", "Wire", "choose", "refuse_multicast"]

Wire = Literal["peer", "nccl", "direct", "staged"]


@dataclass(frozen=True)
class Facts:
    """The facts about the GPUs of all ranks, the same on each rank.

    ``hosts`` and ``gpus`` name each rank's host and its GPU there. ``reachable`` holds (host, gpu, other) for
    each GPU that can read the memory of ``other``. ``room`` is the number of threadblocks that each rank's
    GPU runs at once. ``nccl`` says whether all ranks have NCCL, and ``cuda_aware`` whether they have an MPI
    that reads GPU memory. ``ordered`` says whether all hosts' CPUs make stores visible in their order.
    """

    hosts: tuple[str, ...]
    gpus: tuple[str, ...]
    reachable: frozenset[tuple[str, str, str]]
    room: tuple[int, ...]
    nccl: bool
    cuda_aware: bool
    ordered: bool


@dataclass(frozen=True)
class ExecutorChoice:
    """The executor of a program, the reason for it, and the wire of each pair (sender, receiver).

    ``executor``: "interpreter" is one persistent kernel on each GPU, with proxies between hosts; "contexts"
    is AdapCC's executor, transmission contexts on CUDA streams. ``wires``: "peer" is direct access between
    GPUs, "nccl" is NCCL, "direct" is an MPI that reads GPU memory, "staged" goes through pinned host memory.
    """

    executor: Literal["interpreter", "contexts"]
    why: str
    wires: dict[tuple[int, int], Wire]


def choose(program: Program, facts: Facts) -> ExecutorChoice:
    """Choose the interpreter if it can run, except where contexts save copies in host memory.

    The interpreter (GC3's kernel) costs less for each step, but all its threadblocks must run at the same
    time and reach the memory of their peers. Between hosts the interpreter stages messages in host memory;
    contexts need no such copy if NCCL or MPI reads GPU memory, and need no order between a proxy's stores.
    O(threadblocks).
    """
    pairs = _pairs(program)
    wires = {pair: _wire(facts, *pair) for pair in pairs}
    why = _reason_against_kernel(program, facts, wires)
    if why:
        return ExecutorChoice("contexts", why, wires)
    why = "all GPUs that talk see each other's memory, and the kernel fits"
    if set(wires.values()) - {"peer"}:
        why = "GPUs of a host see each other's memory, proxies carry the rest, and the kernel fits"
    return ExecutorChoice("interpreter", why, wires)


def refuse_multicast(program: Program, gpus: Sequence[str], supported: Sequence[bool]) -> None:
    """Raise UnavailableError if switches carry out some steps of a program; say what is missing for it.

    ``gpus`` are the names of the ranks' GPUs, ``supported`` says which of them have multicast memory.
    """
    if not program.uses_switches:
        return
    what = f"in {program.name} switches sum and copy (NVLink SHARP)"
    for rank, (gpu, has) in enumerate(zip(gpus, supported, strict=True)):
        if not has:
            problem = f"{what}, and the {gpu} of rank {rank} has no multicast memory"
            raise UnavailableError(problem, hint=RUNS_ELSEWHERE)
    raise UnavailableError(
        f"{what}: the kernel has these instructions, but ccctl cannot map the multicast memory of GPUs yet",
        hint=RUNS_ELSEWHERE,
    )


def _pairs(program: Program) -> list[tuple[int, int]]:
    """Return (sender, receiver) of every connection."""
    ends = zip(program.tb_rank.tolist(), program.tb_send.tolist(), strict=True)
    return sorted({(rank, to) for rank, to in ends if to >= 0})


def _wire(facts: Facts, sender: int, receiver: int) -> Wire:
    host, gpu = facts.hosts[sender], facts.gpus[sender]
    if facts.hosts[receiver] == host:
        other = facts.gpus[receiver]
        # Access both ways: data goes to the receiver, the count of messages read goes back.
        if other == gpu or {(host, gpu, other), (host, other, gpu)} <= facts.reachable:
            return "peer"
    # NCCL refuses two ranks on one GPU.
    if facts.nccl and _alone(facts, sender) and _alone(facts, receiver):
        return "nccl"
    return "direct" if facts.cuda_aware else "staged"


def _alone(facts: Facts, rank: int) -> bool:
    return len(_on_gpu_of(facts, rank)) == 1


def _reason_against_kernel(program: Program, facts: Facts, wires: dict[tuple[int, int], Wire]) -> str:
    """Return the reason against the persistent kernel; "" if there is none."""
    for (sender, receiver), wire in wires.items():
        if wire != "peer" and facts.hosts[sender] == facts.hosts[receiver]:
            return f"rank {sender} sends to rank {receiver}, whose memory its GPU cannot reach"
        if wire in ("nccl", "direct"):
            by = "NCCL" if wire == "nccl" else "MPI"
            return f"rank {sender} sends to rank {receiver} on another host, out of its GPU's memory by {by}"
        if wire == "staged" and not facts.ordered:
            return (
                f"rank {sender} sends to rank {receiver} on another host, and a CPU that is not x86 may show "
                f"a proxy's count before its data"
            )
    for rank in range(program.ranks):
        # Kernels of several processes take turns on a GPU, so a kernel that spins keeps the others from
        # running.
        first, *others = _on_gpu_of(facts, rank)
        if others:
            return f"ranks {first} and {others[0]} share GPU {facts.gpus[rank]} of {facts.hosts[rank]}"
    return _reason_no_room(program, facts.room)


def _on_gpu_of(facts: Facts, rank: int) -> list[int]:
    this_gpu = facts.hosts[rank], facts.gpus[rank]
    return [other for other, gpu in enumerate(zip(facts.hosts, facts.gpus, strict=True)) if gpu == this_gpu]


def _reason_no_room(program: Program, room: Sequence[int]) -> str:
    needed = np.bincount(program.tb_rank, minlength=program.ranks).tolist()
    for rank, (blocks, most) in enumerate(zip(needed, room, strict=True)):
        if blocks > most:
            return f"rank {rank} has {blocks} threadblocks, its GPU holds {most} at once"
    return ""
