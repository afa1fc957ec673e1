"""A cache of files below the user's cache folder, each found by its key.

A file may be machine code that will run, so it is read only where nobody but its user and root could have
written it, where it is whole, and where it is what was asked for. None of it is needed: what cannot be
read is made anew, what cannot be written is not kept, and why is logged once.
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
# Without a handler of the application's, nothing is printed: the processes of a command share one stderr.
logging.getLogger("probes").addHandler(logging.NullHandler())

_MAGIC = b"ccctl kept 1\n"
_DIGEST_BYTES = hashlib.sha256().digest_size
# The largest loop takes less than 1 MiB, a schedule for hundreds of ranks some.
_MOST_BYTES = 64 << 20
# The longest loop takes some seconds to compile, on a busy machine a multiple.
_PATIENCE_S = 60.0
# No file is written for so long: the rest of a process that was killed.
_ABANDONED_S = 600.0
_MOST_LINKS = 40
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_ELSEWHERE = "set XDG_CACHE_HOME to a folder that you alone can write"


def user_folder(name: str) -> Path | None:
    """``$XDG_CACHE_HOME/ccctl/name``, else ``~/.cache/ccctl/name``; None where there is no home directory.

    A relative XDG_CACHE_HOME counts for nothing, as its standard says.
    """
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not Path(base).is_absolute():
        base = os.path.expanduser("~/.cache")  # noqa: PTH111 - Path.home() raises where there is no home
    return Path(base) / "ccctl" / name if Path(base).is_absolute() else None


class FileCache:
    """The files in one folder, which need not exist; None keeps nothing. Raises no OSError.

    Messages call what it keeps ``what`` ("compiled loops"), and tell of doing without as ``without`` does.
    Files that are older than ``most_age_s`` seconds are removed when others are written.
    """

    def __init__(self, folder: Path | None, what: str, without: str, most_age_s: float | None = None) -> None:
        self._folder, self._what, self._without, self._most_age_s = folder, what, without, most_age_s
        self._trusted: bool | None = None
        self._said = False

    @property
    def problem(self) -> str:
        """Why what is kept is not used, or nothing new can be kept; "" where all is well."""
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
        """Where a file is kept; None where none is."""
        folder = self._open()
        return folder / name if folder is not None else None

    def read(self, name: str, label: bytes) -> bytes | None:
        """What was written as ``name`` with the same label; None where it is not there, whole and ours."""
        if (folder := self._open()) is None:
            return None
        try:
            return _labelled(_content(folder / name), label)
        except OSError:
            return None

    def write(self, name: str, label: bytes, content: bytes) -> None:
        """Keep ``content``, whole or not at all."""
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
        """The right to make ``name``, waited for: one process makes what many need at once.

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
                        # Who waits for this file finds what was made; who comes later makes a new one.
                        stack.callback(_remove, path)
                except OSError as error:
                    self._say(self._cannot_keep(error))
            yield

    def _open(self) -> Path | None:
        """The folder; None where others could have written what lies there."""
        if self._trusted is None or self._folder is None:
            problem = self._why_not_used()
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
        """Remove what killed processes left, and what is old."""
        for left in folder.iterdir():
            is_rest = left.suffix in (".part", ".turn")
            most_age_s = _ABANDONED_S if is_rest else self._most_age_s
            with contextlib.suppress(OSError):
                if most_age_s is not None and time.time() - left.lstat().st_mtime > most_age_s:
                    left.unlink()


class ShippedFiles:
    """Files of the same form that came with a package, in a folder of it that may be read-only.

    Whoever can change them can change the package's sources, too: nothing is asked about their owner.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, name: str, label: bytes) -> bytes | None:
        """What came as ``name`` with this label; None where it is not there and whole."""
        try:
            return _labelled((self._folder / name).read_bytes(), label)
        except OSError:
            return None

    def labels(self) -> Iterator[bytes]:
        """The labels of all files that are whole."""
        start = len(_MAGIC) + _DIGEST_BYTES + 8
        for path in sorted(self._folder.glob("*")):
            content = path.read_bytes()
            label = content[start : start + int.from_bytes(content[start - 8 : start], "little")]
            if _labelled(content, label) is not None:
                yield label


def _distrusted(folder: Path) -> str:
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


def _labelled(content: bytes, label: bytes) -> bytes | None:
    """What a file holds after its head; None where it is cut off, damaged or labelled otherwise."""
    head = len(label).to_bytes(8, "little") + label
    start = len(_MAGIC) + _DIGEST_BYTES
    found = content[start : start + len(head)]
    if found != head or content[:start] != _MAGIC + _digest(memoryview(content)[start:]):
        return None
    return content[start + len(head) :]


def _make(folder: Path) -> None:
    """Make the folder and those above it. Raises OSError, also where another user was faster."""
    for place in (*reversed(folder.parents), folder):
        with contextlib.suppress(FileExistsError):
            place.mkdir(mode=0o755)
    if found := _distrusted(folder):
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


def _digest(content: bytes | memoryview) -> bytes:
    return hashlib.sha256(content).digest()
