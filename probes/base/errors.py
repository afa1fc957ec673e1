"""The root class of all expected errors, and its general subclasses.

CcctlError                 the root: a message, and a hint with what to do next
├── UsageError             the request contradicts itself, or cannot be met
├── DataError              an input was read and is wrong; carries every problem found in it
│   └── WrongResultsError  measured results are wrong, and other problems keep the input from being judged
├── MissingInputError      an input does not exist or cannot be read
├── UnavailableError       the machine lacks a GPU, MPI, a solver or a permission
├── LockHeldError          another run holds the lock; try later
├── LostRankError          a rank died, hung or was stopped while others waited for it
└── TimeoutExpired         the caller's time limit ran out
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from probes.base.visible_text import visible
from probes.base.wording import first_of

__all__ = [
    "CcctlError",
    "DataError",
    "LockHeldError",
    "LostRankError",
    "MissingInputError",
    "TimeoutExpired",
    "UnavailableError",
    "UsageError",
    "WrongResultsError",
    "quoted",
]


# Most lines of one message: a file may hold a million wrong lines.
_MOST_LINES = 100
# Characters shown of a bad value.
_SHOWN = 60
# Characters shown of a line.
_MOST_LINE = 10_000


class CcctlError(Exception):
    """An expected failure: ``message`` says what was expected, found and where, ``hint`` what to do.

    If ``message`` is a sequence, its items are the lines of the message. A newline inside a line comes from a
    value and is escaped. ``argument`` names the function's argument that is at fault; the message begins with
    this name.
    """

    def __init__(self, message: str | Iterable[str], *, hint: str = "", argument: str = "") -> None:
        lines = (message,) if isinstance(message, str) else message
        self.message = argument + "\n".join(visible(line, _MOST_LINE) for line in lines)
        super().__init__(self.message)
        self.hint = hint
        self.argument = argument


class UsageError(CcctlError):
    """A request that contradicts itself, or cannot be met."""


class DataError(CcctlError):
    """Wrong content of ``source``; ``problems`` holds each problem as ``path: what is wrong``."""

    def __init__(self, source: str, problems: Sequence[str], *, hint: str = "") -> None:
        self.source = source
        self.problems = tuple(problems)
        shown = first_of(self.problems, _MOST_LINES, "problem")
        super().__init__([f"{source}: {problem}" for problem in shown], hint=hint)


class WrongResultsError(DataError):
    """Wrong measured results, in an input that has further problems and cannot be judged."""


class MissingInputError(CcctlError):
    """A named input that does not exist or cannot be read."""


class UnavailableError(CcctlError):
    """A device, library, solver or permission that was requested and that this machine lacks."""


class LockHeldError(CcctlError):
    """A lock that another run holds; try later."""


class LostRankError(CcctlError):
    """A rank that died, hung or was stopped; the message names it and the ranks that waited for it."""


class TimeoutExpired(CcctlError):  # noqa: N818 - named as subprocess names it
    """The caller's time limit ran out."""


def quoted(text: str) -> str:
    """Return the text in quotes, cut off if it is long, as messages show it."""
    return repr(text) if len(text) <= _SHOWN else f"{text[:_SHOWN]!r}… ({len(text)} characters)"
