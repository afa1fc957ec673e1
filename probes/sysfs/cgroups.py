"""The cgroups of a process, which limit its memory and its processor time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

__all__ = ["cgroups"]


def cgroups(membership: str, mounted: Path, controller: str) -> Iterator[tuple[Path, int]]:
    """Yield (folder, version 1 or 2) of each cgroup with this controller, from the process's own to the root.

    ``membership`` is the content of /proc/PID/cgroup, ``mounted`` the folder of all hierarchies,
    /sys/fs/cgroup.
    """
    for line in membership.splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers and controller not in controllers.split(","):
            continue
        top = mounted / controller if controllers else mounted
        # A group outside the namespace has ".." in its path; only the root is visible.
        folder = top if ".." in path else top / path.lstrip("/")
        for group in (folder, *folder.parents):
            if not group.is_relative_to(top):
                break
            yield group, 1 if controllers else 2
