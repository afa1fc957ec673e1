"""Dumps of PyTorch's flight recorder (TORCH_NCCL_TRACE_BUFFER_SIZE): late ranks, and durations of calls.

Each rank writes a file, ``nccl_trace_rank_3``, as a pickle or as JSON. A pickle can run any code, so
``plain_pickle`` reads it and accepts only plain data. Entries of the same process group and sequence number
are one call. Durations are recorded only with TORCH_NCCL_ENABLE_TIMING=1; they begin when the rank's own
kernel starts, as in NCCL's Inspector.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import PurePath
from typing import Any

from exec.benchmark.foreign.lateness import Lag, Recorded, SentMessages
from exec.benchmark.foreign.plain_pickle import load_plain
from exec.benchmark.foreign.timed_calls import TimedCall
from probes.base import DataError, plural
from synth.collective import Kind

__all__ = [
    "RecordedCall",
    "as_timed_calls",
    "flight_calls",
    "flight_recorded",
    "is_flight_pickle",
    "is_flight_text",
    "late_ranks",
]

# PyTorch appends the rank to TORCH_FR_DUMP_TEMP_FILE (older: TORCH_NCCL_DEBUG_INFO_TEMP_FILE), by default
# nccl_trace_rank_.
_NAMED = (re.compile(r"rank_?([0-9]{1,6})"), re.compile(r"(?<![0-9])([0-9]{1,6})(?:\.[A-Za-z]\w*)*$"))
_PEERS = re.compile(r"^\w+:(send|recv) ([0-9]{1,6})(->|<-)([0-9]{1,6})")
_BYTES = {
    "Double": 8,
    "Long": 8,
    "ComplexFloat": 8,
    "Float": 4,
    "Int": 4,
    "Half": 2,
    "BFloat16": 2,
    "Short": 2,
}
# Collectives by PyTorch's names, without the library's prefix and outer underscores. The input of an
# all_gather is one rank's part.
_KINDS: dict[str, Kind] = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "all_gather_base": "all_gather",
    "all_gather_into_tensor_coalesced": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "reduce_scatter_base": "reduce_scatter",
    "reduce_scatter_tensor_coalesced": "reduce_scatter",
    "all_to_all": "all_to_all",
    "broadcast": "broadcast",
    "reduce": "reduce",
}
# The search for lags ends once it has found this many: a job of many groups may have thousands of entries in
# which ranks wait.
_MOST_LAGS = 64
_MOST_RANKS, _MOST_DIMENSIONS, _MOST_BYTES = 1_000_000, 64, 1 << 60
_MOST_MS = 1e15
_WAITING = frozenset({"scheduled", "started"})
# Collectives whose input may have another size on each rank.
_UNEVEN = ("gather", "scatter", "all_to_all")


@dataclass(frozen=True)
class RecordedCall:
    """One rank's entry of a call; ``size_bytes`` is its input size, ``seconds`` is None if untimed.

    ``members`` are the global ranks of ``group``, empty where the dump does not say them.
    """

    group: str
    number: int
    rank: int
    name: str
    size_bytes: int
    state: str
    seconds: float | None
    members: tuple[int, ...]


def is_flight_pickle(content: bytes) -> bool:
    """Return whether a file looks like a dump as a pickle."""
    start = content[: 1 << 20]
    return start[:1] == b"\x80" and (b"pg_config" in start or b"profiling_name" in start)


def is_flight_text(content: bytes) -> bool:
    """Return whether a file looks like a dump as JSON."""
    start = content[: 1 << 20]
    return start.lstrip()[:1] == b"{" and (b'"pg_config"' in start or b'"profiling_name"' in start)


def flight_recorded(files: Mapping[str, bytes]) -> Recorded:
    """Return the late ranks and the timed sends in the dumps of a job, given by file name.

    Raises DataError for a file that is no dump, and if no file has an entry.
    """
    dumps = _dumps(files)
    calls = [call for _, own in dumps for call in own]
    if not calls:
        raise DataError(
            next(iter(files), ""), ["expected a dump of PyTorch's flight recorder: it has no entries"]
        )
    ranks = {rank for rank, _ in dumps}
    every = ranks | {rank for one in calls for rank in one.members}
    groups = {one.group for one in calls}
    return Recorded(
        tool="PyTorch's flight recorder",
        ranks=len(every),
        communicators=len(groups),
        lags=tuple(late_ranks(calls, ranks)),
        sent=SentMessages(_sends(calls), {}),
    )


def flight_calls(files: Mapping[str, bytes]) -> list[RecordedCall]:
    """Return all entries of all files; a file's rank is in its document or its name. Raises DataError."""
    return [call for _, own in _dumps(files) for call in own]


