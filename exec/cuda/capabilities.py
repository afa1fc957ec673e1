"""The GPUs of all ranks, their peer access, and whether all have NCCL and a CUDA-aware MPI."""

from __future__ import annotations

import ctypes
import platform
from contextlib import suppress
from typing import Any

from exec.cuda.kernel import Device, gpus
from exec.cuda.select import Facts
from exec.cuda.streams import nccl

__all__ = ["cuda_aware", "device_of", "gathered", "keeps_lines_whole", "multicast", "on_one_host"]

# CPUs that make stores visible in the order of the program.
_ORDERED = ("x86_64", "AMD64")


def device_of(comm: Any) -> Device:
    """Return the GPU of this rank: the n-th rank of a host gets GPU n modulo the number of GPUs.

    Collective over ``comm``; raises UnavailableError if this machine has no GPU.
    """
    from mpi4py import MPI

    mates = comm.Split_type(MPI.COMM_TYPE_SHARED)
    place = int(mates.Get_rank())
    mates.Free()
    return Device(place % gpus())


def on_one_host(comm: Any) -> bool:
    """Return whether all ranks are on one host; collective, the same on each rank."""
    from mpi4py import MPI

    mates = comm.Split_type(MPI.COMM_TYPE_SHARED)
    together = mates.Get_size() == comm.Get_size()
    mates.Free()
    return bool(comm.allreduce(together, op=MPI.LAND))


def keeps_lines_whole(comm: Any, device: Device) -> bool:
    """Return whether each pair of ranks, all on one host, shares a GPU or is connected by NVLink; collective.

    LL128 needs lines of 128 bytes that arrive whole, which only these connections guarantee. Without NVML the
    answer is False.
    """
    from mpi4py import MPI

    this_gpu = device.bus_id()
    others = set(comm.allgather(this_gpu)) - {this_gpu}
    return bool(comm.allreduce(not others or _has_nvlink_to(this_gpu, others), op=MPI.LAND))


def multicast(comm: Any, device: Device) -> tuple[list[str], list[bool]]:
    """Return the names of all ranks' GPUs, and whether each has multicast memory; collective."""
    every = comm.allgather((device.name, device.has_multicast()))
    return [name for name, _ in every], [has for _, has in every]


def gathered(comm: Any, device: Device, room: int) -> Facts:
    """Return the facts of all ranks, the same on each; collective.

    ``room`` is the number of threadblocks that this rank's GPU runs at once.
    """
    from mpi4py import MPI

    runtime = device.cupy.cuda.runtime
    this_gpu = (MPI.Get_processor_name(), device.bus_id())
    every = comm.allgather((*this_gpu, room))
    mates = {gpu for host, gpu, _ in every if host == this_gpu[0] and gpu != this_gpu[1]}
    seen = [(*this_gpu, gpu) for gpu in sorted(mates) if _reaches(runtime, device.number, gpu)]
    reachable = frozenset(entry for entries in comm.allgather(seen) for entry in entries)
    return Facts(
        hosts=tuple(host for host, _, _ in every),
        gpus=tuple(gpu for _, gpu, _ in every),
        reachable=reachable,
        room=tuple(most for _, _, most in every),
        nccl=bool(comm.allreduce(nccl.available(), op=MPI.LAND)),
        cuda_aware=bool(comm.allreduce(cuda_aware(), op=MPI.LAND)),
        ordered=bool(comm.allreduce(platform.machine() in _ORDERED, op=MPI.LAND)),
    )


def cuda_aware() -> bool:
    """Return whether the MPI library reports that it reads and writes GPU memory."""
    from mpi4py import MPI

    library = ctypes.CDLL(MPI.__file__)
    if hasattr(library, "MPIX_Query_cuda_support"):
        return bool(library.MPIX_Query_cuda_support())
    if hasattr(library, "MPIX_GPU_query_support"):
        supported = ctypes.c_int(0)
        of_cuda = 0
        library.MPIX_GPU_query_support(of_cuda, ctypes.byref(supported))
        return bool(supported.value)
    return False


def _has_nvlink_to(this_gpu: str, others: set[str]) -> bool:
    """Return whether GPU ``this_gpu`` has NVLink to all ``others`` (PCI bus ids), according to NVML."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return False
    try:
        first, *peers = (
            pynvml.nvmlDeviceGetHandleByPciBusId(gpu.encode()) for gpu in (this_gpu, *sorted(others))
        )
        by_nvlink = pynvml.NVML_P2P_CAPS_INDEX_NVLINK
        states = [pynvml.nvmlDeviceGetP2PStatus(first, peer, by_nvlink) for peer in peers]
        return all(state == pynvml.NVML_P2P_STATUS_OK for state in states)
    except pynvml.NVMLError:
        return False
    finally:
        with suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def _reaches(runtime: Any, number: int, gpu: str) -> bool:
    """Return whether GPU ``number`` can read the memory of ``gpu``; False if this process does not see it."""
    try:
        return bool(runtime.deviceCanAccessPeer(number, runtime.deviceGetByPCIBusId(gpu)))
    except runtime.CUDARuntimeError:
        return False
