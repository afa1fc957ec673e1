"""Where compiled loops are kept between processes: a folder with a file for each loop and signature.

A file is machine code that will run, so it is read only where nobody but its user and root could have
written it, where it is whole, and where it is what was asked for. None of it is needed: what cannot be
read is compiled anew, what cannot be written is not kept, and why is logged once.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import grp
import hashlib
import logging
import os
import pwd
import secrets
import stat
import time
from collections.abc import Iterator
from pathlib import Path

__all__ = ["LoopStore", "cache_folder", "distrusted", "problem_of"]

_log = logging.getLogger(__name__)
# Without a handler of the application's, nothing is printed: the processes of a command share one stderr.
logging.getLogger("synth").addHandler(logging.NullHandler())

_MAGIC = b"ccctl loop 1\n"
_DIGEST_BYTES = hashlib.sha256().digest_size
# The largest loop takes less than 1 MiB.
_MOST_BYTES = 64 << 20
# The longest loop takes some seconds to compile, on a busy machine a multiple.
_PATIENCE_S = 60.0
# No file is written for so long: the rest of a process that was killed.
_ABANDONED_S = 600.0
_MOST_LINKS = 40
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_ELSEWHERE = "set XDG_CACHE_HOME to a folder that you alone can write"


def cache_folder() -> Path | None:
    """``$NUMBA_CACHE_DIR/ccctl``, else ``$XDG_CACHE_HOME/ccctl/numba``, else ``~/.cache/ccctl/numba``.

    None where there is no home directory. A relative XDG_CACHE_HOME counts for nothing, as its standard says.
    """
    if given := os.environ.get("NUMBA_CACHE_DIR"):
        return Path(given).absolute() / "ccctl"
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not Path(base).is_absolute():
        base = os.path.expanduser("~/.cache")  # noqa: PTH111 - Path.home() raises where there is no home
    return Path(base) / "ccctl" / "numba" if Path(base).is_absolute() else None


class LoopStore:
    """The loops in one folder, which need not exist; None keeps nothing. Raises no OSError."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._trusted: bool | None = None
        self._said = False

    def read(self, name: str, label: bytes) -> bytes | None:
        """What was written as ``name`` with the same label; None where it is not there, whole and ours."""
        if (folder := self._open()) is None:
            return None
        try:
            content = _content(folder / name)
        except OSError:
            return None
        head = len(label).to_bytes(8, "little") + label
        start = len(_MAGIC) + _DIGEST_BYTES
        found = content[start : start + len(head)]
        if found != head or content[:start] != _MAGIC + _digest(memoryview(content)[start:]):
            return None
        return content[start + len(head) :]

    def write(self, name: str, label: bytes, content: bytes) -> None:
        """Keep ``content``, whole or not at all."""
        if (folder := self._open()) is None:
            return
        rest = len(label).to_bytes(8, "little") + label + content
        part = folder / f"{name}.{secrets.token_hex(8)}.part"
        try:
            _make(folder)
            _sweep(folder)
            with open(_create(part), "wb") as stream:
                stream.writelines((_MAGIC, _digest(rest), rest))
            part.replace(folder / name)
        except OSError as error:
            self._say(_cannot_keep(folder, error))
        finally:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)

    @contextlib.contextmanager
    def turn(self, name: str) -> Iterator[None]:
        """The right to compile ``name``, waited for: one process compiles what many need at once.

        Given without it, too: after a while, and where the folder cannot be written.
        """
        with contextlib.ExitStack() as stack:
            if (folder := self._open()) is not None:
                path = folder / f"{name}.turn"
                try:
                    _make(folder)
                    lock = _create(path)
                    stack.callback(os.close, lock)
                    if _locked(lock):
                        # Who waits for this file finds the loop then; who comes later makes a new one.
                        stack.callback(_remove, path)
                except OSError as error:
                    self._say(_cannot_keep(folder, error))
            yield

    def _open(self) -> Path | None:
        """The folder; None where others could have written what lies there."""
        if self._trusted is None or self._folder is None:
            problem = _why_not_used(self._folder)
            if problem:
                self._say(problem)
            # A folder that is not there yet is looked at again.
            if problem or (self._folder is not None and self._folder.is_dir()):
                self._trusted = not problem
            return None if problem else self._folder
        return self._folder if self._trusted else None

    def _say(self, problem: str) -> None:
        if not self._said:
            self._said = True
            _log.warning("%s; each command compiles them anew, which takes seconds", problem)


