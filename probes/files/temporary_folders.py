"""Temporary folders: each new one first removes those that killed processes left.

Each folder is locked by the processes that use it, for as long as they live. One that nobody holds
locked was left behind. Only folders of this user and of the given name are touched.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

__all__ = ["folder", "hold", "sweep"]

_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextlib.contextmanager
def folder(prefix: str, parent: Path | None = None) -> Iterator[Path]:
    """A new folder for this user alone, in ``parent`` or where temporary files go, while the block runs."""
    parent = Path(tempfile.gettempdir()) if parent is None else parent
    sweep(prefix, parent)
    path = parent / f"{prefix}{secrets.token_hex(8)}"
    lock = hold(path, shared=False)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def hold(path: Path, *, shared: bool = True) -> int:
    """Make the folder ``path`` where it is not there; a descriptor that keeps it from being swept while open.

    Several processes may hold it ``shared``. Raises OSError, also where it is there and is not to be shared,
    or is another user's.
    """
    while True:
        path.mkdir(mode=0o700, exist_ok=shared)
        try:
            descriptor = os.open(path, _FLAGS)
        except FileNotFoundError:
            continue
        if os.fstat(descriptor).st_uid != os.geteuid():
            os.close(descriptor)
            raise PermissionError(f"{path} belongs to another user")
        # On a file system without locks, nothing is swept either.
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        # Another process may have found it before it was locked, and have swept it.
        if path.exists():
            return descriptor
        os.close(descriptor)


def sweep(prefix: str, parent: Path) -> None:
    """Remove what killed processes of this user left of ``folder`` and ``hold`` in ``parent``."""
    ours = re.compile(rf"{re.escape(prefix)}[0-9a-f]{{16}}")
    with contextlib.suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            if ours.fullmatch(entry.name):
                with contextlib.suppress(OSError):
                    _sweep_one(entry.path)


def _sweep_one(path: str) -> None:
    descriptor = os.open(path, _FLAGS)
    try:
        if os.fstat(descriptor).st_uid == os.geteuid():
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
    finally:
        os.close(descriptor)
