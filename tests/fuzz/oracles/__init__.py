"""Second opinions on schedules and programs, that share no code with what they check.

``oracles.schedule.judge`` and ``oracles.program.judge`` read an artifact as mere data, follow every chunk by
brute force in plain Python, and return a Verdict. They are slow, and meant for small artifacts.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ACCEPTED", "Verdict", "refused"]


@dataclass(frozen=True)
class Verdict:
    """Whether an artifact is right, and if not, the first reason that was found."""

    accepted: bool
    reason: str = ""


ACCEPTED = Verdict(True)


def refused(reason: str) -> Verdict:
    return Verdict(False, reason)
