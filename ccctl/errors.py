"""The errors of the command line, and the one table from error to exit status.

CcctlError                 (probes.base.errors) expected failures; any other exception is our bug: 70
├── UsageError          2
├── DataError          65  bad artifact or input file
│   └── WrongResultsError   1  measured results in an input are wrong
├── MissingInputError  66
├── UnavailableError   69  no GPU, MPI, solver or permission for what was asked
├── LostRankError       1  a rank died or hung
├── FoundProblem        1  the command ran and found a problem: drift, wrong result, verify failed
├── CannotWriteError   73
├── LockHeldError      75  try later
├── UndecidedError     75  the measurements do not suffice for a verdict; try again
├── ConfigError        78
└── TimeoutExpired    124  the command's own --timeout
"""

from __future__ import annotations

import os

from probes.base import (
    CcctlError,
    DataError,
    LockHeldError,
    LostRankError,
    MissingInputError,
    TimeoutExpired,
    UnavailableError,
    UsageError,
    WrongResultsError,
)

__all__ = [
    "EXIT_STATUS",
    "INTERNAL",
    "INTERRUPTED",
    "CannotWriteError",
    "CcctlError",
    "ConfigError",
    "DataError",
    "FoundProblem",
    "LockHeldError",
    "LostRankError",
    "MissingInputError",
    "TimeoutExpired",
    "UnavailableError",
    "UndecidedError",
    "UsageError",
    "WrongResultsError",
    "exit_status",
    "message_of",
]


class FoundProblem(CcctlError):  # noqa: N818 - a finding, not an error of the program
    """The command did its work and found something wrong; its output already says what."""


class CannotWriteError(CcctlError):
    """An output cannot be created or replaced; nothing was changed."""


class UndecidedError(CcctlError):
    """The measurements do not suffice for a verdict."""


class ConfigError(CcctlError):
    """A configuration file is wrong."""


INTERNAL = os.EX_SOFTWARE
# 128 + SIGINT, as shells report it.
INTERRUPTED = 130
EXIT_STATUS: dict[type[CcctlError], int] = {
    FoundProblem: 1,
    LostRankError: 1,
    WrongResultsError: 1,
    UsageError: 2,
    DataError: os.EX_DATAERR,
    MissingInputError: os.EX_NOINPUT,
    UnavailableError: os.EX_UNAVAILABLE,
    CannotWriteError: os.EX_CANTCREAT,
    LockHeldError: os.EX_TEMPFAIL,
    UndecidedError: os.EX_TEMPFAIL,
    ConfigError: os.EX_CONFIG,
    TimeoutExpired: 124,
}


# Options that have another name than the library's argument, by argument.
_OPTIONS = {"peers": "vs", "runtime": "for"}


def message_of(error: CcctlError) -> str:
    """Return the message of an error, with names of library arguments replaced by their options."""
    if not error.argument:
        return error.message
    option = _OPTIONS.get(error.argument, error.argument).replace("_", "-")
    return f"--{option}{error.message.removeprefix(error.argument)}"


def exit_status(error: CcctlError) -> int:
    """Return the exit status of an expected error; the nearest class in the table decides."""
    for cls in type(error).__mro__:
        if cls in EXIT_STATUS:
            return EXIT_STATUS[cls]
    return INTERNAL
