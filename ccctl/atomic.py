"""Files that are replaced whole: a reader, a kill or a full disk never leaves a part of one."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from ccctl.errors import CannotWriteError

__all__ = ["refuse_unwritable", "write_atomically"]

_SETTLED_S = 60.0


def write_atomically(path: Path, content: bytes | Iterable[bytes], mode: int | None = None) -> None:
    """Replace ``path`` by ``content``, whole or as parts that are written as they come.

    Raises CannotWriteError, and then nothing was changed.
    A symbolic link stays and its target is replaced; a device or a pipe is written to as it is. The file
    keeps its mode, or a new one has that of the umask, unless ``mode`` says otherwise.
    """
    refuse_unwritable(path)
    target = Path(os.path.realpath(path))
    parts = [content] if isinstance(content, bytes) else content
    try:
        if target.exists() and not target.is_file():
            with target.open("wb") as stream:
                stream.writelines(parts)
        else:
            _replace(target, parts, mode)
    except OSError as error:
        raise CannotWriteError(f"{path}: {error.strerror}") from error


def refuse_unwritable(path: Path) -> None:
    """Raise CannotWriteError where ``path`` plainly cannot be written, so that no work is done in vain."""
    target = Path(os.path.realpath(path))
    if not target.parent.is_dir():
        raise CannotWriteError(f"{path}: there is no folder {path.parent}", hint=f"mkdir -p {path.parent}")
    if target.is_dir():
        raise CannotWriteError(f"{path}: is a folder", hint="name a file in it")
    if not os.access(target if target.exists() and not target.is_file() else target.parent, os.W_OK):
        raise CannotWriteError(f"{path}: no permission to write there")


def _replace(target: Path, parts: Iterable[bytes], mode: int | None) -> None:
    prefix, suffix = f".{target.name}.", ".part"
    _sweep(target.parent, prefix, suffix)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=prefix, suffix=suffix)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            stream.writelines(parts)
            stream.flush()
            os.fsync(stream.fileno())
            kept = target.stat().st_mode & 0o777 if target.exists() else 0o666 & ~_umask()
            temporary.chmod(kept if mode is None else mode)
            temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _sweep(folder: Path, prefix: str, suffix: str) -> None:
    """Remove what killed writers of the same file left: parts that no living writer holds locked."""
    for part in folder.glob(f"{prefix}*{suffix}"):
        with contextlib.suppress(OSError), part.open("rb") as stream:
            # A writer that has just created its part may not have locked it yet.
            if time.time() - part.stat().st_mtime > _SETTLED_S:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                part.unlink()


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
