"""A cache of files below the user's cache folder, each found by its key.

A file may be machine code that will run. So the cache returns only complete files that have the requested
label and that nobody but this user and root could have written. The cache is optional: an unreadable file is
made again, an unwritable file is not kept, and the reason is logged once.
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

__all__ = ["FileCache", "ShippedFiles", "user_folder"]

_log = logging.getLogger(__name__)
# The NullHandler keeps logging quiet unless the application adds a handler: the processes of a command share
# one stderr.
logging.getLogger("probes").addHandler(logging.NullHandler())

_MAGIC = b"ccctl kept 1\n"
_DIGEST_BYTES = hashlib.sha256().digest_size
# Larger files are not read: the largest compiled loop takes less than 1 MiB, a schedule for hundreds of ranks
# a few MiB.
_MOST_BYTES = 64 << 20
# The longest wait for another process to make a file: the longest loop takes seconds to compile, on a busy
# machine several times that.
_PATIENCE_S = 60.0
# No write takes this long; an older partial file was left by a killed process.
_ABANDONED_S = 600.0
# Linux follows at most 40 symbolic links in one path (path_resolution(7)).
_MOST_LINKS = 40
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_ELSEWHERE = "set XDG_CACHE_HOME to a folder that you alone can write"


def user_folder(name: str) -> Path | None:
    """Return ``$XDG_CACHE_HOME/ccctl/name`` or ``~/.cache/ccctl/name``; None without a home directory.

    A relative XDG_CACHE_HOME is ignored, as the XDG standard says.
    """
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not Path(base).is_absolute():
        base = os.path.expanduser("~/.cache")  # noqa: PTH111 - Path.home() raises where there is no home
    return Path(base) / "ccctl" / name if Path(base).is_absolute() else None


class FileCache:
    """The files in one folder, which need not exist; without a folder (None), nothing is kept.

    Methods raise no OSError. In messages, ``what`` names the content ("compiled loops"), and ``without`` says
    what happens if the cache is not used. Files older than ``most_age_s`` seconds are removed when others are
    written.
    """

    def __init__(self, folder: Path | None, what: str, without: str, most_age_s: float | None = None) -> None:
        self._folder, self._what, self._without, self._most_age_s = folder, what, without, most_age_s
        self._trusted: bool | None = None
        self._said = False

    @property
    def problem(self) -> str:
        """The reason why the cache is not used or cannot be written; "" if there is none."""
        folder, problem = self._folder, self._why_not_used()
        if problem or folder is None:
            return problem
        there = next(place for place in (folder, *folder.parents) if os.path.lexists(place))
        if not there.is_dir():
            return self._cannot_keep(NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)))
        if not os.access(there, os.W_OK | os.X_OK, effective_ids=True):
            return self._cannot_keep(PermissionError(errno.EACCES, f"{there} cannot be written"))
        return ""

    def path(self, name: str) -> Path | None:
        """Return the path of a file in the cache; None if the cache is not used."""
        folder = self._open()
        return folder / name if folder is not None else None

    def read(self, name: str, label: bytes) -> bytes | None:
        """Return what was written as ``name`` with this label; None if missing, damaged or not trusted."""
        if (folder := self._open()) is None:
            return None
        try:
            return _labelled(_content(folder / name), label)
        except OSError:
            return None

    def write(self, name: str, label: bytes, content: bytes) -> None:
        """Keep ``content``; the file is complete or absent, never partial."""
        if (folder := self._open()) is None:
            return
        rest = len(label).to_bytes(8, "little") + label + content
        part = folder / f"{name}.{secrets.token_hex(8)}.part"
        try:
            _make(folder)
            self._sweep(folder)
            with open(_create(part), "wb") as stream:
                stream.writelines((_MAGIC, _digest(rest), rest))
            part.replace(folder / name)
        except OSError as error:
            self._say(self._cannot_keep(error))
        finally:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)

    @contextlib.contextmanager
    def turn(self, name: str) -> Iterator[None]:
        """Wait for the right to make ``name``, so that one process makes what many need at once.

        After a long wait, or if the folder cannot be written, the block runs without that right.
        """
        with contextlib.ExitStack() as stack:
            if (folder := self._open()) is not None:
                path = folder / f"{name}.turn"
                try:
                    _make(folder)
                    lock = _create(path)
                    stack.callback(os.close, lock)
                    if _locked(lock):
                        # A process that waits for this lock will find what was made. A later process creates
                        # a new lock file.
                        stack.callback(_remove, path)
                except OSError as error:
                    self._say(self._cannot_keep(error))
            yield

    def _open(self) -> Path | None:
        """Return the folder; None if others could have written its files."""
        if self._trusted is None or self._folder is None:
            problem = self._why_not_used()
            if problem:
                self._say(problem)
            # A missing folder is checked again at the next call.
            if problem or (self._folder is not None and self._folder.is_dir()):
                self._trusted = not problem
            return None if problem else self._folder
        return self._folder if self._trusted else None

    def _say(self, problem: str) -> None:
        if not self._said:
            self._said = True
            _log.warning("%s; %s", problem, self._without)

    def _why_not_used(self) -> str:
        if self._folder is None:
            return f"there is no home directory to keep {self._what} in: {_ELSEWHERE}"
        try:
            found = _distrusted(self._folder)
        except OSError as error:
            return self._cannot_keep(error)
        return f"{self._what} in {self._folder} are not used: {found}: {_ELSEWHERE}" if found else ""

    def _cannot_keep(self, error: OSError) -> str:
        return f"{self._what} cannot be kept in {self._folder}: {error.strerror}"

    def _sweep(self, folder: Path) -> None:
        """Remove files left by killed processes, and files that are too old."""
        for left in folder.iterdir():
            is_rest = left.suffix in (".part", ".turn")
            most_age_s = _ABANDONED_S if is_rest else self._most_age_s
            with contextlib.suppress(OSError):
                if most_age_s is not None and time.time() - left.lstat().st_mtime > most_age_s:
                    left.unlink()


class ShippedFiles:
    """Files in the same format that were installed with a package, in a folder that may be read-only.

    Their owner is not checked: whoever can change them can change the package's sources, too.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, name: str, label: bytes) -> bytes | None:
        """Return what was shipped as ``name`` with this label; None if it is missing or damaged."""
        try:
            return _labelled((self._folder / name).read_bytes(), label)
        except OSError:
            return None

    def labels(self) -> Iterator[bytes]:
        """Yield the labels of all undamaged files."""
        start = len(_MAGIC) + _DIGEST_BYTES + 8
        for path in sorted(self._folder.glob("*")):
            content = path.read_bytes()
            label = content[start : start + int.from_bytes(content[start - 8 : start], "little")]
            if _labelled(content, label) is not None:
                yield label


