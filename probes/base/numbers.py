"""Numbers as people and files write them, in ASCII digits: a value within bounds, or None; never an error.

Python's own ``int`` reads the digits of every script, accepts underscores, and raises beyond 4,300 digits;
``str.isdigit`` accepts what it then refuses (``²``). ``float`` gives infinity where a number is too large.
"""

from __future__ import annotations

import math
import re

__all__ = ["LARGEST", "LEAST_BETA_S_PER_BYTE", "decimal", "whole"]

LARGEST = (1 << 63) - 1
# Rates are one over it; products and ratios of costs are then finite, too.
LEAST_BETA_S_PER_BYTE = 1e-30
_WHOLE = re.compile(r"([+-]?)0*([0-9]{1,20})")
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


def whole(text: str, low: int = 0, high: int = LARGEST) -> int | None:
    """A whole number from ``low`` to ``high``; None for any other text."""
    match = _WHOLE.fullmatch(text)
    value = int(match[1] + match[2]) if match else None
    return value if value is not None and low <= value <= high else None


def decimal(text: str, low: float = 0.0, high: float = math.inf) -> float | None:
    """A finite number from ``low`` to ``high``, as ``12``, ``0.5`` or ``1e-6``; None for any other text."""
    value = float(text) if _DECIMAL.fullmatch(text) else math.nan
    return value if math.isfinite(value) and low <= value <= high else None
