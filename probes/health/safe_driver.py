"""Queries to NVML in which an answer of a wrong type counts as refused and raises nothing."""

from __future__ import annotations

import ctypes
from typing import Any

from probes.base import LARGEST
from probes.nvml import Driver

__all__ = ["FOREIGN", "SafeDriver"]

# The reason under which an answer of a wrong type is counted. Only a recording can hold such an answer.
FOREIGN = "an answer that no driver gives"
_ERRORS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
    ctypes.ArgumentError,
)
# Longest text that is taken: NVML_DEVICE_NAME_V2_BUFFER_SIZE in nvml.h.
_LONGEST = 96


class SafeDriver(Driver):
    """Queries to NVML, each for one type of answer; failed queries are counted by call and reason."""

    def ask(self, call: str, *arguments: object, quiet: bool = False) -> Any:
        """Return the answer of a call; None if it is refused."""
        try:
            return super().ask(call, *arguments, quiet=quiet)
        except _ERRORS:
            return self._foreign(call)

    def field(self, handle: object, field_id: int, scope: int | None = None) -> int | None:
        """Return the value of a field; None if it is not a count."""
        try:
            found = super().field(handle, field_id, scope)
        except _ERRORS:
            return None
        return found if found is not None and _is_count(found) else None

    def text(self, call: str, handle: object) -> str:
        """Return an answer that is text; "" if it is anything else."""
        answer = self.ask(call, handle)
        words = answer.decode(errors="replace") if isinstance(answer, bytes) else answer
        if words is None or isinstance(words, str):
            return (words or "")[:_LONGEST]
        self._foreign(call)
        return ""

    def count(self, call: str, *arguments: object, quiet: bool = False) -> int | None:
        """Return an answer that is a count; None if it is anything else."""
        answer = self.ask(call, *arguments, quiet=quiet)
        if answer is None or _is_count(answer):
            return None if answer is None else int(answer)
        self._foreign(call)
        return None

    def counts(self, call: str, size: int, *arguments: object, quiet: bool = False) -> list[int] | None:
        """Return an answer that is a list of at least ``size`` counts; None if it is anything else."""
        answer = self.ask(call, *arguments, quiet=quiet)
        if isinstance(answer, list | tuple) and len(answer) >= size and all(map(_is_count, answer)):
            return [int(one) for one in answer]
        if answer is not None:
            self._foreign(call)
        return None

    def flag(self, call: str, *arguments: object) -> bool | None:
        """Return an answer as a truth value, False for 0; None if it is not a count."""
        answer = self.count(call, *arguments)
        return None if answer is None else answer != 0

    def _foreign(self, call: str) -> None:
        self.refused[call, FOREIGN] += 1


def _is_count(answer: object) -> bool:
    return isinstance(answer, int) and 0 <= answer <= LARGEST
