"""Single attributes of /sys: a file that is missing or refuses to be read says nothing."""

from __future__ import annotations

from pathlib import Path

from probes.base import LARGEST, is_cpu_list, whole

__all__ = ["cpu_list", "decimal", "lines", "number", "text"]


def lines(path: Path) -> str:
    """The whole of an attribute; "" where it cannot be read (``speed`` of a port that is down: EINVAL)."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def text(path: Path) -> str:
    """An attribute of one line, without the line's end."""
    return lines(path).strip()


def cpu_list(path: Path) -> str:
    """An attribute that lists CPUs, as ``0-23,48-71``; "" where it is no such list."""
    found = text(path)
    return found if is_cpu_list(found) else ""


def decimal(path: Path) -> int | None:
    """An attribute that is a number; None where it is none."""
    return whole(text(path), low=-LARGEST)


def number(path: Path) -> int | None:
    """A number that is only meant where it is not negative: the kernel writes -1 for "not known"."""
    found = decimal(path)
    return None if found is None or found < 0 else found
