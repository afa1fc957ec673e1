"""Choice of the executor that runs programs on CPUs or GPUs, and preparation of programs for it."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any, Literal, get_args

from exec.peers import Call
from exec.program import Array, Layout
from exec.sockets import Group
from probes.base import SILENT, Progress, UnavailableError, UsageError, meant

__all__ = ["DEVICES", "DeviceKind", "Executor", "executor_of", "parse_device"]

DeviceKind = Literal["cpu", "cuda", "auto"]
ExecutorName = Literal["mpi", "sockets", "cuda"]
DEVICES: tuple[str, ...] = get_args(DeviceKind)


def parse_device(text: str) -> str:
    """Return ``cpu``, ``cuda`` or ``auto``; raises UsageError for anything else."""
    if text not in DEVICES:
        raise UsageError(
            f": expected {', '.join(DEVICES)}, found {text!r}",
            hint="did you mean 'cuda'?"
            if text.lower() in ("gpu", "gpus", "nvidia")
            else meant(text, DEVICES),
            argument="device",
        )
    return text


def require_device_here(asked: str) -> None:
    """Raise UnavailableError if ``asked`` is cuda and CuPy is not installed on this host."""
    if asked == "cuda" and find_spec("cupy") is None:
        raise _without_gpu("CuPy is not installed")


def executor_of(comm: Any, asked: str) -> ExecutorName:
    """Return the executor for device ``asked``, the same on all ranks; collective over ``comm``.

    CPUs use sockets if ``comm`` is a `Group`, otherwise mpi. Raises UnavailableError on all ranks if
    ``asked`` is cuda and any rank has no GPU.
    """
    processors: ExecutorName = "sockets" if isinstance(comm, Group) else "mpi"
    if asked == "cpu":
        return processors
    lacks = comm.allgather(_reason_without_gpu())
    if not any(lacks):
        return "cuda"
    if asked == "auto":
        return processors
    rank = next(rank for rank, lack in enumerate(lacks) if lack)
    raise _without_gpu(f"rank {rank} has no GPU to use: {lacks[rank]}")


def _without_gpu(why: str) -> UnavailableError:
    hint = "ccctl doctor says what is missing; the device cpu runs on the processors."
    return UnavailableError(f" cuda: {why}", hint=hint, argument="device")


class Executor:
    """An executor of programs on the ranks of ``comm``; the constructor and every method are collective.

    ``chosen`` maps the name of each program prepared for GPUs to a description of how it runs there.
    """

    def __init__(self, comm: Any, device: str) -> None:
        self.name, self._comm = executor_of(comm, device), comm
        self.chosen: dict[str, str] = {}

    def ready(
        self,
        layout: Layout,
        send: Array,
        recv: Array,
        redop: str,
        progress: Progress = SILENT,
        *,
        traced: bool = False,
    ) -> Call:
        """Prepare a program on this rank's buffers; return the call that runs it.

        On a GPU, `Call.place` copies the buffers to the GPU and `Call.fetch` copies them back; neither is
        timed. With ``traced`` each run on CPUs is logged.
        """
        if self.name != "cuda":
            from exec.mpi import MpiPlan

            plan = MpiPlan(layout, self._comm, send, recv, redop, progress, traced=traced)
            return Call(plan.run, recv, close=plan.close, kept=plan.kept if traced else None)
        from exec.cuda import CudaPlan

        cuda = CudaPlan(layout, self._comm, send, recv, redop)
        wires = ", ".join(sorted(set(cuda.choice.wires.values()))) or "nothing"
        self.chosen[layout.program.name] = f"{cuda.choice.executor} over {wires}: {cuda.choice.why}"
        return Call(cuda.run, recv, place=cuda.place, fetch=cuda.fetch, close=cuda.close)


def _reason_without_gpu() -> str:
    """Return the reason why this rank cannot use a GPU; "" if it can."""
    if find_spec("cupy") is None:
        return "CuPy is not installed"
    from exec.cuda.kernel import gpus

    try:
        gpus()
    except UnavailableError as error:
        return error.message
    return ""
