"""Memory bandwidth of a rank while all ranks are busy: copies, sums, copies out of another rank's memory."""

from __future__ import annotations

import os
from dataclasses import dataclass
from statistics import median
from time import thread_time
from typing import Any

import numpy as np

from probes.live.host_key import host_key
from probes.live.process_memory import read_process

__all__ = ["SIZES_BYTES", "MemorySpeed", "memory_speed"]

# From the innermost caches to beyond the largest; of an operand, of which a sum has three.
SIZES_BYTES = (1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24)
# As often as so many bytes need, and each so many times, of which the median counts.
_BYTES, _TIMES = 4 << 20, 5
# Elements of what comes at once, to be added.
_BLOCK = (128 << 10) // 4


@dataclass(frozen=True)
class MemorySpeed:
    """A rank's seconds for a byte of an operand, one value a size; ``fetches`` are empty where impossible.

    ``cores`` are the numbers of those that it may run on.
    """

    copies: tuple[float, ...]
    sums: tuple[float, ...]
    fetches: tuple[float, ...]
    cores: frozenset[int]


def memory_speed(comm: Any) -> MemorySpeed:
    """What this rank copies, adds, and fetches from the next rank of its host; collective.

    All ranks begin at once; what counts is processor time, for where ranks outnumber cores each also waits
    for its turn, by chance within what is timed or outside. Sums are of float32: an operand and what has just
    come, which is in the caches, into a third place. What is fetched has been written by its rank just
    before, as partial results are.
    """
    operands = [np.ones(SIZES_BYTES[-1] // 4, np.float32) for _ in range(3)]
    copies, sums, fetches = [], [], []
    pid, address = _next_here(comm, operands[0])
    for size_bytes in SIZES_BYTES:
        first, second, result = (array[: size_bytes // 4] for array in operands)
        turns = max(1, _BYTES // size_bytes)
        taken_s: tuple[list[float], list[float]] = ([], [])
        for _ in range(_TIMES):
            comm.Barrier()
            begin_s = thread_time()
            for _ in range(turns):
                np.copyto(result, first)
            middle_s = thread_time()
            for _ in range(turns):
                for begin in range(0, len(first), _BLOCK):
                    block = slice(begin, begin + _BLOCK)
                    np.add(first[block], second[: len(first[block])], out=result[block])
            taken_s[0].append(middle_s - begin_s)
            taken_s[1].append(thread_time() - middle_s)
        copies.append(median(taken_s[0]) / turns / size_bytes)
        sums.append(median(taken_s[1]) / turns / size_bytes)
        fetched_s, whole = [], True
        for _ in range(2 * _TIMES):
            first[:] = 1.0
            comm.Barrier()
            begin_s = thread_time()
            whole = read_process(pid, address, result.ctypes.data, size_bytes) and whole
            fetched_s.append(thread_time() - begin_s)
            comm.Barrier()
        if whole:
            fetches.append(median(fetched_s) / size_bytes)
    known = tuple(fetches) if len(fetches) == len(SIZES_BYTES) else ()
    return MemorySpeed(tuple(copies), tuple(sums), known, frozenset(os.sched_getaffinity(0)))


def _next_here(comm: Any, operand: Any) -> tuple[int, int]:
    """The process of the next rank of this host, and where its operand is; this rank's own if it is alone."""
    every = comm.allgather((host_key(), os.getpid(), operand.ctypes.data))
    here = [(pid, address) for key, pid, address in every if key == every[comm.Get_rank()][0]]
    own = here.index((os.getpid(), operand.ctypes.data))
    return here[(own + 1) % len(here)]
