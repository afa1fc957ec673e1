"""Progress of long work: a stage reports values through a protocol, and prints nothing."""

from __future__ import annotations

from typing import Protocol

__all__ = ["SILENT", "Progress", "Safekeeping"]


class Progress(Protocol):
    """Calls that a stage makes while it works: they drive the progress display and the watchdog."""

    def update(self, done: float, total: float, text: str = "") -> None:
        """Report that ``done`` of ``total`` units are finished; ``text`` names the current work."""

    def waiting(self, peer: int, what: str) -> None:
        """Report that this rank waits for rank ``peer`` (-1: for all); ``what`` names the step."""


class Safekeeping(Progress, Protocol):
    """Progress of a rank that may be lost, and so hands over its result piece by piece."""

    def partial(self, value: object) -> None:
        """Hand over a piece of the result to the command that started this rank."""


class _Silent:
    def update(self, done: float, total: float, text: str = "") -> None:
        """Ignore the progress."""

    def waiting(self, peer: int, what: str) -> None:
        """Ignore the wait."""

    def partial(self, value: object) -> None:
        """Ignore the piece."""


SILENT: Safekeeping = _Silent()
