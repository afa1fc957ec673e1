"""The root of every expected error, and the errors of this floor.

CcctlError                 the root: a message, and a hint with what to do next
├── UsageError             the request contradicts itself, or asks for what cannot be
├── DataError              an input was read and is wrong; carries every problem found in it
│   └── WrongResultsError  measured results in it are wrong, and for other problems it cannot be judged
├── MissingInputError      an input is not there
├── UnavailableError       no GPU, MPI, solver or permission for what was asked
├── LockHeldError          another run holds the lock; try later
├── LostRankError          a rank died, hung or was stopped while others waited for it
└── TimeoutExpired         the time limit that the caller gave ran out
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


# Of a message about one input; of a file of a million wrong lines it is the first.
_MOST_LINES = 100
# Characters of a bad value.
_SHOWN = 60
# Characters of a line.
_MOST_LINE = 10_000


class CcctlError(Exception):
    """An expected failure: ``message`` says what was expected, found and where, ``hint`` what to do.

    A message of several lines is given as these lines; a newline within one came with a value and does not
    break it. Where an argument of a function is at fault, ``argument`` is its name, and the message begins
    with it.
    """

    def __init__(self, message: str | Iterable[str], *, hint: str = "", argument: str = "") -> None:
        lines = (message,) if isinstance(message, str) else message
        self.message = argument + "\n".join(visible(line, _MOST_LINE) for line in lines)
        super().__init__(self.message)
        self.hint = hint
        self.argument = argument


class UsageError(CcctlError):
    """The request contradicts itself, or asks for what cannot be."""


class DataError(CcctlError):
    """The content of ``source`` is wrong; ``problems`` holds each one as ``path: what is wrong``."""

    def __init__(self, source: str, problems: Sequence[str], *, hint: str = "") -> None:
        self.source = source
        self.problems = tuple(problems)
        told = first_of(self.problems, _MOST_LINES, "problem")
        super().__init__([f"{source}: {problem}" for problem in told], hint=hint)


class WrongResultsError(DataError):
    """Results that were measured are wrong, which comes first; further problems keep it from being judged."""


class MissingInputError(CcctlError):
    """An input that was named is not there."""


class UnavailableError(CcctlError):
    """This machine lacks the device, library, solver or permission that was asked for."""


class LockHeldError(CcctlError):
    """Another run holds the lock; try later."""


class LostRankError(CcctlError):
    """A rank died, hung or was stopped; the message names it and who waited for it."""


class TimeoutExpired(CcctlError):  # noqa: N818 - named as subprocess names it
    """The time limit that the caller gave ran out."""


def quoted(text: str) -> str:
    """A word as messages show it: in quotes, and cut off where it is long."""
    return repr(text) if len(text) <= _SHOWN else f"{text[:_SHOWN]!r}… ({len(text)} characters)"
