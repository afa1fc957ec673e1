"""When to change to a schedule that is predicted to be faster, and when to roll that back.

A prediction is made from links that were measured within a moment. Flows of others come and go: they crowd
out the short trains of a measurement, or have moved on by the time that a new schedule is in use. So a
prediction has to explain the runs that it is made for, every swap is on trial, one that has made runs slower
is taken back. Where that helps, the prediction was wrong; the more were wrong of late, the more the next
one has to promise.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from exec.adaptive.messages import Request

__all__ = ["SwapGuard", "Trial"]

# So many runs of each request tell what they take; the middle one of three is no chance of one rank's.
_RUNS = 3
# Runs may be faster than predicted by so much, as schedules are where links are shared.
_EXPLAINED = 1.5
# Runs of equal schedules differ by as much on a busy host.
_ALIKE = 1.1
# A predicted gain that is less is not worth new contexts, as measurements have noise.
_LEAST_GAIN = 1.03
# For so long a wrong prediction counts, and so many count at most.
_REMEMBERED_S, _MOST = 600.0, 6


@dataclass(frozen=True)
class Trial:
    """What runs took before a swap and take after it, in seconds; of several requests one of each."""

    before_s: float
    after_s: float

    @property
    def has_failed(self) -> bool:
        """Whether runs have become slower."""
        return self.after_s > _ALIKE * self.before_s

    @property
    def has_gained(self) -> bool:
        """Whether runs have become faster."""
        return self.before_s > _ALIKE * self.after_s


class SwapGuard:
    """Remembers the last runs of each request, and the predictions that were wrong. Times are monotonic."""

    def __init__(self) -> None:
        # Runs in one part, and all.
        self._runs: dict[Request, deque[float]] = {}
        self._recent: dict[Request, deque[float]] = {}
        self._before: dict[Request, float] | None = None
        self._doubts: deque[float] = deque(maxlen=_MOST)

    def begin_anew(self) -> None:
        """Other members run other schedules."""
        self._runs.clear()
        self._recent.clear()
        self._before = None

    def ran(self, request: Request, seconds: float, *, disturbed: bool = False) -> None:
        """Note what a run of the schedule in use took; one beside a search is no trial of a swap."""
        self.ran_in_parts(request, seconds)
        if disturbed and self._before is not None:
            return
        self._runs.setdefault(request, deque(maxlen=_RUNS)).append(seconds)

    def ran_in_parts(self, request: Request, seconds: float) -> None:
        """Note what the parts of a run took together: more than in one part, where late ranks came later."""
        self._recent.setdefault(request, deque(maxlen=_RUNS)).append(seconds)

    def explains(self, before_s: Mapping[Request, float]) -> bool:
        """Whether runs are as slow as the schedules in use are predicted to be on the measured links.

        What has not run yet says nothing.
        """
        runs = {request: self._recent.get(request, ()) for request in before_s}
        known = {request: statistics.median(some) for request, some in runs.items() if len(some) == _RUNS}
        return sum(before_s[request] for request in known) <= _EXPLAINED * sum(known.values())

    def least_gain(self, now_s: float) -> float:
        """How many times as fast a schedule has to be predicted: squared for each recent wrong prediction."""
        return float(_LEAST_GAIN ** self.caution(now_s))

    def caution(self, now_s: float) -> int:
        """1, doubled for each recent wrong prediction."""
        while self._doubts and now_s - self._doubts[0] > _REMEMBERED_S:
            self._doubts.popleft()
        return 1 << len(self._doubts)

    def doubt(self, now_s: float) -> None:
        """Note that a prediction was wrong."""
        self._doubts.append(now_s)

    def swapped(self) -> None:
        """Another schedule is in use from now on, on trial."""
        self._before = {request: self._usual_s(request) for request in self._runs}
        self._runs.clear()

    def judged(self) -> Trial | None:
        """What the last swap has come to; None before that is known, and once it was told."""
        if self._before is None or not self._runs or not all(map(self._is_known, self._runs)):
            return None
        both = [request for request in self._runs if request in self._before]
        if not both:
            return None
        trial = Trial(sum(self._before[one] for one in both), sum(map(self._usual_s, both)))
        self._before = None
        return trial

    def _is_known(self, request: Request) -> bool:
        return len(self._runs.get(request, ())) == _RUNS

    def _usual_s(self, request: Request) -> float:
        return statistics.median(self._runs[request])
