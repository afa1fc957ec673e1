"""The logs of timed runs, and the breakdown of the run nearest to the median."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from exec.benchmark.breakdown import Breakdown, Forecast, Placement
from exec.benchmark.critical_path import RankRun, busiest, critical_path, on_one_clock, rank_times, slowest
from exec.peers import Call
from exec.program import KeptRun
from synth.network import Network

__all__ = ["Clocks", "RunLogs"]

# The most bytes of one call's logs on each rank; beyond that the oldest logs are dropped.
_MOST_BYTES = 64 << 20
_S_PER_NS = 1e-9


@dataclass(frozen=True)
class Clocks:
    """The nanoseconds that each rank's clock is ahead of rank 0's, and their largest error."""

    ahead_ns: tuple[int, ...]
    error_ns: int


class RunLogs:
    """The logs of the timed runs of one call on this rank."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._runs: deque[tuple[int, float, float, KeptRun]] = deque()
        self._bytes = 0

    def keep(self, iteration: int, begin_s: float, end_s: float) -> None:
        """Keep the log of the run that has just ended; call it between runs."""
        if self._call.kept is None:
            return
        log = self._call.kept()
        self._runs.append((iteration, begin_s, end_s, log))
        self._bytes += log.nbytes
        while self._bytes > _MOST_BYTES and len(self._runs) > 1:
            self._bytes -= self._runs.popleft()[-1].nbytes

    def breakdown(
        self,
        comm: Any,
        every_s: Sequence[float],
        placement: Placement,
        clocks: Clocks,
        forecast: Forecast | None,
        network: Network | None,
    ) -> Breakdown:
        """Return the breakdown of the run whose slowest rank took the time nearest to the median; collective.

        ``every_s`` are this rank's seconds of each iteration.
        """
        slowest_s = np.max(comm.allgather(list(every_s)), axis=0)
        median_s = float(np.median(slowest_s))
        kept = set.intersection(*comm.allgather({run[0] for run in self._runs}))
        if not kept:
            ranks_s = np.array(comm.allgather(list(every_s)))
            at = int(np.argmin(abs(slowest_s - median_s)))
            breakdown = Breakdown(
                placement, at, float(slowest_s[at]), int(ranks_s[:, at].argmax()), forecast, (), ()
            )
            return replace(breakdown, why_empty="no log of steps is kept on GPUs and by libraries")
        chosen = min(kept, key=lambda at: (abs(slowest_s[at] - median_s), at))
        run = next(run for run in self._runs if run[0] == chosen)
        own = self._read(run)
        runs = comm.gather(own, root=0)
        local = None
        if runs is not None:
            local = _breakdown(on_one_clock(runs, clocks.ahead_ns), chosen, placement, forecast, network)
            local = replace(local, clock_error_s=clocks.error_ns * _S_PER_NS)
        found: Breakdown = comm.bcast(local, root=0)
        return found

    @staticmethod
    def _read(run: tuple[int, float, float, KeptRun]) -> RankRun:
        _, begin_s, end_s, log = run
        return RankRun(round(begin_s / _S_PER_NS), round(end_s / _S_PER_NS), log.trace())


def _breakdown(
    runs: list[RankRun],
    iteration: int,
    placement: Placement,
    forecast: Forecast | None,
    network: Network | None,
) -> Breakdown:
    last = slowest(runs)
    return Breakdown(
        placement=placement,
        iteration=iteration,
        time_s=(runs[last].end_ns - runs[last].begin_ns) * _S_PER_NS,
        slowest_rank=last,
        forecast=forecast,
        parts=critical_path(runs, network),
        ranks=rank_times(runs),
        busy=busiest(runs, network),
    )
