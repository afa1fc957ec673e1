"""When groups change: what is slow has changed, and all ranks learn of it (DS-Sync, Sec. III-A, step 3)."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from typing import Any

from exec.training.ds_sync.communication import Communication, agreed, gathered
from exec.training.ds_sync.link_timing import timed_on
from exec.training.ds_sync.planning import adjusted
from exec.training.ds_sync.slow_links import group_times, have_changed, measured
from synth.groups import Groups
from synth.network import Network

__all__ = ["Adjustment"]


class Adjustment:
    """The groups in use, ``groups``, and what tells that they should change.

    ``network_now`` says on rank 0 what links cost; without it they are timed with messages on ``device``,
    where the times of groups differ from those at the last timing.
    """

    def __init__(self, groups: Groups, network_now: Callable[[], Network] | None, device: Any) -> None:
        self.groups = self._first = groups
        self._network_now, self._device = network_now, device
        self._usual_s: dict[Any, float] | None = None
        self._timed = False

    def look(self, rank: int, records: Iterable[Communication]) -> bool:
        """Return whether the groups have changed; collective.

        ``records`` are those of ``rank`` since the last look.
        """
        given = self._network_now
        if given is None:
            if not self._times_have_changed(rank, records):
                return False
            now = measured(self.groups, timed_on(self._device))
            planned = agreed(lambda: adjusted(self._first, self.groups, now))
        else:
            planned = agreed(lambda: adjusted(self._first, self.groups, given()))
        if planned.changed:
            self.groups, self._usual_s = planned.groups, None
        return planned.changed

    def _times_have_changed(self, rank: int, records: Iterable[Communication]) -> bool:
        """Whether groups take other times than usual, or links were never timed; collective."""
        by_row: dict[int, list[float]] = {}
        for record in records:
            if record.group == self.groups.group_of(rank, record.iteration):
                by_row.setdefault(record.iteration % self.groups.period, []).append(record.seconds)
        own = {row: statistics.median(seconds) for row, seconds in by_row.items()}
        now = group_times(self.groups, gathered(own))
        if not self._timed:
            self._timed, self._usual_s = True, now
            return True
        if self._usual_s is None:
            # Of the groups in use nothing is known yet.
            self._usual_s = now
            return False
        if not have_changed(self._usual_s, now):
            return False
        self._usual_s = now
        return True
