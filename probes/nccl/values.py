"""Spellings of single values in NCCL's files; an unrecognized value is unknown, never an error."""

from __future__ import annotations

import re

from probes.base import LARGEST, cpu_list, decimal, is_cpu_list, mask_numbers, whole

__all__ = [
    "affinity_list",
    "architecture",
    "capability",
    "flag",
    "hexadecimal",
    "integer",
    "number",
]

# No speed or NUMA latency in hwloc's XML comes near, so a larger value is unknown.
_LARGEST = 1e6
_HEXADECIMAL = re.compile(r"0[xX][0-9a-fA-F]{1,16}")


def integer(text: str) -> int | None:
    """Return a whole number in decimal or with 0x; None for anything else."""
    if not text.lower().startswith("0x"):
        return whole(text.strip(), -LARGEST)
    return int(text, 16) if _HEXADECIMAL.fullmatch(text) else None


def number(text: str) -> float | None:
    """Return a number that is not negative and of realistic size, with or without a fraction, else None."""
    return decimal(text.strip(), 0.0, _LARGEST)


def hexadecimal(text: str) -> str:
    """Return a class or id as "0x…" in lower case; some files omit the 0x."""
    digits = text.lower()
    return digits if not digits or digits.startswith("0x") else f"0x{digits}"


def flag(text: str) -> bool | None:
    """Return True for "1", False for "0"; None if unstated."""
    number = integer(text)
    return None if number is None else number > 0


def affinity_list(affinity: str) -> str:
    """Return the kernel's list form ("0-23,48-71") of a mask in comma-separated words of 32 bits.

    Hand-written files contain the list itself. Text without a range is read as a mask, as NCCL does.
    """
    if "-" in affinity:
        return affinity if is_cpu_list(affinity) else ""
    return cpu_list(mask_numbers(affinity))


def architecture(sm: str, gcn: str) -> str:
    """Return the name "sm_90" or "gfx942". If ``gcn`` is given, ``sm`` counts compute units."""
    if gcn:
        # Older ROCm files write 910 for gfx90a.
        return gcn if gcn.startswith("gfx") else {"910": "gfx90a"}.get(gcn, f"gfx{gcn}")
    return f"sm_{sm}" if whole(sm) is not None else ""


def capability(sm: str, gcn: str) -> str:
    """Return CUDA's compute capability ("9.0") from ``sm``; "" if unknown."""
    return f"{sm[:-1]}.{sm[-1]}" if not gcn and whole(sm) is not None and len(sm) > 1 else ""
