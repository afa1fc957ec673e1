"""Files replaced whole: no reader finds a partial file, even after a kill or on a full disk."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from ccctl import console
from ccctl.errors import CannotWriteError

__all__ = ["PART", "made_folder", "refuse_unwritable", "write_atomically", "write_output"]

# The name of a file that is still being written, or that a killed writer left.
PART = re.compile(r"\.ccctl-[0-9a-f]{16}\.part")


def write_atomically(path: Path, content: bytes | Iterable[bytes], mode: int | None = None) -> None:
    """Replace ``path`` by ``content``: bytes, or an iterable of parts, each written as it comes.

    Raises CannotWriteError if that fails; a file is then unchanged. A symbolic link stays and its target is
    replaced; a device or a pipe is opened and written directly. Without ``mode``, an existing file keeps its
    mode, and a new one gets 0o666 without the bits of the umask.
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


def write_output(path: str | None, content: bytes) -> None:
    """Write ``content`` to stdout if ``path`` is "-" or None, else as ``write_atomically`` does."""
    if path in (None, "-"):
        console.raw(content)
    else:
        write_atomically(Path(str(path)), content)


def made_folder(path: str) -> Path:
    """Return a folder, made if there is none; raise CannotWriteError if that fails."""
    folder = Path(path)
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise CannotWriteError(f"{path}: {error.strerror}") from error
    return folder


def refuse_unwritable(path: Path) -> None:
    """Raise CannotWriteError where ``path`` plainly cannot be written, so that no work is done in vain."""
    _refuse_planted(path)
    target = Path(os.path.realpath(path))
    try:
        target.is_dir()
    except OSError as error:  # a name that is too long, say
        raise CannotWriteError(f"{path}: {error.strerror}") from error
    if not target.parent.is_dir():
        raise CannotWriteError(f"{path}: there is no folder {path.parent}", hint=f"mkdir -p {path.parent}")
    if target.is_dir():
        raise CannotWriteError(f"{path}: is a folder", hint="name a file in it")
    if not os.access(target if target.exists() and not target.is_file() else target.parent, os.W_OK):
        raise CannotWriteError(f"{path}: no permission to write there")


def _refuse_planted(path: Path) -> None:
    """Raise CannotWriteError for another user's symbolic link in a folder that others can write to.

    The other user chooses where such a link leads. Links of root and of the folder's owner are allowed. The
    kernel refuses such links in sticky folders if fs.protected_symlinks is set.
    """
    with contextlib.suppress(OSError):
        link, folder = path.lstat(), path.parent.stat()
        shared = folder.st_mode & (stat.S_IWOTH | stat.S_IWGRP)
        if stat.S_ISLNK(link.st_mode) and shared and link.st_uid not in (0, os.geteuid(), folder.st_uid):
            raise CannotWriteError(
                f"{path}: is a symbolic link of user {link.st_uid}", hint="remove it, or write elsewhere"
            )


def _replace(target: Path, parts: Iterable[bytes], mode: int | None) -> None:
    _sweep(target.parent)
    temporary, stream = _part(target.parent)
    try:
        with stream:
            stream.writelines(parts)
            stream.flush()
            kept = target.stat().st_mode & 0o777 if target.exists() else 0o666 & ~_umask()
            os.fchmod(stream.fileno(), kept if mode is None else mode)
            os.fsync(stream.fileno())
            temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _part(folder: Path) -> tuple[Path, BinaryIO]:
    """Return a new part file in ``folder``; the file is locked until it is closed."""
    while True:
        path = folder / f".ccctl-{secrets.token_hex(8)}.part"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        stream = os.fdopen(descriptor, "wb")
        try:
            fcntl.flock(stream, fcntl.LOCK_EX)
        except OSError:
            # The file system has no locks, so ``_sweep`` removes nothing there.
            return path, stream
        # Another writer may have removed the file before it was locked.
        if path.exists():
            return path, stream
        stream.close()


def _sweep(folder: Path) -> None:
    """Remove what killed writers left in ``folder``: part files of this user that nobody locks."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if PART.fullmatch(entry.name):
                with contextlib.suppress(OSError):
                    _sweep_one(entry.path)


def _sweep_one(path: str) -> None:
    # O_NONBLOCK, because opening a pipe of that name would wait for a writer otherwise.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(descriptor)
        if stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid():
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            Path(path).unlink()
    finally:
        os.close(descriptor)


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
