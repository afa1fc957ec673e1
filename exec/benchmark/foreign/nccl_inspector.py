"""What NCCL's Inspector recorded of a job's collectives, as a report, and which ranks the others waited for.

The Inspector (NVIDIA/nccl, ext-profiler/inspector) writes a file of JSON lines for each process: for each
collective its communicator, rank, number and how long its kernel ran on that rank. A kernel that starts early
waits within itself for the ranks that come later. Where no rank can end before all have begun, as in an
all_reduce, the shortest kernel of a call is that of the rank which came last, and is what the transfer itself
took; what others ran longer, they waited.
"""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import msgspec

from exec.benchmark.report import Measurement, Report, Row
from exec.benchmark.runner import busbw_factor
from probes.errors import DataError
from synth.collective import Kind

__all__ = ["Inspected", "TimedCall", "Waiting", "inspected", "is_inspector_text", "of_calls", "sends_of"]

Executor = Literal["nccl-inspector", "flight-recorder"]
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
# The Inspector counts the elements of one rank; a report counts what nccl-tests does.
_OF_EACH_RANK = frozenset({"all_gather", "reduce_scatter", "all_to_all", "gather", "scatter"})
# Each rank needs something of every other one.
_JOINT = frozenset({"all_reduce", "all_gather", "reduce_scatter", "all_to_all"})
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


@dataclass(frozen=True)
class TimedCall:
    """One rank's part in a collective: of which communicator and call, the buffer as nccl-tests counts it."""

    communicator: str
    ranks: int
    rank: int
    host: str
    kind: Kind
    number: int
    size_bytes: int
    seconds: float


@dataclass(frozen=True)
class Waiting:
    """How long ranks waited for the last of them in the calls of one collective and size, in seconds.

    ``last`` are the ranks that came last, with the share of calls in which they did, most often first.
    """

    collective: Kind
    size_bytes: int
    calls: int
    transfer_s: float
    waited_s: float
    last: tuple[tuple[int, str, float], ...]

    @property
    def share(self) -> float:
        """The part of the longest rank's time in which it waited."""
        whole_s = self.transfer_s + self.waited_s
        return self.waited_s / whole_s if whole_s else 0.0


@dataclass(frozen=True)
class Inspected:
    """The report of the communicator in which most time was spent among the largest, and who waited there.

    Times of the report are those of transfers alone where every rank was recorded; ``recorded`` ranks were.
    ``others`` is how many communicators were left out.
    """

    report: Report
    waiting: tuple[Waiting, ...]
    recorded: int
    others: int


def is_inspector_text(text: bytes) -> bool:
    """Whether JSON lines are the Inspector's."""
    start = text[:65536]
    return start.lstrip()[:1] == b"{" and b'"coll_exec_time_us"' in start and b'"n_ranks"' in start


@dataclass(frozen=True)
class _Communicator:
    """The seconds of each rank by collective, size and number of the call; the host of each rank."""

    ranks: int
    hosts: dict[int, str]
    times_s: dict[tuple[Kind, int], dict[int, dict[int, float]]]

    @property
    def spent_s(self) -> float:
        every = (calls for calls in self.times_s.values())
        return sum(sum(ranks.values()) for calls in every for ranks in calls.values())


