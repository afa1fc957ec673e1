"""Sizes, rates and times as people type them: ``16M``, ``50GiB/s``, ``0.5us``."""

from __future__ import annotations

import math
import re

from ccctl.errors import UsageError

__all__ = [
    "format_rate",
    "format_size",
    "parse_rate",
    "parse_rates",
    "parse_seconds",
    "parse_size",
    "parse_sizes",
]

_NUMBER = r"(\d+(?:\.\d*)?|\.\d+)(?:[eE]([+-]?\d+))?"
_BINARY = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_DECIMAL = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ns": 1e-9}
_SIZE = re.compile(rf"{_NUMBER}\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)
_RATE = re.compile(rf"{_NUMBER}\s*([kKmMgGtT]?)(?:(i?)B|b|bit)(?:/s|ps)")
_TIME = re.compile(rf"{_NUMBER}\s*(\D+)")


def parse_size(text: str, option: str = "size") -> int:
    """Bytes, as nccl-tests reads them: K, M, G and T are powers of 1024, whether or not B or iB follows.

    Raises UsageError, naming ``option``, unless ``text`` is a whole number of bytes, at least one.
    """
    match = _SIZE.fullmatch(text.strip())
    size = _number(match) * _BINARY[match[3].lower()] if match else 0.0
    if size < 1 or not size.is_integer():
        raise UsageError(
            f"{option}: expected a size, a whole number of bytes ≥ 1, found {text!r}",
            hint="Write it as nccl-tests does: 8, 32K, 128M, 1G.",
        )
    return int(size)


def parse_sizes(text: str, option: str = "sizes") -> tuple[int, int]:
    """The ends of a range of sizes, ``1K:1G``; raises UsageError, naming ``option``."""
    low, colon, high = text.partition(":")
    if not colon:
        raise UsageError(f"{option}: expected FROM:TO, found {text!r}", hint="For example 1K:1G.")
    return parse_size(low, option), parse_size(high, option)


def parse_rate(text: str, option: str = "bandwidth") -> float:
    """Bytes per second: ``50GB/s`` is 50·10⁹, ``50GiB/s`` is 50·2³⁰, ``400Gbit/s`` is 50·10⁹.

    Raises UsageError, naming ``option``.
    """
    return parse_rates(text, option, most=1)[0]


def parse_rates(text: str, option: str = "bandwidth", *, most: int | None = None) -> tuple[float, ...]:
    """Rates separated by commas; one without a unit takes that of the last: ``200,100,50GB/s``.

    Raises UsageError, naming ``option``, for a rate that is not positive or for more than ``most``.
    """
    parts = [part.strip() for part in text.split(",")]
    unit = re.sub(rf"^{_NUMBER}", "", parts[-1])
    rates = tuple(_rate(part, unit) for part in parts)
    if not all(0 < rate < math.inf for rate in rates) or (most is not None and len(rates) > most):
        raise UsageError(
            f"{option}: expected a rate > 0 with its unit, found {text!r}",
            hint="For example 50GB/s, 50GiB/s or 400Gbit/s.",
        )
    return rates


def parse_seconds(text: str, option: str = "alpha") -> float:
    """Seconds: ``0.5us``, ``20ns``, ``3ms``, ``1s``; only 0 needs no unit.

    Raises UsageError, naming ``option``.
    """
    stripped = text.strip()
    if re.fullmatch(r"0+(\.0*)?", stripped):
        return 0.0
    match = _TIME.fullmatch(stripped)
    if match is None or match[3].strip() not in _SECONDS or not math.isfinite(_number(match)):
        raise UsageError(
            f"{option}: expected a time ≥ 0 with its unit, found {text!r}",
            hint="For example 0.5us, 20ns or 1ms.",
        )
    return _number(match) * _SECONDS[match[3].strip()]


def format_size(size_bytes: int) -> str:
    """The shortest text that ``parse_size`` reads back as the same size: 16M, 96K, 1000."""
    for unit in ("T", "G", "M", "K"):
        if size_bytes and size_bytes % _BINARY[unit.lower()] == 0:
            return f"{size_bytes // _BINARY[unit.lower()]}{unit}"
    return str(size_bytes)


def format_rate(bytes_per_s: float) -> str:
    """A rate in bits, as links are sold, that ``parse_rate`` reads back to six digits: 100Mbit/s."""
    for unit in ("T", "G", "M", "k"):
        if 8 * bytes_per_s >= _DECIMAL[unit.lower()]:
            return f"{8 * bytes_per_s / _DECIMAL[unit.lower()]:g}{unit}bit/s"
    return f"{8 * bytes_per_s:g}bit/s"


def _number(match: re.Match[str]) -> float:
    return float(f"{match[1]}e{match[2] or 0}")


def _rate(text: str, unit: str) -> float:
    match = _RATE.fullmatch(text) or _RATE.fullmatch(text + unit)
    if match is None:
        return 0.0
    if match[4] == "i":
        return _number(match) * _BINARY[match[3].lower()]
    bits = "B" not in match[0]
    return _number(match) * _DECIMAL[match[3].lower()] / (8 if bits else 1)
