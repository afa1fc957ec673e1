"""What synth adds to the errors of the first floor.

CcctlError (probes.errors)
└── UsageError
    └── NotApplicableError   a method cannot serve this network and collective; others may
"""

from __future__ import annotations

from probes.errors import UsageError

__all__ = ["NotApplicableError"]


class NotApplicableError(UsageError):
    """A method cannot serve this network and collective; the message says what it lacks."""