def inspected(files: Mapping[str, bytes]) -> Inspected:
    """What the Inspector's files, by their names, tell together.

    Raises DataError where a line is none of its records, or nothing in them is a collective.
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


def of_calls(calls: Iterable[TimedCall], executor: Executor = "nccl-inspector") -> Inspected | None:
    """What timed calls tell together, whoever recorded them; None where there are none of two ranks.

    Raises DataError where a communicator has two numbers of ranks.
    """
    found: dict[str, _Communicator] = {}
    for call in calls:
        _add(found, call)
    if not found:
        return None
    most = max(one.ranks for one in found.values())
    chosen = max((one for one in found.values() if one.ranks == most), key=lambda one: one.spent_s)
    return Inspected(_report(chosen, executor), tuple(_waits(chosen)), len(chosen.hosts), len(found) - 1)


def sends_of(
    files: Mapping[str, bytes],
) -> tuple[dict[tuple[int, int], dict[int, list[float]]], dict[int, str]]:
    """Seconds of sends by (rank from, rank to) and bytes in the largest communicator, and hosts by rank."""
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
            # A job that was killed leaves half a line.
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
    return TimedCall(header.id, header.n_ranks, header.rank, host, kind, perf.coll_sn, size_bytes, seconds)


def _add(found: dict[str, _Communicator], call: TimedCall) -> None:
    if call.ranks < 2:
        return
    own = found.setdefault(
        call.communicator, _Communicator(call.ranks, {}, defaultdict(lambda: defaultdict(dict)))
    )
    if own.ranks != call.ranks:
        raise DataError(
            call.communicator,
            [f"header.n_ranks: {call.communicator} has {own.ranks} ranks, found {call.ranks}"],
        )
    own.hosts[call.rank] = call.host
    own.times_s[call.kind, call.size_bytes][call.number][call.rank] = call.seconds


def _report(one: _Communicator, executor: Executor) -> Report:
    rows = [_row(kind, size, calls, one.ranks) for (kind, size), calls in sorted(one.times_s.items())]
    return Report(
        ranks=one.ranks,
        hosts=tuple(dict.fromkeys(one.hosts[rank] for rank in sorted(one.hosts))),
        executor=executor,
        library="NCCL",
        warmup=0,
        iterations=max(len(calls) for calls in one.times_s.values()),
        rows=tuple(rows),
        average="fastest",
    )


def _row(kind: Kind, size_bytes: int, calls: Mapping[int, Mapping[int, float]], ranks: int) -> Row:
    """One size: the median of what transfers took, by the calls that the most ranks recorded."""
    recorded = max(len(times_s) for times_s in calls.values())
    of_call = min if kind in _JOINT else max
    time_s = statistics.median(of_call(one.values()) for one in calls.values() if len(one) == recorded)
    algbw_gbs = size_bytes / time_s / 1e9 if time_s else 0.0
    by_rank: dict[int, list[float]] = defaultdict(list)
    for times_s in calls.values():
        for rank, seconds in times_s.items():
            by_rank[rank].append(seconds)
    own_s = tuple(statistics.median(by_rank[rank]) for rank in range(ranks)) if len(by_rank) == ranks else ()
    measured = Measurement(
        time_s, time_s, time_s, -1, algbw_gbs, algbw_gbs * busbw_factor(kind, ranks), None, rank_s=own_s
    )
    return Row(
        collective=kind,
        size_bytes=size_bytes,
        count=size_bytes,
        dtype="uint8",
        redop="sum" if kind in ("all_reduce", "reduce_scatter", "reduce") else "none",
        root=0 if kind in ("broadcast", "reduce", "gather", "scatter") else -1,
        program="nccl",
        predicted_s=None,
        out_of_place=measured,
        in_place=None,
        peers={},
    )


def _waits(one: _Communicator) -> Iterable[Waiting]:
    """Of each collective and size whose calls every rank has recorded."""
    for (kind, size_bytes), calls in sorted(one.times_s.items()):
        whole = [times_s for times_s in calls.values() if len(times_s) == one.ranks]
        if not whole or kind not in _JOINT:
            continue
        last = Counter(min(times_s, key=lambda rank: times_s[rank]) for times_s in whole)
        yield Waiting(
            kind,
            size_bytes,
            len(whole),
            statistics.median(min(times_s.values()) for times_s in whole),
            statistics.median(max(times_s.values()) - min(times_s.values()) for times_s in whole),
            tuple((rank, one.hosts[rank], count / len(whole)) for rank, count in last.most_common()),
        )
