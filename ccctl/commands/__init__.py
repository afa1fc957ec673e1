"""The commands in the order in which data passes through them; each module defines one."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["COMMANDS"]

COMMANDS: tuple[Callable[..., None], ...] = ()