def _dumps(files: Mapping[str, bytes]) -> list[tuple[int, list[RecordedCall]]]:
    """Return (rank, its entries) of each file; raises DataError."""
    found = []
    for source, content in files.items():
        document = _document(content, source)
        rank = _rank_of(document, source)
        members = {
            str(group): _members(config.get("ranks"))
            for group, config in _mapping(document.get("pg_config")).items()
            if isinstance(config, dict)
        }
        entries = document.get("entries", [])
        if not isinstance(entries, list):
            raise DataError(source, ["entries: expected a list"])
        own = []
        for at, entry in enumerate(entries):
            if not isinstance(entry, dict):
                raise DataError(source, [f"entries[{at}]: expected a dict, found {type(entry).__name__}"])
            own.append(_call(entry, rank, members, f"{source}: entries[{at}]"))
        found.append((rank, own))
    return found


def _document(content: bytes, source: str) -> dict[str, Any]:
    try:
        pickled = content[:1] == b"\x80"
        document = load_plain(content) if pickled else json.loads(content)
    except (ValueError, RecursionError) as error:
        raise DataError(
            source, [f"expected a dump of PyTorch's flight recorder, plain data alone: {error}"]
        ) from error
    if not isinstance(document, dict):
        raise DataError(source, ["expected a dump of PyTorch's flight recorder, a dict"])
    return document


def _mapping(value: Any) -> dict[Any, Any]:
    return value if isinstance(value, dict) else {}


def _members(value: Any) -> tuple[int, ...]:
    """Return the ranks of a group, which PyTorch writes as a list or as its text; empty for anything else."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return ()
    return tuple(one for one in value if isinstance(one, int)) if isinstance(value, list) else ()


def _rank_of(document: dict[str, Any], source: str) -> int:
    if isinstance(rank := document.get("rank"), int) and 0 <= rank < _MOST_RANKS:
        return rank
    name = PurePath(source).name
    named = next((match for one in _NAMED if (match := one.search(name))), None)
    if named is None:
        raise DataError(
            source,
            ["expected the rank in the dump or in the file's name"],
            hint="Files are named nccl_trace_rank_0, _1, …",
        )
    return int(named[1])


def _call(
    entry: dict[str, Any], rank: int, members: Mapping[str, tuple[int, ...]], where: str
) -> RecordedCall:
    group = entry.get("process_group", entry.get("pg_id", "0"))
    name = str(group[0] if isinstance(group, (list, tuple)) and group else group)
    numbers = [
        entry.get(key) for key in ("p2p_seq_id" if entry.get("is_p2p") else "collective_seq_id", "seq_id")
    ]
    number = next((one for one in numbers if isinstance(one, int)), None)
    if number is None:
        raise DataError(where, ["collective_seq_id: expected a number"])
    duration = entry.get("duration_ms")
    return RecordedCall(
        group=name,
        number=number,
        rank=rank,
        name=str(entry.get("profiling_name", "")),
        size_bytes=_size(entry),
        state=str(entry.get("state", "")),
        seconds=duration * 1e-3 if isinstance(duration, (int, float)) and 0 < duration < _MOST_MS else None,
        members=members.get(name, ()),
    )


def _size(entry: dict[str, Any]) -> int:
    """Return the bytes of an entry's inputs; an element of unknown type counts as one byte."""
    sizes, dtypes = entry.get("input_sizes"), entry.get("input_dtypes")
    kinds = dtypes if isinstance(dtypes, list) else [dtypes] * len(sizes or ())
    total = 0
    for shape, kind in zip(sizes if isinstance(sizes, list) else (), kinds, strict=False):
        dimensions = shape if isinstance(shape, list) and len(shape) <= _MOST_DIMENSIONS else [None]
        if all(isinstance(one, int) and 0 <= one < _MOST_BYTES for one in dimensions):
            total += prod(dimensions) * _BYTES.get(str(kind), 1)
    return min(total, _MOST_BYTES)


