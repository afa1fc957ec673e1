"""Times and shares as people read them: three digits and the unit that fits."""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil

__all__ = ["about", "bandwidth", "bars", "percent", "seconds"]

_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))


def seconds(value_s: float) -> str:
    """Return 3.21 ms, 850 us, 0 ns."""
    unit_s, name = next(unit for unit in _UNITS if abs(value_s) >= unit[0] or unit == _UNITS[-1])
    count = value_s / unit_s
    return f"{count:.3g} {name}" if abs(count) < 999.5 else f"{count:.0f} {name}"


def bandwidth(gbs: float) -> str:
    """Return GB/s as nccl-tests has them, with two digits behind the point.

    Slow networks keep three that count.
    """
    return f"{gbs:.3g}" if 0.001 <= gbs < 0.1 else f"{gbs:.2f}"


def percent(share: float) -> str:
    """Return a share of one as a percentage with one decimal: 96.6 %."""
    return f"{100 * share:.1f} %"


def bars(shares: Iterable[float]) -> str:
    """Shares of one as a bar each, in eighths; one that is not 0 is seen."""
    return "".join(" ▁▂▃▄▅▆▇█"[min(8, ceil(8 * share - 1e-6))] for share in shares)


def about(size_bytes: float) -> str:
    """Return a size in four digits at most, in powers of 1024 as nccl-tests has them: 41K, 1.5M, 256M."""
    power = min(4, max(0, (int(size_bytes).bit_length() - 1) // 10))
    return f"{size_bytes / 1024**power:.4g}{('', 'K', 'M', 'G', 'T')[power]}"
