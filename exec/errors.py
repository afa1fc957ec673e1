"""The errors that exec adds to those of the lower floors.

CcctlError (probes.base.errors)
└── NameTakenError   something else on this machine already has the name that was asked for

RankFailed is no CcctlError: nobody expected the exception that it carries from a rank.
"""

from __future__ import annotations

from probes.base import CcctlError

__all__ = ["NameTakenError", "RankFailed"]


class NameTakenError(CcctlError):
    """Something else on this machine already has the name; it was left as it is."""


class RankFailed(Exception):  # noqa: N818 - carries a rank's traceback, which says what the error was
    """The function that was called on a rank raised an exception that is no CcctlError."""
