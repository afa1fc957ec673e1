"""Parsing of numbers in ASCII digits: returns a value within bounds, else None; never raises.

Python's ``int`` reads the digits of every script, accepts underscores, and raises beyond 4,300 digits.
``str.isdigit`` accepts characters that ``int`` refuses (``²``). ``float`` returns infinity for large numbers.
"""

from __future__ import annotations

import math
import re

__all__ = ["LARGEST", "LEAST_BETA_S_PER_BYTE", "decimal", "whole"]

# The largest signed 64-bit integer, so that every value fits into a column of NumPy's int64.
LARGEST = (1 << 63) - 1
# The least beta of a link. It keeps rates (1 / beta) and products and ratios of costs finite.
LEAST_BETA_S_PER_BYTE = 1e-30
_WHOLE = re.compile(r"([+-]?)0*([0-9]{1,20})")
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


def whole(text: str, low: int = 0, high: int = LARGEST) -> int | None:
    """Return the whole number in ``text`` if it is from ``low`` to ``high``, else None."""
    match = _WHOLE.fullmatch(text)
    value = int(match[1] + match[2]) if match else None
    return value if value is not None and low <= value <= high else None


def decimal(text: str, low: float = 0.0, high: float = math.inf) -> float | None:
    """Return the number (``12``, ``0.5``, ``1e-6``) if finite and from ``low`` to ``high``, else None."""
    value = float(text) if _DECIMAL.fullmatch(text) else math.nan
    return value if math.isfinite(value) and low <= value <= high else None
