"""Counts and long lists in words, and suggestions for misspelled words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

__all__ = [
    "distinct",
    "first_of",
    "meant",
    "nearest",
    "plural",
    "rate_text",
    "size_text",
    "some",
    "without_domain",
]

# Longer words are cut to this many characters, because difflib can take quadratic time in their length.
_LONGEST_WORD = 60


def plural(count: int, noun: str) -> str:
    """Return the count with its noun: "1 step", "2 steps"."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def rate_text(bytes_per_s: float) -> str:
    """Return the rate in GB/s with at most four digits: "3.2 GB/s".

    Rates of five digits and more become whole numbers: "13740 GB/s".
    """
    gigabytes = 1e-9 * bytes_per_s
    return f"{gigabytes:.4g} GB/s" if gigabytes < 9999.5 else f"{gigabytes:.0f} GB/s"


def size_text(size_bytes: float) -> str:
    """Return a size in at most four digits, in powers of 1024 as in nccl-tests: 41K, 1.5M, 256M."""
    power = min(4, max(0, (int(size_bytes).bit_length() - 1) // 10))
    return f"{size_bytes / 1024**power:.4g}{('', 'K', 'M', 'G', 'T')[power]}"


def some(names: Sequence[str], most: int, separator: str = ", ") -> str:
    """Return at most ``most`` of the names, and the number of the others: "a, b and 3 more"."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return separator.join(names[:most]) + more


def first_of(lines: Sequence[str], most: int, noun: str) -> list[str]:
    """Return at most ``most`` of the lines, and a line that counts the rest: "… and 3 more findings"."""
    left = len(lines) - most
    return [*lines[:most], *([f"… and {plural(left, f'more {noun}')}"] if left > 0 else [])]


def distinct(names: Iterable[str]) -> list[str]:
    """Return the names, with a number added to each repeated name: "a", "a-2", "a-3"."""
    taken: dict[str, None] = {}
    for name in names:
        free, number = name, 2
        while free in taken:
            free, number = f"{name}-{number}", number + 1
        taken[free] = None
    return list(taken)


def without_domain(names: Sequence[str]) -> dict[str, str]:
    """Map each host name to its short form, without the domain that all of them share.

    Addresses and a single name stay whole.
    """
    labels = [name.split(".") for name in dict.fromkeys(names)]
    shared = 0
    while len(labels) > 1 and all(len(label) > shared + 1 for label in labels):
        if len({label[-1 - shared] for label in labels}) > 1:
            break
        shared += 1
    if any(label[-1].isdigit() for label in labels):
        shared = 0
    return {".".join(label): ".".join(label[: len(label) - shared]) for label in labels}


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word most like ``word``; None if none is close."""
    from difflib import get_close_matches

    plain = {re.sub(r"[^a-z0-9]", "", name.lower()): name for name in known}
    close = get_close_matches(re.sub(r"[^a-z0-9]", "", word[:_LONGEST_WORD].lower()), plain, n=1, cutoff=0.65)
    return plain[close[0]] if close else None


def meant(word: str, known: Iterable[str]) -> str:
    """Return a hint at the known word most like ``word``: "did you mean 'ring'?"; "" if none is close."""
    close = nearest(word, known)
    return "" if close is None else f"did you mean {close!r}?"
