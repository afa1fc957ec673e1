"""A cache of schedules: found for one group of ranks, used by other groups of its job and by later jobs.

The key of a schedule has three parts: the place of its group (a given network, or the hosts of the ranks),
its collective and its size class. Measuring links is quick, while a search takes seconds. So each group
measures its links, and uses a cached schedule that was made for links with about the same costs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Protocol

import numpy as np

from exec.sockets import Group
from synth.network import Network
from synth.schedules import Schedule

__all__ = ["KnownSchedules", "ScheduleStore", "place_of"]

# Largest ratio between two measurements of equal links; real slowdowns are larger.
_ALIKE = 1.5


class ScheduleStore(Protocol):
    """Storage in which schedules outlive the job."""

    def read(self, key: Mapping[str, object]) -> Schedule | None: ...

    def keep(self, key: Mapping[str, object], schedule: Schedule) -> None: ...


class KnownSchedules:
    """The schedules that this process knows, and those in a ``store``, if any."""

    def __init__(self, store: ScheduleStore | None = None) -> None:
        self._store = store
        self._found: dict[str, Schedule] = {}

    def find(self, key: Mapping[str, object], network: Network, size_bytes: int) -> Schedule | None:
        """Return the verified schedule for ``key``, if it was made for links that cost about the same."""
        from synth.stages import verify

        schedule = self._found.get(repr(key))
        if schedule is None and self._store is not None:
            schedule = self._store.read(key)
        if schedule is None or not _alike(schedule.network, network, size_bytes) or verify(schedule):
            return None
        self._found[repr(key)] = schedule
        return schedule

    def keep(self, key: Mapping[str, object], schedule: Schedule) -> None:
        self._found[repr(key)] = schedule
        if self._store is not None:
            self._store.keep(key, schedule)


def place_of(group: Group, given: Network | None) -> dict[str, object]:
    """Return the place of a group for use in keys: its given network, or else the hosts of its ranks."""
    if given is None:
        return {"hosts": [group.mesh.known[member].key for member in group.members]}
    digest = hashlib.sha256(repr((given.hosts, given.ports)).encode())
    for column in (given.src, given.dst, given.alpha_s, given.beta_s_per_byte):
        digest.update(np.ascontiguousarray(column).tobytes())
    return {"network": digest.hexdigest()}


def _alike(before: Network, now: Network, size_bytes: int) -> bool:
    """Return whether each link takes about as long for a rank's share of ``size_bytes`` as before."""
    if before.ranks != now.ranks or not (
        np.array_equal(before.src, now.src) and np.array_equal(before.dst, now.dst)
    ):
        return False
    share_bytes = max(1, size_bytes // now.ranks)
    ratio = before.travel_s(share_bytes) / now.travel_s(share_bytes)
    return bool(((ratio < _ALIKE) & (ratio > 1 / _ALIKE)).all())
