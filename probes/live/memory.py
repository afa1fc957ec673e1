"""Available memory of this machine (MemAvailable, cgroups, /dev/shm), and whether all ranks' needs fit.

Memory is checked in advance, because the kernel overcommits. If pages run out later, the kernel kills some
process, or raises SIGBUS for a file in shared memory.
"""

from __future__ import annotations

import os
import socket
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from probes.base import UnavailableError, plural, some
from probes.live.host_identity import inode
from probes.sysfs import cgroups, lines, text

__all__ = ["Need", "Room", "refuse_crowding", "require_room", "rooms"]

_SHARED = Path("/dev/shm")
_PROC, _CGROUPS = Path("/proc"), Path("/sys/fs/cgroup")
_MOST_NAMED = 4


@dataclass(frozen=True)
class Room:
    """A pool of memory for all processes with this ``key``; ``shared``: for /dev/shm files only."""

    key: tuple[object, ...]
    name: str
    free_bytes: int
    shared: bool = False


@dataclass(frozen=True)
class Need:
    """Memory that each of ``ranks`` ranks will use: of any kind, and as files in /dev/shm."""

    memory_bytes: int
    shared_bytes: int = 0
    ranks: int = 1


def require_room(comm: Any, need: Need, what: str) -> None:
    """Raise UnavailableError on all ranks of ``comm`` if a host lacks memory for its ranks.

    Collective. ``what`` names the work. Needs of hosts on one machine or in one cgroup are added up.
    """
    refuse_crowding(comm.allgather((socket.gethostname(), rooms(), need)), what)


def refuse_crowding(asked: Sequence[tuple[str, tuple[Room, ...], Need]], what: str) -> None:
    """Raise UnavailableError if a host lacks memory, given (host, rooms, need) of each process."""
    needed: defaultdict[tuple[object, ...], int] = defaultdict(int)
    tightest: dict[tuple[object, ...], Room] = {}
    hosts: defaultdict[tuple[object, ...], list[str]] = defaultdict(list)
    ranks: defaultdict[tuple[object, ...], int] = defaultdict(int)
    for host, found, need in asked:
        for room in found:
            needed[room.key] += need.ranks * (need.shared_bytes if room.shared else need.memory_bytes)
            ranks[room.key] += need.ranks
            hosts[room.key].append(host)
            if room.key not in tightest or room.free_bytes < tightest[room.key].free_bytes:
                tightest[room.key] = room
    short = []
    for key, room in tightest.items():
        if needed[key] > room.free_bytes:
            where = some(list(dict.fromkeys(hosts[key])), _MOST_NAMED)
            short.append(
                f"{where}: {what} takes {_gib(needed[key])} of {room.name} for {plural(ranks[key], 'rank')}, "
                f"{_gib(room.free_bytes)} are free"
            )
    if short:
        raise UnavailableError(short, hint="Smaller sizes, or fewer ranks a host, take less.")


def rooms() -> tuple[Room, ...]:
    """Return the memory that this process may use: of the machine, of its cgroups, and /dev/shm."""
    boot = text(_PROC / "sys/kernel/random/boot_id") or socket.gethostname()
    found = [Room((boot,), "memory", free) for free in _machine_free()]
    space = inode(_PROC / "self/ns/cgroup")
    for folder, free in _cgroups_free():
        found.append(Room((boot, space, str(folder)), f"memory in its cgroup {folder}", free))
    with suppress(OSError):
        status = os.statvfs(_SHARED)
        free = status.f_bavail * status.f_frsize
        found.append(Room((boot, _SHARED.stat().st_dev, "shm"), str(_SHARED), free, shared=True))
    return tuple(found)


def _machine_free() -> Iterator[int]:
    for line in lines(_PROC / "meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            yield int(line.split()[1]) << 10


def _cgroups_free() -> Iterator[tuple[Path, int]]:
    """Yield (folder, free bytes) of each of this process's cgroups (v1 or v2) with a limit."""
    names = {
        1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_"),
        2: ("memory.max", "memory.current", ""),
    }
    for group, version in cgroups(lines(_PROC / "self/cgroup"), _CGROUPS, "memory"):
        most, taken, prefix = names[version]
        limit, used = text(group / most), text(group / taken)
        if not limit.isdecimal() or not used.isdecimal():
            continue
        statistics = (line.split() for line in lines(group / "memory.stat").splitlines())
        files = {f"{prefix}inactive_file", f"{prefix}active_file"}
        # The page cache counts as free.
        cache = sum(int(words[1]) for words in statistics if words[0] in files)
        # Version 1 writes "no limit" as a number larger than any memory.
        yield group, max(0, int(limit) - int(used) + cache)


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / 2**30:.4g} GiB" if size_bytes >= 1 << 27 else f"{size_bytes / 2**20:.4g} MiB"
