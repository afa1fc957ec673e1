"""The judge of symmetric schedules: one send of each orbit, proven for all.

Translations take links to links of the same costs and ports to ports, and the collective to itself. Of a
network that is given by one link of each orbit that needs no trust: all others are made by translating. A
translation other than none moves every rank, so every link and every port, too. So each link of an orbit
carries exactly one translate of each listed send over that orbit, at the same time, and so does each port.

In the quotient all links of an orbit share one port and the ports of an orbit are one. Where the listed
sends take turns there, all translates do on each link and each port. What reaches whom, and is added to what,
concerns one chunk alone: it holds of a translate where it holds of the chunk. So the plain judge's verdict on
the quotient is one on the whole, and shares no code with what makes schedules.
"""

from __future__ import annotations

from synth.check.schedule import check
from synth.simulation.schedule import Timing
from synth.symmetric_schedule import SymmetricSchedule

__all__ = ["check_symmetric"]


def check_symmetric(made: SymmetricSchedule, timing: Timing | None = None) -> list[str]:
    """Findings; an empty list proves all translates of all sends, at the times that the quotient has.

    O(listed sends · log of them), and for reducing collectives times ranks / 64.
    """
    return made.problems() or check(made.quotient, timing)
