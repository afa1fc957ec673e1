"""Files of NCCL's Inspector: the collectives and sends of a job, timed on each rank.

The Inspector (NVIDIA/nccl, ext-profiler/inspector) writes a file of JSON lines for each process. A line gives
the communicator, rank, number and bytes of a collective, and how long its kernel ran on that rank. Sends and
receives between two ranks have similar lines.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

import msgspec

from exec.benchmark.foreign.evidence import START_BYTES
from exec.benchmark.foreign.timed_calls import Inspected, TimedCall, of_calls
from probes.base import DataError
from synth.collective import Kind

__all__ = ["inspected", "is_inspector_text", "sends_of"]

_NAMED: dict[str, Kind] = {
    "AllReduce": "all_reduce",
    "AllGather": "all_gather",
    "ReduceScatter": "reduce_scatter",
    "AlltoAll": "all_to_all",
    "Broadcast": "broadcast",
    "Reduce": "reduce",
    "Gather": "gather",
    "Scatter": "scatter",
}
# For these kinds the Inspector counts the bytes of one rank. A report counts the bytes of all ranks, as
# nccl-tests does.
_OF_EACH_RANK = frozenset({"all_gather", "reduce_scatter", "all_to_all", "gather", "scatter"})
_MOST_RANKS, _MOST_BYTES, _MOST_US = 1 << 20, 1 << 50, 1e12


class _Header(msgspec.Struct):
    id: str
    rank: int
    n_ranks: int


class _Metadata(msgspec.Struct):
    hostname: str = ""


class _Collective(msgspec.Struct):
    coll: str
    coll_sn: int
    coll_msg_size_bytes: int
    coll_exec_time_us: float


class _Transfer(msgspec.Struct):
    p2p: str = ""
    p2p_peer: int = -1
    p2p_msg_size_bytes: int = 0
    p2p_exec_time_us: float = 0.0


class _Record(msgspec.Struct):
    header: _Header
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    coll_perf: _Collective | None = None
    p2p_perf: _Transfer | None = None


def is_inspector_text(text: bytes) -> bool:
    """Return whether JSON lines are the Inspector's."""
    start = text[:START_BYTES]
    timed = b'"coll_exec_time_us"' in start or b'"p2p_exec_time_us"' in start
    return start.lstrip()[:1] == b"{" and timed and b'"n_ranks"' in start


def inspected(files: Mapping[str, bytes]) -> Inspected:
    """Return the collectives in the Inspector's files, given by name.

    Raises DataError for a line that is no record of the Inspector, and where there is no collective of two or
    more ranks.
    """
    calls = [
        call
        for source, content in files.items()
        for record in _records(content, source)
        if (call := _call(record, source)) is not None
    ]
    found = of_calls(calls)
    if found is None:
        raise DataError(next(iter(files), ""), ["expected collectives of NCCL's Inspector, found none"])
    return found


def sends_of(
    files: Mapping[str, bytes],
) -> tuple[dict[tuple[int, int], dict[int, list[float]]], dict[int, str]]:
    """Return the largest communicator's (seconds of sends by rank pair and bytes, host by rank)."""
    records = [one for source, content in files.items() for one in _records(content, source)]
    most = max((one.header.n_ranks for one in records), default=0)
    name = next((one.header.id for one in records if one.header.n_ranks == most), "")
    found: dict[tuple[int, int], dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    hosts = {}
    for one in records:
        sent = one.p2p_perf
        if one.header.id != name:
            continue
        hosts[one.header.rank] = one.metadata.hostname or f"rank{one.header.rank}"
        if (
            sent is not None
            and sent.p2p == "Send"
            and sent.p2p_msg_size_bytes > 0
            and sent.p2p_exec_time_us > 0
        ):
            pair = (one.header.rank, sent.p2p_peer)
            if 0 <= sent.p2p_peer < most and pair[0] != pair[1]:
                found[pair][sent.p2p_msg_size_bytes].append(sent.p2p_exec_time_us * 1e-6)
    return {pair: dict(sizes) for pair, sizes in found.items()}, hosts


def _records(content: bytes, source: str) -> Iterable[_Record]:
    decoder = msgspec.json.Decoder(_Record)
    lines = content.splitlines()
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            yield decoder.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            # A killed job may leave an incomplete last line.
            if number == len(lines) and number > 1 and not content.endswith(b"\n"):
                return
            raise DataError(
                source, [f"line {number}: expected a record of NCCL's Inspector: {error}"]
            ) from error


def _call(record: _Record, source: str) -> TimedCall | None:
    header, perf = record.header, record.coll_perf
    if perf is None or perf.coll not in _NAMED:
        return None
    for name, value, most in (
        ("header.n_ranks", header.n_ranks, _MOST_RANKS),
        ("header.rank", header.rank, header.n_ranks - 1),
        ("coll_perf.coll_msg_size_bytes", perf.coll_msg_size_bytes, _MOST_BYTES),
        ("coll_perf.coll_exec_time_us", perf.coll_exec_time_us, _MOST_US),
    ):
        if not 0 <= value <= most:
            raise DataError(source, [f"{name}: expected a number from 0 to {most:g}, found {value}"])
    kind = _NAMED[perf.coll]
    size_bytes = perf.coll_msg_size_bytes * (header.n_ranks if kind in _OF_EACH_RANK else 1)
    host = record.metadata.hostname or "?"
    seconds = perf.coll_exec_time_us * 1e-6
    return TimedCall(
        source, header.id, header.n_ranks, header.rank, host, kind, perf.coll_sn, size_bytes, seconds
    )
