"""Temporary folders: making a folder first removes folders that killed processes left.

The processes that use a folder keep it locked while they live. So an unlocked folder was left behind. Only
folders of this user and with the given prefix are removed.
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
    """Make a new private folder in ``parent`` (default: the temporary folder) for the block's duration."""
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
    """Make the folder ``path`` if needed; return a descriptor that protects it from ``sweep`` while open.

    Several processes may hold it ``shared``. Raises OSError, for example if the folder belongs to another
    user, or if it exists and ``shared`` is False.
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
        # A failure is harmless: on a file system without locks, no sweep can lock and remove the folder.
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        # Another process may have swept the folder before it was locked.
        if path.exists():
            return descriptor
        os.close(descriptor)


def sweep(prefix: str, parent: Path) -> None:
    """Remove folders in ``parent`` that killed processes of this user left."""
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
