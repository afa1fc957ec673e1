"""The errors that exec adds to those of the packages below it.

CcctlError (probes.base.errors)
└── NameTakenError   something else on this machine already has the requested name

RankFailed is not a CcctlError: it carries an unexpected exception from a rank.
"""

from __future__ import annotations

from probes.base import CcctlError

__all__ = ["NameTakenError", "RankFailed"]


class NameTakenError(CcctlError):
    """Something else on this machine already has the name, and was not changed."""


class RankFailed(Exception):  # noqa: N818 - carries a rank's traceback, which says what the error was
    """A function called on a rank raised an exception that is not a CcctlError."""
