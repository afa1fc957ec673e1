"""The checker of symmetric schedules: it checks the quotient, which proves the listed and the implied sends.

Terms are those of `synth.schedules.symmetric`. Why the quotient is enough:

- Translations map the network and the collective to themselves, by construction: a symmetric network stores
  one link of each orbit, and translation makes all others.
- No translation but the identity leaves a rank, a link or a port where it was. So each link of an orbit
  carries exactly one translate of each listed send over that orbit, at the same time, and so does each port.
- The quotient gives all links of an orbit one common port, and merges all ports of an orbit. If the listed
  sends exclude each other there, all translates do on every link and port.
- The ranks that a chunk reaches, and its contributions, depend on the sends of that chunk alone. If the
  listed chunk arrives where the collective wants it, so do its translates.

So the verdict of `synth.check.schedule` on the quotient holds for the whole schedule.
"""

from __future__ import annotations

from synth.check.schedule import check
from synth.schedules import SymmetricSchedule, Timing

__all__ = ["check_symmetric"]


def check_symmetric(made: SymmetricSchedule, timing: Timing | None = None) -> list[str]:
    """Return findings with their places; an empty list proves all sends, at the times of the quotient.

    ``timing`` is the claimed timing of the quotient; None replays it. O(n) for n listed sends along trees.
    """
    return made.problems() or check(made.quotient, timing)
