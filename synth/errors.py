"""The errors that synth adds to those of probes.

CcctlError (probes.base.errors)
├── NotProvenError           the judge refuses a schedule or a program; carries every finding
└── UsageError
    └── NotApplicableError   a method cannot serve this network and collective; others may
"""

from __future__ import annotations

from collections.abc import Sequence

from probes.base import CcctlError, UsageError, first_of

__all__ = ["NotApplicableError", "NotProvenError"]

# The most findings in a message; the error itself carries all of them.
_MOST_TOLD = 20


class NotProvenError(CcctlError):
    """A schedule or a program that the judge finds wrong; ``findings`` give each place and reason."""

    def __init__(self, findings: Sequence[str]) -> None:
        self.findings = tuple(findings)
        super().__init__(first_of(findings, _MOST_TOLD, "finding"))


class NotApplicableError(UsageError):
    """A method cannot serve this network and collective; the message gives the reason."""
