"""Ownership of folders: whether anybody but this user could have changed anything in them.

A folder is ours if no part of its path is a symbolic link, every part belongs to this user or root, and
nobody else may write to it. A parent may be sticky, such as /tmp: only the owner can rename or remove a file
in it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from probes.base import UnavailableError

__all__ = ["make", "opened", "refuse_foreign", "remove"]

_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


@contextlib.contextmanager
def opened(path: Path) -> Iterator[int]:
    """Open the folder ``path``, which is absolute, and yield its descriptor.

    Raises FileNotFoundError if it does not exist, and UnavailableError if it is not ours.
    """
    descriptor = os.open("/", _FLAGS)
    try:
        for number, name in enumerate(path.parts[1:], start=2):
            place = Path(*path.parts[:number])
            inner = _entered(descriptor, name, place)
            os.close(descriptor)
            descriptor = inner
            _refuse_others(os.fstat(descriptor), place, on_the_way=place != path)
        yield descriptor
    finally:
        os.close(descriptor)


def make(path: Path) -> None:
    """Make the folder ``path`` and its parents, writable for this user and readable for all.

    Raises OSError, and UnavailableError if an existing folder is not ours.
    """
    for place in (*reversed(path.parents), path):
        with contextlib.suppress(FileExistsError):
            place.mkdir(mode=0o755)
    with opened(path):
        pass


def refuse_foreign(path: Path, known: Callable[[str], bool]) -> bool:
    """Return whether ``path`` exists; raises UnavailableError unless the folder and its content are ours.

    Each entry must belong to this user and have a name that is ``known``.
    """
    try:
        with opened(path) as folder:
            if os.fstat(folder).st_uid != os.geteuid():
                raise UnavailableError(f"{path}: belongs to another user, and was left as it is")
            for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
                if not known(entry.name) or entry.stat(follow_symlinks=False).st_uid != os.geteuid():
                    raise UnavailableError(
                        f"{path}: holds {entry.name!r}, which ccctl did not write, and was left as it is",
                        hint=f"Move {entry.name!r} elsewhere, then try again.",
                    )
    except FileNotFoundError:
        return False
    return True


def remove(path: Path, known: Callable[[str], bool]) -> bool:
    """Remove the folder ``path`` with its content; return whether it existed.

    Raises UnavailableError as ``refuse_foreign`` does, and if something in it cannot be removed.
    """
    if not refuse_foreign(path, known):
        return False
    with opened(path.parent) as parent:
        try:
            shutil.rmtree(path.name, dir_fd=parent)
        except OSError as error:
            raise UnavailableError(f"{path}: cannot be removed: {error.strerror}") from error
    return True


def _entered(folder: int, name: str, place: Path) -> int:
    try:
        return os.open(name, _FLAGS, dir_fd=folder)
    except FileNotFoundError:
        raise
    except OSError as error:
        link = stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
        why = "expected a folder, found a symbolic link" if link else error.strerror
        raise UnavailableError(f"{place}: {why}") from error


def _refuse_others(found: os.stat_result, place: Path, *, on_the_way: bool) -> None:
    if found.st_uid not in (0, os.geteuid()):
        raise UnavailableError(
            f"{place}: expected a folder of this user or of root, found one of user {found.st_uid}"
        )
    if found.st_mode & _OTHERS_WRITE and not (on_the_way and found.st_mode & stat.S_ISVTX):
        raise UnavailableError(
            f"{place}: expected a folder that nobody else can write to, "
            f"found mode {stat.filemode(found.st_mode)}",
            hint=f"chmod go-w {place}",
        )
