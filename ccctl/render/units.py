"""Times, sizes, bandwidths and shares as text: a few digits and a suitable unit."""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil

from probes.base import size_text

__all__ = ["about", "bandwidth", "bars", "percent", "seconds"]

about = size_text

_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))


def seconds(value_s: float) -> str:
    """Return a time as 3.21 ms, 850 us or 0 ns."""
    unit_s, name = next(unit for unit in _UNITS if abs(value_s) >= unit[0] or unit == _UNITS[-1])
    count = value_s / unit_s
    return f"{count:.3g} {name}" if abs(count) < 999.5 else f"{count:.0f} {name}"


def bandwidth(gbs: float) -> str:
    """Return GB/s with two decimals, as nccl-tests does.

    Small values keep three significant digits, down to 1 KB/s.
    """
    if 1e-6 <= gbs < 0.1:
        return f"{gbs:.3g}" if gbs >= 0.001 else f"{gbs:.2g}"
    return f"{gbs:.2f}"


def percent(share: float) -> str:
    """Return a share of one as a percentage with one decimal: 96.6 %."""
    return f"{100 * share:.1f} %"


def bars(shares: Iterable[float]) -> str:
    """Return one block character per share (0 to 1), rounded up to eighths; only 0 is blank."""
    return "".join(" ▁▂▃▄▅▆▇█"[min(8, ceil(8 * share - 1e-6))] for share in shares)
