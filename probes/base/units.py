"""Sizes, rates and times as text: ``16M``, ``50GiB/s``, ``0.5us``."""

from __future__ import annotations

import math
import re

from probes.base.errors import UsageError, quoted

__all__ = [
    "MOST_BYTES",
    "format_rate",
    "format_size",
    "parse_duration",
    "parse_rate",
    "parse_rates",
    "parse_seconds",
    "parse_size",
    "parse_sizes",
]

# 1 PiB is beyond any buffer, and a float holds every whole number of bytes up to it exactly.
MOST_BYTES = 1 << 50
# Values outside one bit per second to an exabyte per second are mistakes in the unit.
_LEAST_RATE, _MOST_RATE = 0.125, 1e18
# Times outside a millionth of a nanosecond to about 32 years are mistakes in the unit.
_LEAST_S, _MOST_S = 1e-15, 1e9
_NUMBER = r"((?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"
_BINARY = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_DECIMAL = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ns": 1e-9}
_LONG = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_SIZE = re.compile(rf"{_NUMBER}\s*(?:([kmgt])i?)?b?", re.IGNORECASE | re.ASCII)
_RATE = re.compile(rf"{_NUMBER}\s*([kKmMgGtT]?)(?:(i?)B|b|bit)(?:/s|ps)")
_TIME = re.compile(rf"{_NUMBER}\s*([^0-9]+)")


def parse_size(text: str, name: str = "size") -> int:
    """Return bytes, read as by nccl-tests: K, M, G, T are powers of 1024, also before B, i or iB.

    Raises UsageError, which begins with ``name``, unless ``text`` is a whole number of bytes from 1 to
    ``MOST_BYTES``.
    """
    match = _SIZE.fullmatch(text.strip())
    size = float(match[1]) * _BINARY[(match[2] or "").lower()] if match else 0.0
    if not 1 <= size <= MOST_BYTES or not size.is_integer():
        raise UsageError(
            f"{name}: expected a size, a whole number of bytes from 1 to {format_size(MOST_BYTES)}, "
            f"found {quoted(text)}",
            hint="Write it as nccl-tests does: 8, 32K, 128M, 1G.",
        )
    return int(size)


def parse_sizes(text: str, name: str = "sizes") -> tuple[int, int]:
    """Return the ends of a range of sizes, ``1K:1G``; raises UsageError, which begins with ``name``."""
    low, colon, high = text.partition(":")
    if not colon:
        raise UsageError(f"{name}: expected FROM:TO, found {quoted(text)}", hint="For example 1K:1G.")
    return parse_size(low, name), parse_size(high, name)


def parse_rate(text: str, name: str = "bandwidth") -> float:
    """Return bytes per second: ``50GB/s`` is 50·10⁹, ``50GiB/s`` is 50·2³⁰, ``400Gbit/s`` is 50·10⁹.

    Raises UsageError, which begins with ``name``.
    """
    return parse_rates(text, name, most=1)[0]


def parse_rates(text: str, name: str = "bandwidth", *, most: int | None = None) -> tuple[float, ...]:
    """Return comma-separated rates; a rate without a unit has the last rate's unit: ``200,100,50GB/s``.

    Raises UsageError, which begins with ``name``, for a rate below 1 bit/s or above 10⁶ TB/s, and for more
    than ``most`` rates.
    """
    parts = [part.strip() for part in text.split(",")]
    unit = re.sub(rf"^{_NUMBER}", "", parts[-1])
    rates = tuple(_rate(part, unit) for part in parts)
    if not all(_LEAST_RATE <= rate <= _MOST_RATE for rate in rates) or (
        most is not None and len(rates) > most
    ):
        raise UsageError(
            f"{name}: expected a rate with its unit, from 1bit/s to 1000000TB/s, found {quoted(text)}",
            hint="For example 50GB/s, 50GiB/s or 400Gbit/s.",
        )
    return rates


def parse_seconds(text: str, name: str = "alpha", *, positive: bool = False) -> float:
    """Return the seconds in ``0.5us``, ``20ns`` or ``1s``; a bare 0 is allowed unless ``positive``.

    Raises UsageError, which begins with ``name``.
    """
    stripped = text.strip()
    match = _TIME.fullmatch(stripped)
    scale = _SECONDS.get(match[2].strip()) if match else None
    found = float(match[1]) * scale if match and scale else math.inf
    if re.fullmatch(r"0+(\.0*)?", stripped):
        found = 0.0
    if positive and found == 0:
        raise UsageError(f"{name}: expected a time > 0, found {text}")
    if found != 0 and not _LEAST_S <= found <= _MOST_S:
        raise UsageError(
            f"{name}: expected a time with its unit, 0 or from 1e-6ns to 1e9s, found {quoted(text)}",
            hint="For example 0.5us, 20ns or 1ms.",
        )
    return found


def parse_duration(text: str, name: str = "duration") -> float:
    """Return the seconds in ``90``, ``90s``, ``15m``, ``2h`` or ``1d``; raises UsageError with ``name``."""
    match = re.fullmatch(rf"{_NUMBER}\s*([a-z]*)", text.strip())
    found = float(match[1]) * _LONG.get(match[2], math.inf) if match else math.inf
    if not 0 < found <= _MOST_S:
        raise UsageError(
            f"{name}: expected a duration > 0, found {quoted(text)}", hint="For example 90s, 15m or 2h."
        )
    return found


def format_size(size_bytes: int) -> str:
    """Return the shortest text that ``parse_size`` reads back as the same size: 16M, 96K, 1000."""
    for unit in ("T", "G", "M", "K"):
        if size_bytes and size_bytes % _BINARY[unit.lower()] == 0:
            return f"{size_bytes // _BINARY[unit.lower()]}{unit}"
    return str(size_bytes)


def format_rate(bytes_per_s: float) -> str:
    """Return a rate as text in bits; ``parse_rate`` reads it back to six digits: 100Mbit/s."""
    for unit in ("T", "G", "M", "k"):
        if 8 * bytes_per_s >= _DECIMAL[unit.lower()]:
            return f"{8 * bytes_per_s / _DECIMAL[unit.lower()]:g}{unit}bit/s"
    return f"{8 * bytes_per_s:g}bit/s"


def _rate(text: str, unit: str) -> float:
    match = _RATE.fullmatch(text) or _RATE.fullmatch(text + unit)
    if match is None:
        return 0.0
    number, prefix = float(match[1]), match[2].lower()
    if match[3] == "i":
        return number * _BINARY[prefix]
    bits = "B" not in match[0]
    return number * _DECIMAL[prefix] / (8 if bits else 1)
