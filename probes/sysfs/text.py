"""Single attributes of /sys and /proc; a missing or unreadable file is empty."""

from __future__ import annotations

from pathlib import Path

from probes.base import LARGEST, is_cpu_list, whole

__all__ = ["cpu_list", "decimal", "lines", "number", "text"]


def lines(path: Path) -> str:
    """Return the whole attribute; "" if it cannot be read, as ``speed`` of a port that is down."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def text(path: Path) -> str:
    """Return an attribute of one line, without its line end."""
    return lines(path).strip()


def cpu_list(path: Path) -> str:
    """Return an attribute that lists CPUs, as ``0-23,48-71``; "" if it is no such list."""
    found = text(path)
    return found if is_cpu_list(found) else ""


def decimal(path: Path) -> int | None:
    """Return an attribute that is a number; None if it is not."""
    return whole(text(path), low=-LARGEST)


def number(path: Path) -> int | None:
    """Return a number, or None if it is negative: the kernel writes -1 for "unknown"."""
    found = decimal(path)
    return None if found is None or found < 0 else found
