"""The record `Difference`: one difference between two machines, with its severity."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

__all__ = ["Difference", "Severity", "fact"]

_SPELLED = {
    "pcie": "PCIe",
    "numa": "NUMA",
    "cpu": "CPU",
    "cpus": "CPUs",
    "mtu": "MTU",
    "mig": "MIG",
    "gpudirect": "GPUDirect",
    "nvlink": "NVLink",
    "xgmi": "xGMI",
    "c2c": "C2C",
}
Severity: TypeAlias = Literal["critical", "warning", "info"]


@dataclass(frozen=True)
class Difference:
    """One difference: ``where`` names the host and the record, ``what`` is a stable word for its kind.

    Missing things are "critical", degraded or moved ones "warning", additional or merely changed ones "info".
    """

    what: str
    severity: Severity
    where: str
    text: str
    expected: str = ""
    found: str = ""


def fact(
    where: str,
    subject: str,
    what: str,
    expected: Any,
    found: Any,
    *,
    less: Severity = "warning",
    tolerance: float = 0.0,
    shown: Callable[[Any], str] = str,
) -> Iterator[Difference]:
    """Yield a difference in one fact, if both sides state it; a number above the expected one is "info"."""
    if expected in (None, "", ()) or found in (None, "", ()) or expected == found:
        return
    numbers = isinstance(expected, int | float) and isinstance(found, int | float)
    if numbers and abs(found - expected) <= tolerance * abs(expected):
        return
    severity: Severity = "info" if numbers and found > expected else less
    words = " ".join(_SPELLED.get(word, word) for word in what.split("-"))
    text = f"{subject}: {words}: expected {shown(expected)}, found {shown(found)}"
    yield Difference(what, severity, where, text, shown(expected), shown(found))
