"""Counts of things and long lists, in words."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["first_of", "plural", "some"]


def plural(count: int, noun: str) -> str:
    """1 step, 2 steps."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def some(names: Sequence[str], most: int, separator: str = ", ") -> str:
    """At most ``most`` of the names, and how many more there are: "a, b and 3 more"."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return separator.join(names[:most]) + more


def first_of(lines: Sequence[str], most: int, noun: str) -> list[str]:
    """At most ``most`` of the lines, and one that counts the others: "… and 3 more findings"."""
    left = len(lines) - most
    return [*lines[:most], *([f"… and {plural(left, f'more {noun}')}"] if left > 0 else [])]
