"""Links between GPUs of one host, and between a GPU and its CPU, measured by copies timed on the device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np

from probes.link_costs import HostCopies
from probes.sampling.packet_trains import Trains
from probes.statistics import fit

__all__ = ["GpuEnd", "host_copies", "latencies", "lend", "trains_from"]

# Each kind of probe has its own tag, so that probes never receive each other's messages.
_TAG = 103
# Sizes at which the start of a copy does not dominate its time.
SIZES = tuple(1 << 20 << step for step in range(7))
# Alpha is measured by _TINY_TIMES copies of so few bytes that these add almost no time.
_TINY_BYTES, _TINY_TIMES = 8, 50
# The fewest and the most copies of each size for beta.
_FEWEST, _MOST = 5, 32
# Copies before each measurement that do not count.
_WARM = 3


class GpuEnd(Protocol):
    """One GPU of this process, as implemented by ``probes.live.cuda_links``."""

    name: str

    def lend(self) -> bytes:
        """Return the handle with which another process opens this GPU's buffer."""

    def borrowed(self, handle: bytes) -> AbstractContextManager[int]:
        """Open a buffer that another process lends; yields its address."""

    def pull_s(self, address: int, size_bytes: int) -> float:
        """Return the seconds of one copy from a borrowed buffer."""

    def from_host_s(self, size_bytes: int) -> float:
        """Return the seconds of one copy from the CPU."""

    def to_host_s(self, size_bytes: int) -> float:
        """Return the seconds of one copy to the CPU."""


def lend(comm: Any, peer: int, gpu: GpuEnd) -> None:
    """Let ``peer`` copy from this GPU until it reports that it is done."""
    comm.send(gpu.lend(), dest=peer, tag=_TAG)
    comm.recv(source=peer, tag=_TAG)


def latencies(comm: Any, peer: int, gpu: GpuEnd) -> list[float]:
    """Return the seconds of tiny copies from ``peer``, which must run ``lend`` meanwhile."""
    handle = comm.recv(source=peer, tag=_TAG)
    with gpu.borrowed(handle) as address:
        for _ in range(_WARM):
            gpu.pull_s(address, _TINY_BYTES)
        seconds = [gpu.pull_s(address, _TINY_BYTES) for _ in range(_TINY_TIMES)]
    comm.send(None, dest=peer, tag=_TAG)
    return seconds


def trains_from(comm: Any, peer: int, gpu: GpuEnd, budget_s: float, wanted: Sequence[int] = ()) -> Trains:
    """Time copies of several sizes for about ``budget_s``; ``peer`` must run ``lend`` meanwhile."""
    handle = comm.recv(source=peer, tag=_TAG)
    with gpu.borrowed(handle) as address:
        found = _timed(lambda size: gpu.pull_s(address, size), budget_s, wanted or SIZES)
    comm.send(None, dest=peer, tag=_TAG)
    return found


def host_copies(rank: int, gpu: GpuEnd, budget_s: float) -> HostCopies:
    """Measure the cost of copies between this GPU and its CPU, in each direction."""
    ways = []
    for copy in (gpu.from_host_s, gpu.to_host_s):
        tiny = [copy(_TINY_BYTES) for _ in range(_TINY_TIMES)]
        ways += [min(tiny), fit(_timed(copy, budget_s, SIZES).seconds).beta_s_per_byte]
    return HostCopies(rank, *ways)


def _timed(copy: Callable[[int], float], budget_s: float, sizes: Sequence[int]) -> Trains:
    """Time each size 5 to 32 times, in an equal share of the budget; warm-up does not count."""
    warm = [copy(sizes[0]) for _ in range(_WARM)]
    pace = float(np.median(warm)) / sizes[0]
    each_s = budget_s / len(sizes)
    seconds = {}
    for size in sizes:
        times = int(max(_FEWEST, min(_MOST, each_s / max(pace * size, 1e-9))))
        seconds[size] = [copy(size) for _ in range(times)]
    return Trains(seconds)
