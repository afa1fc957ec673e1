"""Memory bandwidth of a rank while all ranks are busy: copies, sums, copies out of another rank's memory."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from statistics import median
from time import thread_time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from probes.live.host_identity import host_key
from probes.live.memory import rooms
from probes.live.process_memory import reader_of

__all__ = ["SIZES_BYTES", "MemorySpeed", "memory_speed"]

Floats32 = NDArray[np.float32]

# Sizes of one operand in bytes, from within the innermost caches to beyond the largest. A sum has three
# operands of a size.
SIZES_BYTES = (1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 23, 1 << 24, 1 << 25, 1 << 26)
# Bytes that one measurement works on. The median of _TIMES measurements counts, or of _FEWER_TIMES if an
# operand is larger than that.
_BYTES, _TIMES, _FEWER_TIMES = 4 << 20, 5, 3
# A rank yields its core after this many bytes. The next rank on that core then finds other data in the
# caches, as in a run.
_TURN_BYTES = 512 << 10
# Elements added at once: 128 KiB of float32, which stay in the caches of a core.
_BLOCK = (128 << 10) // 4
# Operands take at most this share of the free memory.
_SHARE_OF_FREE = 1 / 8


@dataclass(frozen=True)
class MemorySpeed:
    """A rank's seconds per byte of an operand, one value for each of ``sizes_bytes``.

    ``fetches`` read data that the owner has not written since the last fetch. ``written_fetches`` read data
    that the owner has just written and has in its caches. Both are empty if the system forbids reading
    another process. ``cores`` are the numbers of the cores that the rank may use.
    """

    sizes_bytes: tuple[int, ...]
    copies: tuple[float, ...]
    sums: tuple[float, ...]
    fetches: tuple[float, ...]
    written_fetches: tuple[float, ...]
    cores: frozenset[int]


def memory_speed(comm: Any, between: Callable[[], None] = lambda: None) -> MemorySpeed:
    """Time this rank's copies, sums, and fetches from the next rank of its host; collective.

    All ranks start together. Times are processor times, because ranks wait for their turn if they outnumber
    cores. A sum adds float32 elements of an operand and of a block that stays in the caches, and writes the
    result to a third buffer. Sizes that do not fit the memory are left out. ``between`` is called before each
    barrier, as a sign of progress.
    """

    def barrier() -> None:
        between()
        comm.Barrier()

    sizes_bytes = _sizes_bytes(comm)
    operands = [np.ones(sizes_bytes[-1] // 4, np.float32) for _ in range(3)]
    pid, address = _next_here(comm, operands[0])
    costs: list[tuple[float, ...]] = []
    whole = True
    for size_bytes in sizes_bytes:
        first, second, result = (array[: size_bytes // 4] for array in operands)
        fetch = reader_of(pid, address, result.ctypes.data, size_bytes)
        copy = _timed(barrier, partial(np.copyto, result, first), size_bytes)
        add = _timed(barrier, partial(_add, first, second, result), size_bytes)
        whole = fetch() and whole
        clean = _timed(barrier, fetch, size_bytes)
        written = _timed(barrier, fetch, size_bytes, partial(first.fill, 1.0))
        costs.append(tuple(one_s / size_bytes for one_s in (copy, add, clean, written)))
    copies, sums, fetches, written_fetches = zip(*costs, strict=True)
    if not whole:
        fetches = written_fetches = ()
    cores = frozenset(os.sched_getaffinity(0))
    return MemorySpeed(sizes_bytes, copies, sums, fetches, written_fetches, cores)


def _sizes_bytes(comm: Any) -> tuple[int, ...]:
    """Return the sizes whose operands fit ``_SHARE_OF_FREE`` of each host's free memory; at least one."""
    free = min((room.free_bytes for room in rooms() if not room.shared), default=0)
    every = comm.allgather((host_key(), free))
    ranks = Counter(key for key, _ in every)
    most_bytes = min(free * _SHARE_OF_FREE / 3 / ranks[key] for key, free in every)
    return tuple(size for size in SIZES_BYTES if size <= most_bytes) or SIZES_BYTES[:1]


def _timed(
    barrier: Callable[[], None],
    work: Callable[[], object],
    size_bytes: int,
    before: Callable[[], object] | None = None,
) -> float:
    """Return the median processor seconds of ``work`` on ``size_bytes`` while all ranks do it.

    ``before`` runs before each ``work``, untimed.
    """
    turns = max(1, _BYTES // size_bytes) if before is None else 1
    at_once = max(1, _TURN_BYTES // size_bytes)
    taken_s = []
    for _ in range((_TIMES if size_bytes <= _BYTES else _FEWER_TIMES) * (1 if before is None else 2)):
        if before is not None:
            before()
        barrier()
        begin_s = thread_time()
        for turn in range(turns):
            work()
            if turn % at_once == at_once - 1:
                os.sched_yield()
        taken_s.append((thread_time() - begin_s) / turns)
        barrier()
    return median(taken_s)


def _add(first: Floats32, second: Floats32, result: Floats32) -> None:
    """Add an operand and a block that stays in the caches, block by block, into ``result``."""
    for begin in range(0, len(first), _BLOCK):
        block = slice(begin, begin + _BLOCK)
        np.add(first[block], second[: len(first[block])], out=result[block])


def _next_here(comm: Any, operand: Any) -> tuple[int, int]:
    """Return (process, address of its operand) of the next rank on this host; this rank's own if alone."""
    every = comm.allgather((host_key(), os.getpid(), operand.ctypes.data))
    here = [(pid, address) for key, pid, address in every if key == every[comm.Get_rank()][0]]
    own = here.index((os.getpid(), operand.ctypes.data))
    return here[(own + 1) % len(here)]
