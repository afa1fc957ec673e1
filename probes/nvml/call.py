"""Guarded calls of NVML: a call that fails returns None, and is counted."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from probes.base import normal_bus_id

__all__ = ["METHOD", "Driver", "bus_id_of"]

METHOD = "nvml"


@dataclass
class Driver:
    """NVML with each call guarded; failed calls are counted by call and reason."""

    nvml: Any
    refused: Counter[tuple[str, str]] = field(default_factory=Counter)

    def ask(self, call: str, *arguments: object, quiet: bool = False) -> Any:
        """Return the answer of a call; None if the driver refuses it or ``nvml`` lacks it."""
        try:
            return getattr(self.nvml, call)(*arguments)
        except (self.nvml.NVMLError, AttributeError) as error:
            if not quiet:
                self.refused[call, str(error)] += 1
            return None

    def text(self, call: str, handle: object) -> str:
        answer = self.ask(call, handle)
        return answer.decode(errors="replace") if isinstance(answer, bytes) else str(answer or "")

    def field(self, handle: object, field_id: int, scope: int | None = None) -> int | None:
        """Return a field value; None if the driver lacks it, which it states in the value's return code."""
        wanted = field_id if scope is None else (field_id, scope)
        values = self.ask("nvmlDeviceGetFieldValues", handle, [wanted], quiet=True)
        if not values or values[0].nvmlReturn != 0:
            return None
        return int(values[0].value.uiVal)


def bus_id_of(place: Any) -> str:
    """Return the bus id of NVML's PCI record, as Linux writes it."""
    raw = place.busId
    try:
        return normal_bus_id(raw.decode() if isinstance(raw, bytes) else raw)
    except ValueError:
        return f"{place.domain:04x}:{place.bus:02x}:{place.device:02x}.0"
