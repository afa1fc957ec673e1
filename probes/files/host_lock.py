"""One measurement at a time on each host: concurrent measurements would disturb each other.

The lock is a file in a folder that only this user can write. The first rank of a host holds it. The lock
concerns this user only: other users can neither hold it nor be delayed by it. The kernel releases the lock
when its process ends for any reason.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pwd
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from probes.base import LockHeldError, Progress, UnavailableError
from probes.files import ownership

__all__ = ["FileLock", "HostLock", "folder", "held"]

_PREFIX = "profile-"
# Wait between two tries: short for the user, and long enough not to disturb the other measurement.
_NAP_S = 0.5
# The most bytes that are read of the holder's description, so that a damaged file cannot flood a message.
_MOST_OWNER_BYTES = 200
# Age in seconds after which an unlocked file counts as left behind; no measurement takes this long.
_ABANDONED_S = 86_400.0


class FileLock:
    """A lock file that one process at a time can hold; once released, it may be taken again."""

    def __init__(self, name: str, place: Path | None = None) -> None:
        """Use the file ``name`` in the folder ``place``, by default the folder of this user's locks."""
        self._name = name
        self._place = place
        self._file: int | None = None

    def take(self) -> str:
        """Take the lock and return ""; if another process holds it, return a description of that process.

        Raises OSError and UnavailableError if there is no folder that only this user can write.
        """
        place = self._place or folder()
        ownership.make(place)
        with ownership.opened(place) as inside:
            while True:
                file = _opened(self._name, inside)
                if not _locked(file):
                    owner = os.pread(file, _MOST_OWNER_BYTES, 0).decode(errors="replace").strip()
                    os.close(file)
                    return owner or "a process that has just begun"
                if _is_there(file, self._name, inside):
                    break
                # The previous holder removed the file before this process locked it.
                os.close(file)
            os.ftruncate(file, 0)
            os.pwrite(file, f"pid {os.getpid()}, since {time.strftime('%H:%M:%S')}\n".encode(), 0)
            self._file = file
            self._taken(inside)
        return ""

    def release(self) -> None:
        """Release the lock; does nothing if it is not held."""
        if self._file is None:
            return
        with contextlib.suppress(OSError, UnavailableError):
            (self._place or folder()).joinpath(self._name).unlink()
        os.close(self._file)
        self._file = None

    def _taken(self, inside: int) -> None:
        """Do nothing; subclasses may clean up in the folder ``inside`` after the lock is taken."""


class HostLock(FileLock):
    """The lock of one host."""

    def __init__(self, name: str, place: Path | None = None) -> None:
        super().__init__(_PREFIX + name, place)

    def _taken(self, inside: int) -> None:
        _sweep(inside, self._name)


def folder() -> Path:
    """Return the folder of this user's locks, which does not depend on how a process was started.

    Raises UnavailableError if this user has no home directory.
    """
    given = os.environ.get("XDG_STATE_HOME", "")
    if Path(given).is_absolute():
        base = Path(given)
    else:
        try:
            base = Path(pwd.getpwuid(os.geteuid()).pw_dir) / ".local" / "state"
        except KeyError as error:
            raise UnavailableError(f"user {os.geteuid()} has no home directory") from error
    return Path(os.path.realpath(base)) / "ccctl" / "locks"


@contextlib.contextmanager
def held(comm: Any, wait_s: float, progress: Progress) -> Iterator[list[str]]:
    """Hold the locks of all hosts of ``comm`` while the block runs; yields messages on hosts without a lock.

    All measurements lock the hosts in the same order, so that one measurement gets all locks. If another
    measurement holds a lock for ``wait_s``, raises LockHeldError on every rank.
    """
    name = _host()
    names: list[str] = comm.allgather(name)
    lock = HostLock(name) if names.index(name) == comm.Get_rank() else None
    began_s = time.monotonic()
    try:
        while True:
            holder, unlocked = _take_all(comm, names, lock)
            if not holder:
                break
            if lock is not None:
                lock.release()
            waited_s = time.monotonic() - began_s
            if comm.bcast(waited_s >= wait_s):
                raise LockHeldError(holder)
            progress.update(0, 1, f"waiting for {waited_s:.0f} s: {holder}")
            progress.waiting(-1, f"the end of the other measurement, since {waited_s:.1f} s")
            # Every rank sleeps, because polling would disturb the other measurement.
            time.sleep(_NAP_S)
        yield unlocked
    finally:
        if lock is not None:
            lock.release()


def _take_all(comm: Any, names: list[str], lock: HostLock | None) -> tuple[str, list[str]]:
    """Return (holder of a lock, "" if all were taken; messages on hosts that cannot be locked)."""
    unlocked: list[str] = []
    for name in sorted(set(names)):
        root = names.index(name)
        holder, why_not = _try(lock) if comm.Get_rank() == root and lock is not None else ("", "")
        holder, why_not = comm.bcast((holder, why_not), root=root)
        if holder:
            return holder, unlocked
        if why_not:
            unlocked.append(why_not)
    return "", unlocked


def _try(lock: HostLock) -> tuple[str, str]:
    here = socket.gethostname()
    try:
        owner = lock.take()
    except (OSError, UnavailableError) as error:
        return "", f"{here} is not locked against other measurements of this user: {error}"
    return (f"{here}: another measurement of this user is under way ({owner})" if owner else ""), ""


def _host() -> str:
    """Return the host's name and network namespace, which differs between containers or emulated hosts."""
    try:
        network = Path("/proc/self/ns/net").stat().st_ino
    except OSError:
        network = 0
    return f"{socket.gethostname()}-{network}"


def _opened(name: str, inside: int) -> int:
    return os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=inside)


def _locked(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_there(file: int, name: str, inside: int) -> bool:
    try:
        return os.path.samestat(os.fstat(file), os.stat(name, dir_fd=inside, follow_symlinks=False))
    except FileNotFoundError:
        return False


def _sweep(inside: int, mine: str) -> None:
    """Remove the files that killed processes left behind long ago."""
    for name in os.listdir(inside):
        if name.startswith(_PREFIX) and name != mine:
            with contextlib.suppress(OSError):
                file = os.open(name, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=inside)
                try:
                    old = time.time() - os.fstat(file).st_mtime > _ABANDONED_S
                    if old and _locked(file) and _is_there(file, name, inside):
                        os.unlink(name, dir_fd=inside)
                finally:
                    os.close(file)
