"""Progress of long work: a stage reports values through a protocol, and prints nothing."""

from __future__ import annotations

from typing import Protocol

__all__ = ["SILENT", "Progress", "Safekeeping"]


class Progress(Protocol):
    """What a stage calls while it works; the command line draws it and feeds its watchdog with it."""

    def update(self, done: float, total: float, text: str = "") -> None:
        """``done`` of ``total`` units are finished; ``text`` names what is being done now."""

    def waiting(self, peer: int, what: str) -> None:
        """This rank now waits for rank ``peer`` (-1: for all); ``what`` says in which step."""


class Safekeeping(Progress, Protocol):
    """The progress of a rank, which may be lost before its result is whole."""

    def partial(self, value: object) -> None:
        """A piece of the result, soon kept by the command that started this rank."""


class _Silent:
    def update(self, done: float, total: float, text: str = "") -> None:
        """Nobody listens."""

    def waiting(self, peer: int, what: str) -> None:
        """Nobody listens."""

    def partial(self, value: object) -> None:
        """Nobody keeps it."""


SILENT: Safekeeping = _Silent()
