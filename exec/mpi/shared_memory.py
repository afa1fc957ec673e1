"""Memory that the ranks of one host share: each rank's own, which the others map where they need it.

It has no name in any file system, so that nothing of it is left behind, however its processes end. Where
the system allows that, ranks also copy out of each other's private memory (``probes.live.process_memory``).
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
    """Where an array of another process lies: the process, its open file, bytes from the file's start."""

    pid: int
    file: int
    offset: int


class Window(mmap.mmap):
    """``size_bytes`` of zeros; it lives as long as an array in it does."""

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
    """Zeros that other ranks of this host can read in place: what a plan need not copy for them."""
    return np.frombuffer(Window(elements * dtype.itemsize), dtype, elements)


def origin_of(array: Array) -> Origin | None:
    """Return where other processes find ``array``; None where it is private to this one."""
    first, size_bytes = array.ctypes.data, array.nbytes
    for window in tuple(_WINDOWS):
        if window.address <= first and first + size_bytes <= window.address + len(window):
            return Origin(os.getpid(), window.file, first - window.address)
    return None


def fetched_word(pid: int, address: int) -> int | None:
    """Return the word of 64 bits at ``address`` of another process.

    None where the system does not allow that.
    """
    word = ctypes.c_int64()
    return word.value if read_process(pid, address, ctypes.addressof(word), 8) else None


def mapped(pid: int, file: int) -> Array:
    """Return the window of another process of this host, as bytes.

    Raises UnavailableError where it cannot be.
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
