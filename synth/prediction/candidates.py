"""The choice of the few schedules of each method whose runs are worth predicting."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from synth.prediction.run_time import MOST_SENDS
from synth.schedules import Schedule
from synth.simulation import replay

__all__ = ["Table", "promising", "sort_of"]

# The number of chunks of a schedule, and the columns of its table of sends.
Table = tuple[int, tuple[bytes, ...]]

# The three schedules of each method that end first by the costs of links alone, and the two with the fewest
# sends, are predicted.
_SOONEST, _SHORTEST = 3, 2


def promising(found: Sequence[Schedule]) -> Iterator[tuple[Table, Schedule]]:
    """Yield the schedules of each method with the least time or fewest sends, each table once."""
    by_method: dict[tuple[str, bool], dict[Table, Schedule]] = {}
    known: set[Table] = set()
    for schedule in found:
        every = (schedule.chunk, schedule.link, schedule.op, schedule.addend_start, schedule.addend)
        columns = tuple(column.tobytes() for column in every)
        table = (schedule.collective.chunks, columns)
        if schedule.sends <= MOST_SENDS and table not in known:
            known.add(table)
            by_method.setdefault(sort_of(schedule), {})[table] = schedule
    for alike in by_method.values():
        time_s = {table: replay(one).time_s for table, one in alike.items()}
        soonest = sorted(alike, key=lambda table: (time_s[table], alike[table].sends))[:_SOONEST]
        shortest = sorted(alike, key=lambda table: (alike[table].sends, time_s[table]))[:_SHORTEST]
        for table in dict.fromkeys(soonest + shortest):
            yield table, alike[table]


def sort_of(schedule: Schedule) -> tuple[str, bool]:
    """Return (method, whether the whole buffer is one chunk), the key by which `promising` groups."""
    return schedule.method, schedule.collective.chunks == 1
