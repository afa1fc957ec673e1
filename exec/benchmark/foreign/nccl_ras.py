"""NCCL's RAS dumps (``ncclras -f json``, NCCL 2.28.7 and later): which ranks lag, failed or are gone.

A dump counts the collectives that each rank of each communicator has begun, by their kind. Dumps are taken
while ranks go on, so one that has begun one call fewer than others is only late if it stays so: with several
dumps a rank is stuck that has not moved and is behind. With one dump, two calls behind count.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import msgspec

from exec.benchmark.foreign.lateness import Lag, Recorded, SentMessages
from probes.errors import DataError

__all__ = ["is_ras", "ras_recorded"]

# The ranks of a dump are not asked at one moment.
_ONE_DUMP, _SEVERAL_DUMPS = 2, 1
_IN_PROGRESS = 7


class _Status(msgspec.Struct):
    init_state: int = 0
    async_error: int = 0
    abort_flag: bool = False
    unresponsive: bool = False
    considered_dead: bool = False


class _Rank(msgspec.Struct):
    rank: int
    host: str = ""
    pid: int = 0
    status: _Status = msgspec.field(default_factory=_Status)
    collective_counts: dict[str, int] = {}


class _Communicator(msgspec.Struct):
    hash: str
    size: int
    ranks: list[_Rank] = []
    missing_ranks: list[_Rank] = []
    secondary_hash: str = ""


class _Dump(msgspec.Struct):
    communicators: list[_Communicator]
    timestamp: str = ""
    nccl_version: str = ""


def is_ras(content: bytes) -> bool:
    """Whether this is the JSON of ncclras."""
    start = content[:65536]
    return start.lstrip()[:1] == b"{" and b'"communicators"' in start and b'"communicators_count"' in start


@dataclass
class _Seen:
    """One communicator through the dumps: the counts of each rank, oldest dump first."""

    size: int
    hosts: dict[int, str]
    counts: list[dict[int, dict[str, int]]]
    last: _Communicator


def ras_recorded(files: Mapping[str, bytes]) -> Recorded:
    """What dumps of one job, by their names, tell together; raises DataError for what is no dump."""
    dumps = sorted(
        (_read(content, source) for source, content in files.items()), key=lambda dump: dump.timestamp
    )
    seen: dict[str, _Seen] = {}
    for dump in dumps:
        for one in dump.communicators:
            name = f"{one.hash}/{one.secondary_hash}" if one.secondary_hash else one.hash
            own = seen.setdefault(name, _Seen(one.size, {}, [], one))
            own.hosts |= {rank.rank: rank.host for rank in (*one.ranks, *one.missing_ranks)}
            own.counts.append({rank.rank: rank.collective_counts for rank in one.ranks})
            own.last = one
    lags = [lag for name, own in seen.items() for lag in _lags(name.partition("/")[0], own)]
    size = max((own.size for own in seen.values()), default=0)
    return Recorded("NCCL RAS", size, len(seen), tuple(lags), SentMessages({}, {}))


def _read(content: bytes, source: str) -> _Dump:
    try:
        return msgspec.json.decode(content, type=_Dump)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DataError(source, [f"expected the JSON of ncclras: {error}"]) from error


def _lags(name: str, own: _Seen) -> Iterator[Lag]:
    for rank in own.last.missing_ranks:
        state = "is considered dead" if rank.status.considered_dead else "gave no answer"
        yield Lag("missing", name, rank.rank, rank.host, state)
    for rank in own.last.ranks:
        if (
            rank.status.async_error
            or rank.status.init_state not in (0, _IN_PROGRESS)
            or rank.status.abort_flag
        ):
            state = f"error {rank.status.async_error or rank.status.init_state}"
            yield Lag(
                "failed", name, rank.rank, rank.host, "was aborted" if rank.status.abort_flag else state
            )
        elif rank.status.init_state == _IN_PROGRESS:
            yield Lag("late", name, rank.rank, rank.host, "has not finished its initialization")
    now = own.counts[-1]
    allowed = _SEVERAL_DUMPS if len(own.counts) > 1 else _ONE_DUMP
    for kind in sorted({kind for counts in now.values() for kind in counts}):
        most = max(counts.get(kind, 0) for counts in now.values())
        for number, counts in sorted(now.items()):
            if most - counts.get(kind, 0) < allowed:
                continue
            before = [seen[number].get(kind, 0) for seen in own.counts if number in seen]
            text = f"has begun {before[-1]} {kind}, others up to {most}"
            if len(before) > 1 and before[0] == before[-1]:
                text += f"; it has not moved in {len(before)} dumps"
                yield Lag("stuck", name, number, own.hosts[number], text)
            elif len(own.counts) == 1:
                yield Lag("late", name, number, own.hosts[number], text)
