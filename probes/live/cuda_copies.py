"""Copies from GPUs to pinned memory of their own NUMA node, for the probes of contention."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from probes.base import UnavailableError
from probes.live.affinity import bound_to
from probes.live.cuda import cuda_errors, cupy_module

__all__ = ["CudaCopies"]

# The bytes of one copy, the number of streams of the busy GPU (AdapCC, Sec. IV-A), and the value of CUDA's
# constant cudaMemcpyDeviceToHost.
_COPY_BYTES = 20 << 20
_STREAMS = 8
_TO_HOST = 2
# Copies queued on each stream of the busy GPU; later tries queue more, so that the load lasts longer.
_ROUNDS = (4, 16, 64)


@dataclass
class _Lane:
    """One stream of a GPU with the memory at both of its ends."""

    stream: Any
    device: Any
    host: Any


class CudaCopies:
    """Copies of 20 MB from GPU to CPU, alone or while another GPU sends over eight streams; uses CuPy."""

    def __init__(self, gpus: Sequence[str], cpus: Mapping[str, str]) -> None:
        """Prepare the GPUs with these bus ids; ``cpus`` lists the CPUs near each. Raises UnavailableError."""
        self._cuda = cupy_module().cuda
        with cuda_errors():
            self._numbers = {gpu: self._cuda.runtime.deviceGetByPCIBusId(gpu) for gpu in gpus}
            self._lanes = {gpu: self._lanes_of(gpu, cpus.get(gpu, "")) for gpu in gpus}

    def alone_gbs(self, gpu: str) -> float:
        """Return GB/s of one copy without other traffic."""
        with cuda_errors():
            return self._timed(gpu)

    def beside_gbs(self, gpu: str, other: str) -> float:
        """Return GB/s of one copy while ``other`` is busy.

        The copy is repeated with more load if the load ended before the copy did.
        """
        for rounds in _ROUNDS:
            with cuda_errors():
                ends = self._load(other, rounds)
                gbs = self._timed(gpu)
                busy = not all(end.done for end in ends)
                for end in ends:
                    end.synchronize()
            if busy:
                return gbs
        raise UnavailableError(f"{other} was never busy for as long as {gpu} copied")

    @contextmanager
    def running(self, gpu: str) -> Iterator[None]:
        """Keep the GPU's PCIe link busy while the block runs, at most until about 10 GB are copied.

        One copy on each stream is completed before the block starts, so that the link has left its idle
        speed.
        """
        with cuda_errors():
            for end in self._load(gpu, 1):
                end.synchronize()
            ends = self._load(gpu, _ROUNDS[-1])
        try:
            yield
        finally:
            with cuda_errors():
                for end in ends:
                    end.synchronize()

    def _timed(self, gpu: str) -> float:
        lane = self._lanes[gpu][0]
        with self._cuda.Device(self._numbers[gpu]):
            first, last = self._cuda.Event(), self._cuda.Event()
            first.record(lane.stream)
            self._copy(lane)
            last.record(lane.stream)
            last.synchronize()
            seconds: float = self._cuda.get_elapsed_time(first, last) / 1000
        return _COPY_BYTES / seconds / 1e9

    def _load(self, gpu: str, rounds: int) -> list[Any]:
        """Queue ``rounds`` copies on each stream; return the events at their ends."""
        ends = []
        with self._cuda.Device(self._numbers[gpu]):
            for lane in self._lanes[gpu]:
                for _ in range(rounds):
                    self._copy(lane)
                end = self._cuda.Event()
                end.record(lane.stream)
                ends.append(end)
        return ends

    def _copy(self, lane: _Lane) -> None:
        self._cuda.runtime.memcpyAsync(lane.host.ptr, lane.device.ptr, _COPY_BYTES, _TO_HOST, lane.stream.ptr)

    def _lanes_of(self, gpu: str, cpus: str) -> list[_Lane]:
        with bound_to(cpus), self._cuda.Device(self._numbers[gpu]):
            return [
                _Lane(
                    self._cuda.Stream(non_blocking=True),
                    self._cuda.alloc(_COPY_BYTES),
                    self._cuda.alloc_pinned_memory(_COPY_BYTES),
                )
                for _ in range(_STREAMS)
            ]
