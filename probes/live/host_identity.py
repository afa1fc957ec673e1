"""Identity of hosts: which processes are on one host."""

from __future__ import annotations

import os
import socket
from pathlib import Path

__all__ = ["host_key", "inode"]


def host_key() -> tuple[object, ...]:
    """Return a key that is equal for processes that can share memory and are one host to the network.

    It includes namespaces, because the hosts of a lab share a kernel but are connected only by virtual wires.
    """
    boot = Path("/proc/sys/kernel/random/boot_id")
    spaces = [inode(Path("/proc/self/ns", kind)) for kind in ("net", "pid", "user")]
    return (socket.gethostname(), boot.read_text().strip() if boot.exists() else "", os.getuid(), *spaces)


def inode(path: Path) -> int:
    """Return the inode of a file; 0 if it does not exist or is hidden."""
    try:
        return path.stat().st_ino
    except OSError:
        return 0
