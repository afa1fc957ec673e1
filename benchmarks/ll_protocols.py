"""NCCL's LL and LL128 between two processes in shared memory, beside slots with one flag behind the data.

    python -P benchmarks/ll_protocols.py [--rounds 7] [--iters 400]

Ping-pong of two processes, each pinned to a core. A row has the median microseconds of one way, from the
sender's private memory to the receiver's. ``slot`` works as ``exec.mpi``: the sender writes all data, then
one flag; the receiver waits for the flag before it copies. ``LL`` has 4 bytes of data and 4 of flag in each
word of 8, and the receiver takes each word as it comes. ``LL64`` and ``LL128`` end each line of 64 (a cache
line here) or 128 bytes with 8 bytes of flag. All use 16 slots in turn and are compiled by numba.
"""

from __future__ import annotations

import argparse
import mmap
import os
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
from numba import njit

from exec.intrinsics import copy_bytes, load, pointer, store

SIZES = tuple(1 << power for power in range(2, 17, 2))
SLOTS = 16
# Flags are message numbers that grow and are larger than any data: nothing left in a slot passes for a flag.
FIRST_NUMBER = 1 << 30


@njit(nogil=True)
def put_slot(to: int, data: Any, words: int, number: int) -> None:
    """Write all data, then the flag."""
    copy_bytes(pointer(to), pointer(data.ctypes.data), 4 * words)
    store(to + (4 * words + 7) // 8 * 8, number)


@njit(nogil=True)
def take_slot(at: int, data: Any, words: int, number: int) -> None:
    """Wait for the flag, then copy all data."""
    flag = at + (4 * words + 7) // 8 * 8
    while load(flag) != number:
        pass
    copy_bytes(pointer(data.ctypes.data), pointer(at), 4 * words)


@njit(nogil=True)
def put_words(to: int, data: Any, words: int, number: int) -> None:
    """LL: write words of 8 bytes, the low half data and the high half flag."""
    for word in range(words):
        store(to + 8 * word, (np.int64(number) << 32) | np.int64(data[word]))


@njit(nogil=True)
def take_words(at: int, data: Any, words: int, number: int) -> None:
    """LL: wait for the flag of each word and take its data."""
    for word in range(words):
        seen = load(at + 8 * word)
        while seen >> 32 != number:
            seen = load(at + 8 * word)
        data[word] = np.uint32(seen & 0xFFFFFFFF)


def lines_of(line_bytes: int) -> tuple[Callable[..., None], Callable[..., None]]:
    """Return (write, read) of LL128 for lines of ``line_bytes``; the last 8 bytes of a line are its flag."""
    room = (line_bytes - 8) // 4

    @njit(nogil=True)
    def put(to: int, data: Any, words: int, number: int) -> None:
        first = 0
        while first < words:
            length = min(room, words - first)
            copy_bytes(pointer(to), pointer(data.ctypes.data + 4 * first), 4 * length)
            store(to + line_bytes - 8, number)
            first, to = first + room, to + line_bytes

    @njit(nogil=True)
    def take(at: int, data: Any, words: int, number: int) -> None:
        first = 0
        while first < words:
            length = min(room, words - first)
            while load(at + line_bytes - 8) != number:
                pass
            copy_bytes(pointer(data.ctypes.data + 4 * first), pointer(at), 4 * length)
            first, at = first + room, at + line_bytes

    return put, take


PROTOCOLS = {
    "slot": (put_slot, take_slot),
    "LL": (put_words, take_words),
    "LL64": lines_of(64),
    "LL128": lines_of(128),
}


def slot_bytes(words: int) -> int:
    """Return bytes of a slot that holds a message by any of the protocols: LL needs the most."""
    return (8 * words + 255) // 128 * 128


def ping_pong(put: Callable[..., None], take: Callable[..., None]) -> Any:
    """Return the compiled loop over messages to and fro; the process with ``first`` sends first."""

    @njit(nogil=True)
    def loop(
        there: int, back: int, each: int, data: Any, got: Any, begin: int, end: int, first: bool
    ) -> None:
        words = len(data)
        for number in range(begin, end):
            at = number % SLOTS * each
            if first:
                put(there + at, data, words, number)
                take(back + at, got, words, number)
            else:
                take(back + at, got, words, number)
                put(there + at, got, words, number)

    return loop


def main() -> None:
    """Print the table."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--rounds", type=int, default=7)
    options.add_argument("--iters", type=int, default=400)
    asked = options.parse_args()
    loops = {name: ping_pong(*both) for name, both in PROTOCOLS.items()}
    memory = mmap.mmap(-1, 2 * SLOTS * slot_bytes(SIZES[-1] // 4) + 4096)
    shared = np.frombuffer(memory, np.uint8)
    base = (shared.ctypes.data + 127) // 128 * 128
    data = np.arange(1, SIZES[-1] // 4 + 1, dtype=np.uint32)
    for loop in loops.values():
        loop(base, base, 128, data, data.copy(), 0, 0, True)
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        sys.exit("two cores are needed")
    child = os.fork()
    first = bool(child)
    os.sched_setaffinity(0, {cores[0 if first else 1]})
    found: dict[tuple[int, str], list[float]] = {}
    number = FIRST_NUMBER
    for _ in range(asked.rounds):
        for size in SIZES:
            words, each = size // 4, slot_bytes(size // 4)
            for protocol, loop in loops.items():
                got = np.zeros(words, np.uint32)
                there, back = (base, base + SLOTS * each) if first else (base + SLOTS * each, base)
                begin, number = number, number + asked.iters
                begun_s = time.perf_counter()
                loop(there, back, each, data[:words], got, begin, number, first)
                taken_s = time.perf_counter() - begun_s
                if (got != data[:words]).any():
                    os._exit(1) if not first else sys.exit(f"{protocol}, {size} bytes: wrong data")
                found.setdefault((size, protocol), []).append(taken_s / asked.iters / 2 * 1e6)
    if not first:
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if status:
        sys.exit("the other process found wrong data")
    print(f"{'bytes':>7}" + "".join(f"{name:>9}" for name in PROTOCOLS) + "   us one way")
    for size in SIZES:
        print(f"{size:7}" + "".join(f"{median(found[size, name]):9.3f}" for name in PROTOCOLS), flush=True)


if __name__ == "__main__":
    main()
