"""Which executor the ranks use, and a program made ready on it."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Literal, get_args

from exec.layout import Layout
from exec.peers.peer import Call, nothing
from exec.redops import Array
from probes.errors import UnavailableError, UsageError
from probes.progress import Progress

__all__ = ["DEVICES", "DeviceKind", "Prepared", "executor_of", "parse_device", "prepared"]

DeviceKind = Literal["cpu", "cuda", "auto"]
DEVICES: tuple[str, ...] = get_args(DeviceKind)


@dataclass(frozen=True, eq=False)
class Prepared:
    """A program as a call; ``how`` says which executor it is and why, where there was a choice."""

    call: Call
    how: str


def parse_device(text: str) -> str:
    """``cpu``, ``cuda`` or ``auto``; raises UsageError for anything else."""
    if text not in DEVICES:
        raise UsageError(f"--device: expected {', '.join(DEVICES)}, found {text!r}")
    return text


def executor_of(comm: Any, asked: str) -> Literal["mpi", "cuda"]:
    """The executor for ``cpu``, ``cuda`` or ``auto``, alike on all ranks; collective over ``comm``.

    Raises UnavailableError on all ranks where ``cuda`` is asked for and one of them has no GPU.
    """
    if asked == "cpu":
        return "mpi"
    lacks = comm.allgather(_lack())
    if not any(lacks):
        return "cuda"
    if asked == "auto":
        return "mpi"
    rank = next(rank for rank, lack in enumerate(lacks) if lack)
    raise UnavailableError(
        f"--device cuda: rank {rank} has no GPU to use: {lacks[rank]}",
        hint="ccctl doctor says what is missing; --device cpu runs on the processors.",
    )


def prepared(
    layout: Layout,
    comm: Any,
    buffers: tuple[Array, Array],
    redop: str,
    progress: Progress,
    executor: Literal["mpi", "cuda"],
) -> Prepared:
    """The program on ``buffers``, send and receive of this rank; collective over ``comm``."""
    send, recv = buffers
    if executor == "mpi":
        from exec.mpi.plan import Plan

        plan = Plan(layout, comm, send, recv, redop, progress)
        return Prepared(Call(plan.run, recv, close=plan.close), "")
    from exec.cuda.plan import CudaPlan

    cuda = CudaPlan(layout, comm, send, recv, redop)
    call = Call(cuda.run, recv, nothing, nothing, cuda.place, cuda.fetch, cuda.close)
    wires = ", ".join(sorted(set(cuda.choice.wires.values()))) or "none"
    return Prepared(call, f"{cuda.choice.executor} over {wires}: {cuda.choice.why}")


def _lack() -> str:
    """Why this rank has no GPU to use; empty where it has one."""
    if find_spec("cupy") is None:
        return "CuPy is not installed"
    from exec.cuda.device import Device

    try:
        Device()
    except UnavailableError as error:
        return error.message
    return ""
