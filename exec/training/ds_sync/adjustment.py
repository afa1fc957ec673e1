"""Adjustment of groups on all ranks when the slow links have changed (DS-Sync, Sec. III-A, step 3)."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist

from exec.training.ds_sync.communication import Communication, agreed, gathered
from exec.training.ds_sync.planning import adjusted
from exec.training.ds_sync.slow_links import Cost, Pair, Time, group_times, have_changed, measured
from synth.groups import Groups
from synth.network import Network

__all__ = ["Adjustment"]

# Size of the messages that time links, and their number.
_SIZE_BYTES = 512 << 10
_TRIES = 5
# Replaces a time too short for the clock.
_LEAST_S = 1e-9


class Adjustment:
    """The groups in use, and their changes when links become slow or recover.

    On rank 0, ``network_now`` returns the current link costs. Without it, links are timed by messages on
    ``device`` whenever the times of groups have changed since links were last timed.
    """

    def __init__(self, groups: Groups, network_now: Callable[[], Network] | None, device: Any) -> None:
        self.groups = self._first = groups
        self._network_now, self._device = network_now, device
        self._usual_s: dict[Any, float] | None = None
        self._timed = False

    def look(self, rank: int, records: Iterable[Communication]) -> bool:
        """Adjust the groups; return whether they changed; collective.

        ``records`` are the records of ``rank`` since the last call.
        """
        given = self._network_now
        if given is None:
            if not self._times_have_changed(rank, records):
                return False
            now = measured(self.groups, _make_timer(self._device))
            planned = agreed(lambda: adjusted(self._first, self.groups, now))
        else:
            planned = agreed(lambda: adjusted(self._first, self.groups, given()))
        if planned.changed:
            self.groups, self._usual_s = planned.groups, None
        return planned.changed

    def _times_have_changed(self, rank: int, records: Iterable[Communication]) -> bool:
        """Return whether the times of groups have changed, or links were never timed; collective."""
        by_row: dict[int, list[float]] = {}
        for record in records:
            if record.group == self.groups.group_of(rank, record.iteration):
                by_row.setdefault(record.iteration % self.groups.period, []).append(record.seconds)
        medians = {row: statistics.median(seconds) for row, seconds in by_row.items()}
        now = group_times(self.groups, gathered(medians))
        if not self._timed:
            self._timed, self._usual_s = True, now
            return True
        if self._usual_s is None:
            # These are the first times of new groups, so there is nothing to compare with.
            self._usual_s = now
            return False
        if not have_changed(self._usual_s, now):
            return False
        self._usual_s = now
        return True


def _make_timer(device: Any) -> Time:
    """Return a function that times pairs of ranks with messages on ``device``."""
    empty = torch.zeros(1, dtype=torch.uint8, device=device)
    full = torch.zeros(_SIZE_BYTES, dtype=torch.uint8, device=device)

    def time_pairs(pairs: Sequence[Pair]) -> Mapping[Pair, Cost]:
        rank = dist.get_rank()
        cost: Cost | None = None
        own_pair = next((pair for pair in pairs if rank in pair), None)
        if own_pair is not None:
            # The first message connects the two ranks and synchronizes them.
            _round_trip_s(empty, own_pair)
            alpha_s = min(_round_trip_s(empty, own_pair) for _ in range(_TRIES)) / 2
            whole_s = min(_round_trip_s(full, own_pair) for _ in range(_TRIES)) / 2
            cost = (alpha_s, max(whole_s - alpha_s, _LEAST_S) / _SIZE_BYTES)
        costs = gathered(cost)
        found = {}
        for low, high in pairs:
            # Both ends have timed the same messages.
            alphas_s, betas = zip(*(known for end in (low, high) if (known := costs[end])), strict=True)
            found[low, high] = (min(alphas_s), min(betas))
        return found

    return time_pairs


def _round_trip_s(message: Any, pair: Pair) -> float:
    """Return the seconds of a message to the other rank and one back."""
    low, high = pair
    started_s = time.perf_counter()
    for src, dst in ((low, high), (high, low)):
        if dist.get_rank() == src:
            dist.send(message, dst)
        else:
            dist.recv(message, src)
    if message.is_cuda:
        torch.cuda.synchronize(message.device)
    return time.perf_counter() - started_s
