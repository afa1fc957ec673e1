"""Which processes are on one host."""

from __future__ import annotations

import os
import socket
from pathlib import Path

__all__ = ["host_key"]


def host_key() -> tuple[object, ...]:
    """What two processes have in common that can share memory and are one host to everybody.

    Namespaces count: the hosts of a lab are one kernel, but only wires lie between them.
    """
    boot = Path("/proc/sys/kernel/random/boot_id")
    spaces = [_inode(f"/proc/self/ns/{kind}") for kind in ("net", "pid", "user")]
    return (socket.gethostname(), boot.read_text().strip() if boot.exists() else "", os.getuid(), *spaces)


def _inode(path: str) -> int:
    try:
        return os.stat(path).st_ino  # noqa: PTH116 - a Path would be made for this alone
    except OSError:
        return 0
