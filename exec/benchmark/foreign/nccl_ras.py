"""Ranks that hold others up, found in dumps of NCCL's RAS: text, or JSON since NCCL 2.28.7.

A dump counts the collectives of each kind that each rank of each communicator has begun. Ranks go on while
RAS collects their counts. So with a single dump a rank counts as late only if it is at least two calls
behind. In several dumps a rank is stuck if it is behind in the last one and its count is the same in all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import msgspec

from exec.benchmark.foreign.evidence import START_BYTES
from exec.benchmark.foreign.lateness import Lag, Recorded, SentMessages, What
from exec.benchmark.foreign.nccl_ras_text import (
    IN_PROGRESS,
    Communicator,
    Dump,
    is_ras_text,
    ras_text_dumps,
)
from probes.base import DataError

__all__ = ["is_ras", "ras_recorded"]

# A single call behind proves nothing, because RAS does not ask all ranks at the same moment.
_LATE_IN_ONE_DUMP = 2
# A dump that was read from RAS's socket (port 28028) begins with RAS's answers to commands, each OK.
_ANSWERS = re.compile(rb"\s*(?:OK\s+)*(?=\{)")
# NCCL 2.28.7 to 2.29.7 write no comma before the status of a missing rank.
_NO_COMMA = re.compile(rb'("nvml_dev": -?[0-9]+)(\s+"status")')


def is_ras(content: bytes) -> bool:
    """Return whether ``content`` is output of ncclras, text or JSON."""
    start = content[:START_BYTES]
    json = _ANSWERS.match(start) and b'"communicators"' in start and b'"communicators_count"' in start
    return bool(json) or is_ras_text(start.decode(errors="replace"))


@dataclass
class _History:
    """One communicator in all dumps: counts by rank and kind for each dump, oldest first."""

    size: int
    hosts: dict[int, str]
    counts: list[dict[int, dict[str, int]]]
    last: Communicator


def ras_recorded(files: Mapping[str, bytes]) -> Recorded:
    """Return what the dumps of one job show; ``files`` maps file names to contents.

    Raises DataError if a file is not a dump.
    """
    dumps = sorted(
        (dump for source, content in files.items() for dump in _read(content, source)),
        key=lambda dump: dump.timestamp,
    )
    seen: dict[str, _History] = {}
    for dump in dumps:
        for one in dump.communicators:
            name = f"{one.hash}/{one.secondary_hash}" if one.secondary_hash else one.hash
            own = seen.setdefault(name, _History(one.size, {}, [], one))
            own.hosts |= {rank.rank: rank.host for rank in (*one.ranks, *one.missing_ranks)}
            own.counts.append({rank.rank: rank.collective_counts for rank in one.ranks})
            own.last = one
    # Leave out communicators that the last dump does not name. They are gone, or their ranks no longer
    # differ: a text dump names only those whose ranks differ.
    now = {name: own for name, own in seen.items() if any(own.last is one for one in dumps[-1].communicators)}
    lags = [lag for name, own in now.items() for lag in _lags(name.partition("/")[0], own)]
    size = max((own.size for own in seen.values()), default=0)
    certain = tuple(lag for lag in lags if lag.what != "behind")
    unclear = tuple(lag for lag in lags if lag.what == "behind")
    return Recorded("NCCL RAS", size, len(now), certain, SentMessages({}, {}), unclear)


def _read(content: bytes, source: str) -> list[Dump]:
    if is_ras_text(text := content.decode(errors="replace")):
        return ras_text_dumps(text, source)
    try:
        start = answers.end() if (answers := _ANSWERS.match(content)) else 0
        return [msgspec.json.decode(_NO_COMMA.sub(rb"\1,\2", content[start:]), type=Dump)]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DataError(source, [f"expected the JSON of ncclras: {error}"]) from error


def _lags(name: str, own: _History) -> Iterator[Lag]:
    for rank in own.last.missing_ranks:
        state = "is considered dead" if rank.status.considered_dead else "gave no answer"
        yield Lag("missing", name, rank.rank, rank.host, state)
    for rank in own.last.ranks:
        status = rank.status
        in_progress = status.init_state == IN_PROGRESS
        error = status.async_error or (0 if in_progress else status.init_state)
        if error or status.abort_flag:
            state = "was aborted" if status.abort_flag else f"error {error}"
            yield Lag("failed", name, rank.rank, rank.host, state)
        elif in_progress:
            yield Lag("late", name, rank.rank, rank.host, "has not finished its initialization")
    yield from _behind(name, own)


def _behind(name: str, own: _History) -> Iterator[Lag]:
    """Yield a lag for each rank that has begun fewer calls of a kind than others.

    With several dumps, only ranks that began no call between them count.
    """
    now = own.counts[-1]
    for kind in sorted({kind for counts in now.values() for kind in counts}):
        begun_by_rank = {number: counts[kind] for number, counts in now.items() if kind in counts}
        most = max(*begun_by_rank.values(), own.last.most.get(kind, 0))
        for number, begun in sorted(begun_by_rank.items()):
            if most == begun:
                continue
            before = [seen[number][kind] for seen in own.counts if kind in seen.get(number, {})]
            text = f"has begun {before[-1]} {kind}, others up to {most}"
            if len(before) > 1 and before[0] == before[-1]:
                text += f"; it has not moved in {len(before)} dumps"
                yield Lag("stuck", name, number, own.hosts[number], text)
            elif len(own.counts) == 1:
                what: What = "late" if most - begun >= _LATE_IN_ONE_DUMP else "behind"
                yield Lag(what, name, number, own.hosts[number], text)
