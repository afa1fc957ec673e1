"""Search for NaN and infinity anywhere in a record: JSON and charts cannot hold them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

__all__ = ["not_finite"]

# Largest magnitude of an integer: no column and no other tool's JSON represents a larger one exactly.
_MOST = (1 << 63) - 1


def not_finite(value: Any, path: str = "") -> Iterator[str]:
    """Yield each number in ``value`` that is not finite, or exceeds 63 bits, as ``path: what is wrong``."""
    if isinstance(value, float) and not math.isfinite(value):
        yield f"{path}: expected a finite number, found {value}"
    elif isinstance(value, int) and abs(value) > _MOST:
        yield f"{path}: expected an integer of at most 63 bits, found one of {value.bit_length()}"
    elif isinstance(value, tuple):
        for at, entry in enumerate(value):
            yield from not_finite(entry, f"{path}[{at}]")
    elif isinstance(value, dict):
        for key, entry in value.items():
            yield from not_finite(entry, f"{path}.{key}")
    elif dataclasses.is_dataclass(value):
        for name in value.__dataclass_fields__:
            yield from not_finite(getattr(value, name), f"{path}.{name}" if path else name)