def _distrusted(folder: Path) -> str:
    """Return who else could change files in ``folder``; "" if only this user and root can.

    Checks each existing folder and symbolic link on the path. In a folder with the sticky bit, such as /tmp,
    others cannot rename our files.
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


def _owners(*, ancestor: bool) -> set[int]:
    """Return the trusted owners: this user and root, who can do everything this user can.

    In a container whose root is not the host's, files of the host's root appear as owned by nobody.
    """
    owners = {os.geteuid(), 0}
    if ancestor:
        with contextlib.suppress(OSError, ValueError):
            if Path("/proc/self/uid_map").read_text().split()[:3] != ["0", "0", "4294967295"]:
                owners.add(int(Path("/proc/sys/kernel/overflowuid").read_text()))
    return owners


def _others_write(status: os.stat_result) -> bool:
    """Return whether anybody but the owner may write; a group with only this user does not count."""
    if status.st_mode & stat.S_IWOTH:
        return True
    return bool(status.st_mode & stat.S_IWGRP) and status.st_gid != _own_group()


@functools.cache
def _own_group() -> int | None:
    """Return this user's private group, of the same name and without other members; None if there is none."""
    try:
        user = pwd.getpwuid(os.geteuid())
        group = grp.getgrgid(user.pw_gid)
    except KeyError:
        return None
    return user.pw_gid if group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name} else None


def _content(path: Path) -> bytes:
    """Return the content of a file of ours; raises OSError for any other, and does not hang on a FIFO."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(handle, "rb") as stream:  # noqa: PTH123 - a descriptor
        status = os.fstat(handle)
        ours = stat.S_ISREG(status.st_mode) and status.st_uid in _owners(ancestor=False)
        if not ours or _others_write(status) or status.st_size > _MOST_BYTES:
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))
        return stream.read(status.st_size)


def _labelled(content: bytes, label: bytes) -> bytes | None:
    """Return the content after the head; None if the file is truncated, damaged or has another label."""
    head = len(label).to_bytes(8, "little") + label
    start = len(_MAGIC) + _DIGEST_BYTES
    found = content[start : start + len(head)]
    if found != head or content[:start] != _MAGIC + _digest(memoryview(content)[start:]):
        return None
    return content[start + len(head) :]


def _make(folder: Path) -> None:
    """Make the folder and its parents. Raises OSError, also if another user made one first."""
    for place in (*reversed(folder.parents), folder):
        with contextlib.suppress(FileExistsError):
            place.mkdir(mode=0o755)
    if found := _distrusted(folder):
        raise PermissionError(errno.EPERM, found)


def _create(path: Path) -> int:
    """Open a file for writing and return its descriptor; creates the file, and follows no link."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    return os.open(path, flags, 0o644)


def _locked(handle: int) -> bool:
    """Lock a file; return False after a long wait, or if the file system has no locks."""
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


def _digest(content: bytes | memoryview) -> bytes:
    return hashlib.sha256(content).digest()
