"""The request of an acceptance: its ranks, its terms, and its time limits."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ccctl.launching import Deadline, World

if TYPE_CHECKING:
    from exec.acceptance import Terms

__all__ = ["AcceptanceRequest"]

# The links get this share of the time that is left after the hosts. The collectives get the rest.
_LINKS_SHARE = 0.6


@dataclass(frozen=True)
class AcceptanceRequest:
    """The ranks to test, the terms of the acceptance, and its limits in seconds.

    ``sizes_bytes`` are the sizes of the collectives, smallest first; empty for some that fit the network.
    ``budget_s`` limits the time of measuring: measurements that do not fit are left out, and the certificate
    says so. ``timeout_s`` ends the command.
    """

    world: World
    terms: Terms
    sizes_bytes: tuple[int, ...] = ()
    budget_s: float | None = None
    timeout_s: float | None = None
    device: str = "auto"
    began_s: float = field(default_factory=time.monotonic)

    def links_budget_s(self) -> float | None:
        """Return the seconds for the links; None without a budget."""
        left_s = self.left_s(self.budget_s)
        return None if left_s is None else max(1.0, _LINKS_SHARE * left_s)

    def whole_budget_s(self) -> float | None:
        """Return the seconds for the collectives; None without a budget."""
        left_s = self.left_s(self.budget_s)
        return None if left_s is None else max(1.0, left_s)

    def seconds_left(self) -> float | None:
        """Return the seconds that are left until the timeout, None without one.

        Raises TimeoutExpired if none are.
        """
        return Deadline(self.timeout_s, self.began_s).left_s()

    def left_s(self, limit_s: float | None) -> float | None:
        """Return the seconds that are left of a limit; None without one."""
        return None if limit_s is None else limit_s - (time.monotonic() - self.began_s)
