"""Artifacts as JSON text: indented and sorted, with every column on one line."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

__all__ = ["render"]

_SHORT_LINE = 100
_SHORT_WORD = 16


def render(value: object) -> bytes:
    """Return plain values (dict, list, str, numbers, None) as JSON: sorted keys, a final newline.

    A list of numbers or short words always takes one line, so a table of a million rows has one line for each
    column. Any other list or object takes one line if it is short and flat. Raises ValueError on NaN and
    infinity, for which JSON has no word. Linear in the text's length.
    """
    return b"".join(_pieces(value, b"\n", "$")) + b"\n"


def _pieces(value: Any, newline: bytes, path: str) -> Iterator[bytes]:
    import msgspec

    entries: Any = [value]
    if isinstance(value, dict | list):
        entries = value.values() if isinstance(value, dict) else value
    kinds = set(map(type, entries))
    if float in kinds and not all(map(math.isfinite, entries if kinds == {float} else _floats(entries))):
        raise ValueError(f"{path}: NaN or infinity cannot be written")
    if not kinds & {dict, list}:
        line = msgspec.json.format(msgspec.json.encode(value, order="sorted"), indent=0)
        if len(line) <= _SHORT_LINE or not isinstance(value, dict | list) or _is_column(value, kinds):
            yield line
            return
    yield b"{" if isinstance(value, dict) else b"["
    keys: Any = sorted(value) if isinstance(value, dict) else range(len(value))
    for number, key in enumerate(keys):
        yield (b"," if number else b"") + newline + b" "
        if isinstance(value, dict):
            yield msgspec.json.encode(key) + b": "
        yield from _pieces(value[key], newline + b" ", f"{path}.{key}")
    yield newline + (b"}" if isinstance(value, dict) else b"]")


def _floats(entries: Iterable[object]) -> Iterator[float]:
    return (entry for entry in entries if isinstance(entry, float))


def _is_column(value: object, kinds: set[type]) -> bool:
    """Return whether this is a list of numbers or short words; ``kinds`` are the types of its entries."""
    if not isinstance(value, list):
        return False
    return str not in kinds or all(len(entry) <= _SHORT_WORD for entry in value if isinstance(entry, str))