def late_ranks(calls: Iterable[RecordedCall], dumped: Iterable[int]) -> list[Lag]:
    """Return ranks that hold others up, by communicator and call; ``dumped`` are the ranks that wrote a dump.

    The search ends after ``_MOST_LAGS`` lags. Point-to-point sends and receives are left out.
    """
    dumped = frozenset(dumped)
    by_call: dict[tuple[str, int], list[RecordedCall]] = defaultdict(list)
    newest: dict[tuple[str, int], int] = {}
    for one in calls:
        if not _PEERS.match(one.name):
            by_call[one.group, one.number].append(one)
            newest[one.group, one.rank] = max(newest.get((one.group, one.rank), -1), one.number)
    found: list[Lag] = []
    for _, parts in sorted(by_call.items()):
        if len(found) >= _MOST_LAGS:
            break
        found += _mismatched(parts)
        found += _not_begun(parts, newest, dumped)
        found += _not_completed(parts)
    return found


def _mismatched(parts: Sequence[RecordedCall]) -> Iterator[Lag]:
    """Yield the ranks that run another collective or size in one call than most ranks."""
    usual = Counter((one.name, one.size_bytes) for one in parts).most_common(1)[0][0]
    for one in parts:
        sized = not any(word in one.name for word in _UNEVEN)
        if one.name != usual[0] or (sized and one.size_bytes != usual[1]):
            mine = f"{one.name} of {one.size_bytes} bytes"
            text = f"call {one.number} is {mine}, of others {usual[0]} of {usual[1]}"
            yield Lag("mismatch", one.group, one.rank, "", text)


def _not_begun(
    parts: Sequence[RecordedCall], newest: Mapping[tuple[str, int], int], dumped: frozenset[int]
) -> Iterator[Lag]:
    """Yield members that wrote no dump or have not begun a call in which others wait."""
    waiting = [one for one in parts if one.state in _WAITING]
    if not waiting:
        return
    first = waiting[0]
    wait = "1 rank waits" if len(waiting) == 1 else f"{len(waiting)} ranks wait"
    for rank in sorted(set(first.members) - {one.rank for one in parts}):
        last = newest.get((first.group, rank), -1)
        if rank not in dumped:
            text = f"wrote no dump; {wait} in {first.name} {first.number}"
            yield Lag("missing", first.group, rank, "", text)
        elif last < first.number:
            done = f"its last call is {last}" if last >= 0 else "it has begun none"
            text = f"has not begun {first.name} {first.number}, in which {wait}; {done}"
            yield Lag("late", first.group, rank, "", text)


def _not_completed(parts: Sequence[RecordedCall]) -> Iterator[Lag]:
    """Yield ranks that are still in a call which all members have begun and some have completed."""
    waiting = [one for one in parts if one.state in _WAITING]
    completed = len(parts) - len(waiting)
    if not waiting or not completed or not {one.rank for one in parts} >= set(waiting[0].members):
        return
    for one in waiting:
        text = f"is still in {one.name} {one.number}, which {plural(completed, 'rank')} completed"
        yield Lag("stuck", one.group, one.rank, "", text)


def _sends(calls: Iterable[RecordedCall]) -> dict[tuple[int, int], dict[int, list[float]]]:
    """Return seconds of timed sends by (rank from, rank to) and bytes; the entry's name has both ranks."""
    found: dict[tuple[int, int], dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for one in calls:
        named = _PEERS.match(one.name)
        if named is None or one.seconds is None or one.size_bytes < 1 or named[1] != "send":
            continue
        peer = int(named[4])
        # The name has ranks within the group.
        dst = one.members[peer] if peer < len(one.members) else peer
        if dst != one.rank:
            found[one.rank, dst][one.size_bytes].append(one.seconds)
    return {pair: dict(sizes) for pair, sizes in found.items()}


def as_timed_calls(calls: Iterable[RecordedCall]) -> Iterator[TimedCall]:
    """Yield the completed collectives that were timed.

    Ranks are counted within the group; hosts are unknown.
    """
    for one in calls:
        kind = _KINDS.get(one.name.partition(":")[2].strip("_"))
        if kind is None or one.seconds is None or one.state != "completed" or len(one.members) < 2:
            continue
        if one.rank not in one.members or one.size_bytes < 1:
            continue
        ranks = len(one.members)
        size_bytes = one.size_bytes * (ranks if kind == "all_gather" else 1)
        place = one.members.index(one.rank)
        source = f"the dump of rank {one.rank}"
        yield TimedCall(source, one.group, ranks, place, "?", kind, one.number, size_bytes, one.seconds)