def problem_of(folder: Path | None) -> str:
    """Why the loops in a folder are not used, or new ones cannot be kept there; "" where all is well."""
    problem = _why_not_used(folder)
    if problem or folder is None:
        return problem
    there = next(place for place in (folder, *folder.parents) if os.path.lexists(place))
    if not there.is_dir():
        return _cannot_keep(folder, NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)))
    if not os.access(there, os.W_OK | os.X_OK, effective_ids=True):
        return _cannot_keep(folder, PermissionError(errno.EACCES, f"{there} cannot be written"))
    return ""


def distrusted(folder: Path) -> str:
    """Who but this user and root could change what lies in ``folder``; "" where nobody could.

    Looks at each folder and symbolic link on the way, as far as they exist. In a folder with the sticky bit,
    such as /tmp, others cannot rename what is ours.
    """
    at, links, waiting = Path("/"), 0, [*reversed(folder.absolute().parts)]
    while waiting:
        at = at / waiting.pop()
        try:
            status = at.lstat()
        except FileNotFoundError:
            return ""
        is_link = stat.S_ISLNK(status.st_mode)
        if status.st_uid not in _owners(ancestor=bool(waiting) and not is_link):
            return f"{at} belongs to user {status.st_uid}"
        if is_link:
            links += 1
            if links > _MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            waiting.extend(reversed((at.parent / at.readlink()).parts))
            at = Path("/")
        elif _others_write(status) and not (waiting and status.st_mode & stat.S_ISVTX):
            return f"{at} can be written by others"
    return ""


def _why_not_used(folder: Path | None) -> str:
    if folder is None:
        return f"there is no home directory to keep compiled loops in: {_ELSEWHERE}"
    try:
        found = distrusted(folder)
    except OSError as error:
        return _cannot_keep(folder, error)
    return f"compiled loops in {folder} are not used: {found}: {_ELSEWHERE}" if found else ""


def _cannot_keep(folder: Path, error: OSError) -> str:
    return f"compiled loops cannot be kept in {folder}: {error.strerror}"


def _owners(*, ancestor: bool) -> set[int]:
    """Who may own what is trusted: this user and root, who can do all that this user can.

    In a container without root's own numbers, what root owns outside appears as owned by nobody.
    """
    owners = {os.geteuid(), 0}
    if ancestor:
        with contextlib.suppress(OSError, ValueError):
            if Path("/proc/self/uid_map").read_text().split()[:3] != ["0", "0", "4294967295"]:
                owners.add(int(Path("/proc/sys/kernel/overflowuid").read_text()))
    return owners


def _others_write(status: os.stat_result) -> bool:
    """Whether others than the owner may write there; a group that has the user alone is no other."""
    if status.st_mode & stat.S_IWOTH:
        return True
    return bool(status.st_mode & stat.S_IWGRP) and status.st_gid != _own_group()


@functools.cache
def _own_group() -> int | None:
    """The group that only this user is in, where there is one by the custom of the same name."""
    try:
        user = pwd.getpwuid(os.geteuid())
        group = grp.getgrgid(user.pw_gid)
    except KeyError:
        return None
    return user.pw_gid if group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name} else None


def _content(path: Path) -> bytes:
    """A file of ours; raises OSError for any other. What hangs when opened, as a FIFO does, is none."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(handle, "rb") as stream:  # noqa: PTH123 - a descriptor
        status = os.fstat(handle)
        ours = stat.S_ISREG(status.st_mode) and status.st_uid in _owners(ancestor=False)
        if not ours or _others_write(status) or status.st_size > _MOST_BYTES:
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))
        return stream.read(status.st_size)


def _make(folder: Path) -> None:
    """Make the folder and those above it. Raises OSError, also where another user was faster."""
    for place in (*reversed(folder.parents), folder):
        with contextlib.suppress(FileExistsError):
            place.mkdir(mode=0o755)
    if found := distrusted(folder):
        raise PermissionError(errno.EPERM, found)


def _create(path: Path) -> int:
    """A descriptor of a file to write, made where it is not there; no link is followed."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    return os.open(path, flags, 0o644)


def _locked(handle: int) -> bool:
    """Lock a file; False where another process keeps it locked for long, or the file system has no locks."""
    deadline_s = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline_s:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            time.sleep(0.02)
        except OSError:
            return False
    return False


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)


def _sweep(folder: Path) -> None:
    """Remove what killed processes left."""
    for pattern in ("*.part", "*.turn"):
        for left in folder.glob(pattern):
            with contextlib.suppress(OSError):
                if time.time() - left.lstat().st_mtime > _ABANDONED_S:
                    left.unlink()


def _digest(content: bytes | memoryview) -> bytes:
    return hashlib.sha256(content).digest()
