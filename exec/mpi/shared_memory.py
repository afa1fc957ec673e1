"""Shared memory of the ranks of one host: each makes its own window, and maps windows of others as needed.

The memory has no name in any file system, so nothing is left behind however its processes end. If the system
allows it, ranks also copy out of each other's private memory (``probes.live.process_memory``).
"""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from exec.program import Array
from probes.base import UnavailableError
from probes.live import read_process

__all__ = ["Origin", "Window", "fetched_word", "mapped", "origin_of", "shared_array"]

_WINDOWS: weakref.WeakSet[Window] = weakref.WeakSet()


class Origin(NamedTuple):
    """The place of an array of another process: process, open file, and byte offset in that file."""

    pid: int
    file: int
    offset: int


class Window(mmap.mmap):
    """``size_bytes`` of zeroed memory that other processes can map; it lives as long as any array in it."""

    file: int
    address: int

    def __new__(cls, size_bytes: int) -> Window:
        file = os.memfd_create("ccctl")
        os.ftruncate(file, max(1, size_bytes))
        window = super().__new__(cls, file, max(1, size_bytes))
        window.file = file
        window.address = np.frombuffer(window, np.uint8).ctypes.data
        _WINDOWS.add(window)
        return window

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __del__(self) -> None:
        with suppress(OSError):
            os.close(self.file)


def shared_array(elements: int, dtype: np.dtype[Any]) -> Array:
    """Return zeros in memory that other ranks of this host can read in place, without a copy."""
    return np.frombuffer(Window(elements * dtype.itemsize), dtype, elements)


def origin_of(array: Array) -> Origin | None:
    """Return the place of ``array`` for other processes; None if its memory is private."""
    first, size_bytes = array.ctypes.data, array.nbytes
    for window in tuple(_WINDOWS):
        if window.address <= first and first + size_bytes <= window.address + len(window):
            return Origin(os.getpid(), window.file, first - window.address)
    return None


def fetched_word(pid: int, address: int) -> int | None:
    """Return the 64-bit word at ``address`` of another process; None if the system does not allow it."""
    word = ctypes.c_int64()
    return word.value if read_process(pid, address, ctypes.addressof(word), 8) else None


def mapped(pid: int, file: int) -> Array:
    """Return the window of another process of this host, as bytes.

    Raises UnavailableError if it cannot be mapped.
    """
    path = f"/proc/{pid}/fd/{file}"
    try:
        opened = os.open(path, os.O_RDWR)
    except OSError as error:
        raise UnavailableError(f"{path}: the memory of another rank cannot be mapped: {error}") from error
    try:
        return np.frombuffer(mmap.mmap(opened, os.fstat(opened).st_size), np.uint8)
    finally:
        os.close(opened)
