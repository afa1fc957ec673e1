"""When to change to a schedule that is predicted to be faster, and when to roll that back.

A prediction is made from links that were measured within a moment. Flows of others come and go: they crowd
out the short trains of a measurement, or have moved on by the time that a new schedule is in use. So a
prediction has to explain the runs that it is made for, every swap is on trial, one that has made runs slower
is taken back. Where that helps, the prediction was wrong; the more were wrong of late, the more the next
one has to promise. One that comes true makes up for one that was wrong.

Runs count in one part or in several: where a host is slow, most go without it first.
"""

from __future__ import annotations

import statistics
from collections import Counter, deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from exec.adaptive.messages import CollectiveCall

__all__ = ["SwapGuard", "SwapTrial"]

# So many runs of each request tell what they take; the middle one of three is no chance of one rank's.
_RUNS = 3
# A trial ends after so many runs: a search may be under way all the time, or what ran before runs no more.
_LONGEST = 10 * _RUNS
# Runs may be faster than predicted by so much, as schedules are where links are shared.
_EXPLAINED = 1.5
# Runs of equal schedules differ by as much on a busy host.
_ALIKE = 1.1
# A predicted gain that is less is not worth new contexts, as measurements have noise.
_LEAST_GAIN = 1.03
# For so long a wrong prediction counts, and so many count at most.
_REMEMBERED_S, _MOST = 600.0, 6


@dataclass(frozen=True)
class SwapTrial:
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
        self._runs: dict[CollectiveCall, deque[float]] = {}
        # What runs took before the swap that is on trial; how many there were since, and those on their own.
        self._before: dict[CollectiveCall, float] | None = None
        self._since: Counter[CollectiveCall] = Counter()
        self._alone: dict[CollectiveCall, deque[float]] = {}
        self._doubts: deque[float] = deque(maxlen=_MOST)
        # Whether the last prediction did not explain the runs.
        self._unexplained = False

    @property
    def on_trial(self) -> bool:
        """Whether it is not known yet what the last swap has come to."""
        return self._before is not None

    def begin_anew(self) -> None:
        """Other members run other schedules."""
        self._runs.clear()
        self._before = None
        self._unexplained = False

    def ran(self, request: CollectiveCall, seconds: float, *, disturbed: bool = False) -> None:
        """Note what the parts of a run took together; ``disturbed``: beside a search or the like."""
        self._runs.setdefault(request, deque(maxlen=_RUNS)).append(seconds)
        self._since[request] += 1
        if not disturbed:
            self._alone.setdefault(request, deque(maxlen=_RUNS)).append(seconds)

    def explains(self, before_s: Mapping[CollectiveCall, float]) -> bool:
        """Whether runs are as slow as the schedules in use are predicted to be on the measured links.

        What has not run yet says nothing.
        """
        runs = {request: self._runs.get(request, ()) for request in before_s}
        known = _usual_s(runs)
        return sum(before_s[request] for request in known) <= _EXPLAINED * sum(known.values())

    def explained(self) -> None:
        """Note that the last prediction explains the runs, or promised nothing."""
        self._unexplained = False

    def unexplained(self, now_s: float) -> None:
        """Note that a prediction did not explain the runs: once is chance, twice in a row one was wrong."""
        if self._unexplained:
            self.doubt(now_s)
        self._unexplained = True

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

    def trust(self, now_s: float) -> None:
        """Note that a prediction came true: the oldest recent wrong one is forgotten."""
        if self.caution(now_s) > 1:
            self._doubts.popleft()

    def swapped(self) -> None:
        """Another schedule is in use from now on, on trial."""
        self._before = {request: statistics.median(runs) for request, runs in self._runs.items()}
        self._since.clear()
        self._alone.clear()

    def judged(self) -> SwapTrial | None:
        """What the last swap has come to; None before that is known, once it was told, and if never known.

        Runs on their own tell it, others only where there are too few of these for long.
        """
        if self._before is None:
            return None
        is_over = self._since.total() >= _LONGEST
        known = _usual_s(self._alone)
        if is_over:
            known = (
                _usual_s({one: self._runs[one] for one in self._since if self._since[one] >= _RUNS}) | known
            )
        both = known.keys() & self._before.keys()
        if not is_over and (not both or len(known) < len(self._since)):
            return None
        before_s, self._before = self._before, None
        return (
            SwapTrial(sum(before_s[one] for one in both), sum(known[one] for one in both)) if both else None
        )


def _usual_s(runs: Mapping[CollectiveCall, Collection[float]]) -> dict[CollectiveCall, float]:
    """The median of the last runs of each request, where there are enough."""
    return {request: statistics.median(some) for request, some in runs.items() if len(some) == _RUNS}
