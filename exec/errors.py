"""What exec adds to the errors of the lower floors.

CcctlError (probes.errors)
└── NameTakenError   something else on this machine already has the name that was asked for
"""

from __future__ import annotations

from probes.errors import CcctlError

__all__ = ["NameTakenError"]


class NameTakenError(CcctlError):
    """Something else on this machine already has the name; it was left as it is."""
