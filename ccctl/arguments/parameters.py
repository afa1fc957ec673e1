"""Parameters of programs in the chunk language: ``-p nodes=4``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ccctl.errors import UsageError
from probes.base import LARGEST, decimal, whole

__all__ = ["parse_parameters"]


def parse_parameters(parameters: Sequence[str] | None) -> dict[str, Any]:
    """Return {name: value}: a number for ``nodes=4``, a truth value for ``fast=true``, else text.

    Raises UsageError.
    """
    found: dict[str, Any] = {}
    for text in parameters or ():
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise UsageError(f"-p {text}: expected NAME=VALUE")
        found[name] = _value(value)
    return found


def _value(text: str) -> Any:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    number = whole(text, -LARGEST)
    value = number if number is not None else decimal(text, -math.inf)
    return text if value is None else value
