"""Copies out of the memory of another process of this user, if the system allows that.

Linux allows it between processes that may trace each other (``process_vm_readv``). Yama and containers can
forbid it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache

__all__ = ["read_process", "reader_of"]


class _Vector(ctypes.Structure):
    """An ``iovec``: bytes at an address."""

    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


def read_process(pid: int, address: int, to: int, size_bytes: int) -> bool:
    """Copy ``size_bytes`` from ``address`` of process ``pid`` to the address ``to`` of this one.

    Returns False if the system forbids it, or if the copy is incomplete.
    """
    return reader_of(pid, address, to, size_bytes)()


def reader_of(pid: int, address: int, to: int, size_bytes: int) -> Callable[[], bool]:
    """Return ``read_process`` with its arguments bound: each call is only the system call."""
    here, there, read = _Vector(to, size_bytes), _Vector(address, size_bytes), _reader()
    arguments = pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0
    return lambda: bool(read(*arguments) == size_bytes)


@cache
def _reader() -> Callable[..., int]:
    """Return the system call as a function; without the call, a function that always fails."""
    found = getattr(ctypes.CDLL(None), "process_vm_readv", None)
    if found is None:
        return lambda *_: -1
    found.restype = ctypes.c_ssize_t
    reader: Callable[..., int] = found
    return reader
