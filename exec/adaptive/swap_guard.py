"""Decision to swap to a schedule that is predicted to be faster, and to roll a swap back.

A prediction rests on links measured within a moment. Flows of other jobs may slow down that measurement, and
be gone when the new schedule comes into use. So the measured links must explain the latest runs: the runs
must be about as slow as the current schedule is predicted to be on the measured links. Every swap is on
trial, and a swap that made runs slower is rolled back. If the rollback helps, the prediction was wrong. Each
recent wrong prediction raises the gain that the next swap must promise; a prediction that comes true cancels
a wrong one.

If ranks are late, a run starts without them and takes their data in a second part. Such runs count too,
because with a slow host they are the most frequent.
"""

from __future__ import annotations

import statistics
from collections import Counter, deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from exec.adaptive.messages import CollectiveCall

__all__ = ["SwapGuard", "SwapTrial"]

# Runs that measure a request: the median of three resists an outlier on one rank.
_RUNS = 3
# The most runs of a trial. A trial needs a limit, because a search may disturb all runs, and old requests may
# never run again. Up to this limit, three undisturbed runs are found even if nine of ten runs are disturbed.
_LONGEST = 10 * _RUNS
# The measured links explain the runs if the predicted time is at most this many times the time of the runs.
# In benchmarks/adaptive_lab.py it is 1.1 times at most on well measured links, and four to six times on links
# that other flows slowed down while they were measured.
_EXPLAINED = 1.5
# Runs count as slower or faster only beyond this factor: in benchmarks/adaptive_lab.py runs take the
# predicted time within 10 %.
_ALIKE = 1.1
# The least speed-up that a swap must promise: measurements have noise, and a swap needs new contexts.
_LEAST_GAIN = 1.03
# Seconds for which a wrong prediction counts: longer than many flows of other jobs, which move every 15 s in
# benchmarks/adaptive_lab.py.
_REMEMBERED_S = 600.0
# The most wrong predictions that count. After six a swap must promise to be 1.03^64 = 6.6 times as fast.
_MOST = 6


@dataclass(frozen=True)
class SwapTrial:
    """Times of runs before and after a swap, in seconds: the sums over one run of each request."""

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
    """Memory of the last runs of each request and of wrong predictions; times are monotonic."""

    def __init__(self) -> None:
        self._runs: dict[CollectiveCall, deque[float]] = {}
        # Median times before the swap on trial; None if no swap is on trial.
        self._before: dict[CollectiveCall, float] | None = None
        # The number of runs since the swap, and the times of its undisturbed runs.
        self._since: Counter[CollectiveCall] = Counter()
        self._alone: dict[CollectiveCall, deque[float]] = {}
        self._doubts: deque[float] = deque(maxlen=_MOST)
        # Whether the links measured last failed to explain the runs.
        self._unexplained = False

    @property
    def on_trial(self) -> bool:
        """Whether the last swap has not been judged yet."""
        return self._before is not None

    def begin_anew(self) -> None:
        """Forget all runs, because a group with other members runs other schedules."""
        self._runs.clear()
        self._before = None
        self._unexplained = False

    def ran(self, request: CollectiveCall, seconds: float, *, disturbed: bool = False) -> None:
        """Note the seconds of all parts of a run; ``disturbed`` if a search or other work ran beside it."""
        self._runs.setdefault(request, deque(maxlen=_RUNS)).append(seconds)
        self._since[request] += 1
        if not disturbed:
            self._alone.setdefault(request, deque(maxlen=_RUNS)).append(seconds)

    def explains(self, before_s: Mapping[CollectiveCall, float]) -> bool:
        """Return whether the measured links explain the latest runs.

        ``before_s`` has the times that the current schedules are predicted to take on these links. Requests
        without enough runs are ignored.
        """
        runs = {request: self._runs.get(request, ()) for request in before_s}
        known = _usual_s(runs)
        return sum(before_s[request] for request in known) <= _EXPLAINED * sum(known.values())

    def explained(self) -> None:
        """Note that the measured links explain the runs, or promise no gain."""
        self._unexplained = False

    def unexplained(self, now_s: float) -> None:
        """Note that the measured links do not explain the runs; twice in a row is one wrong prediction."""
        if self._unexplained:
            self.doubt(now_s)
        self._unexplained = True

    def least_gain(self, now_s: float) -> float:
        """Return the factor that a swap must promise; each recent wrong prediction squares it."""
        return float(_LEAST_GAIN ** self.caution(now_s))

    def caution(self, now_s: float) -> int:
        """Return 2 to the power of the number of recent wrong predictions."""
        while self._doubts and now_s - self._doubts[0] > _REMEMBERED_S:
            self._doubts.popleft()
        return 1 << len(self._doubts)

    def doubt(self, now_s: float) -> None:
        """Note that a prediction was wrong."""
        self._doubts.append(now_s)

    def trust(self, now_s: float) -> None:
        """Note that a prediction came true, and forget the oldest recent wrong one."""
        if self.caution(now_s) > 1:
            self._doubts.popleft()

    def swapped(self) -> None:
        """Start the trial of a swap."""
        self._before = {request: statistics.median(runs) for request, runs in self._runs.items()}
        self._since.clear()
        self._alone.clear()

    def judged(self) -> SwapTrial | None:
        """Return the outcome of the last swap; None if unknown or already reported.

        Undisturbed runs decide it; disturbed runs count only if a trial of full length has too few
        undisturbed ones.
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
    """Return the median of the last runs of each request that has enough of them."""
    return {request: statistics.median(seconds) for request, seconds in runs.items() if len(seconds) == _RUNS}
