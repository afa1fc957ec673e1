"""A job of many equal collectives on an adaptive session, for measurements and trials.

Each rank computes for a while (asleep or busy), starts its collective, waits, and checks every element.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from exec.adaptive.coordinator import RequestHistory, WaitPolicy
from exec.adaptive.session import Session
from exec.adaptive.session_state import SessionEvent
from exec.program import Array
from exec.sockets import Group
from probes.base import Floats, LostRankError, Safekeeping
from synth.collective import Kind
from synth.network import Network

__all__ = ["Iterations", "IterationsReport", "ReadyTimes", "iterations_task"]

# An element is the sum of two whole numbers below this, so it is at most 30. A float32 holds whole numbers up
# to 2^24 exactly, so sums over half a million ranks are exact in every order.
_CYCLE = 16


@dataclass(frozen=True, eq=False)
class Iterations:
    """The job: ``iterations`` collectives on blocks of ``count`` float32 elements, as in `Session.setup`.

    ``computing_s[i, r]`` is the time that rank r computes before request i; None for no time. A rank sleeps
    for that time. If ``busy``, it instead keeps a core at work until it has used as much processor time,
    which takes longer if other processes use the core, too. If ``profile_every`` is 0, links are never
    measured and schedules never change. If ``rejoin``, ranks that were started again are let in before each
    request.
    """

    iterations: int
    count: int
    kind: Kind = "all_reduce"
    root: int | None = None
    network: Network | None = None
    computing_s: Floats | None = None
    profile_every: int = 0
    policy: WaitPolicy = field(default_factory=WaitPolicy)
    rejoin: bool = False
    busy: bool = False


@dataclass(frozen=True, eq=False)
class ReadyTimes:
    """Times at which a rank was ready for each request and had its result, by its host's monotonic clock.

    A rank that joined has a time for each request from ``first`` on.
    """

    rank: int
    ready_s: Floats
    done_s: Floats
    first: int = 0


@dataclass(frozen=True, eq=False)
class IterationsReport:
    """The outcome: surviving ranks, the number of ``wrong`` elements on them, and the session's events."""

    members: tuple[int, ...]
    lost: dict[int, str]
    wrong: int
    times: tuple[ReadyTimes, ...]
    events: tuple[SessionEvent, ...]
    seen: tuple[RequestHistory, ...]
    setup_s: float


def iterations_task(comm: Group, job: Iterations, progress: Safekeeping) -> IterationsReport | None:
    """Run the job on this rank; return the report on the coordinator, None on others."""
    started_s = time.monotonic()
    if hasattr(progress, "on_lost"):
        progress.on_lost(lambda lost: comm.mesh.lose(lost.rank, lost.how, lost.start))
    session = Session(
        comm,
        job.network,
        policy=job.policy,
        fence=getattr(progress, "fence", lambda rank: None),
    )
    session.setup(job.count, kind=job.kind, root=job.root)
    session.profile(every=job.profile_every)
    data = _Data(job, session.rank, session.size)
    setup_s = time.monotonic() - started_s
    if not comm.mesh.start:
        with contextlib.suppress(LostRankError):
            comm.named("start").Barrier()
    ready_s, done_s = np.zeros(job.iterations), np.zeros(job.iterations)
    wrong, reported, seq = 0, 0, 0
    first = None
    while seq < job.iterations:
        if job.rejoin:
            # Each iteration is two requests, of which this is the first; a joining rank goes on with the
            # second.
            seq = session.admit().next_seq // 2
        first = seq if first is None else first
        progress.update(seq, job.iterations, job.kind)
        if job.computing_s is not None:
            (_use_core if job.busy else time.sleep)(float(job.computing_s[seq, session.rank]))
        given = data.given(seq)
        ready_s[seq] = time.monotonic()
        work = session.ask(job.kind, given, root=job.root)
        found = work.wait()
        done_s[seq] = time.monotonic()
        wrong += data.wrong(found, work.members, seq)
        seq += 1
        reported = _tell(session, progress, reported)
    first = first or 0
    members = session.members
    own = ReadyTimes(session.rank, ready_s[first:], done_s[first:], first), wrong
    each = session.gather("times", own)
    report = None
    if session.rank == session.coordinator:
        report = IterationsReport(
            tuple(each),
            # A rank that was lost in the last moment is still a member.
            {**{rank: "is gone" for rank in members if rank not in each}, **session.lost},
            sum(count for _, count in each.values()),
            tuple(times for times, _ in each.values()),
            tuple(session.events),
            tuple(session.seen),
            setup_s,
        )
    session.close()
    return report


def _use_core(duration_s: float) -> None:
    """Keep a core busy until this thread has used ``duration_s`` of processor time."""
    end_s = time.thread_time() + duration_s
    while time.thread_time() < end_s:
        pass


def _tell(session: Session, progress: Safekeeping, reported: int) -> int:
    """Hand over the coordinator's events after the first ``reported``; return how many are reported now."""
    events = session.events[reported:]
    if session.rank == session.coordinator:
        for event in events:
            progress.partial((session.rank, event))
    return reported + len(events)


class _Data:
    """The input and expected output of one rank: small whole numbers, whose sums are exact in any order."""

    def __init__(self, job: Iterations, rank: int, ranks: int) -> None:
        self._job, self._rank = job, rank
        blocks = ranks if job.kind in ("reduce_scatter", "all_to_all") else 1
        self._own = self._base(rank, 0, blocks * job.count)
        self._wanted: dict[tuple[int, ...], tuple[Array, int]] = {}

    def given(self, seq: int) -> Array:
        """Return this rank's data for request ``seq``."""
        data: Array = self._own + self._own.dtype.type(seq % _CYCLE)
        return data

    def wrong(self, found: Array, members: tuple[int, ...], seq: int) -> int:
        """Return how many elements of a result of ``members`` are wrong, missing or too many."""
        if members not in self._wanted:
            self._wanted = {members: self._expected(members)}
        base, times = self._wanted[members]
        if found.size != base.size:
            return max(found.size, base.size)
        return int(np.count_nonzero(found.astype(np.float64) != base + times * (seq % _CYCLE)))

    def _expected(self, members: Sequence[int]) -> tuple[Array, int]:
        """Return the result of request 0, and its growth if 1 is added to all data."""
        kind, count, rank = self._job.kind, self._job.count, self._rank
        at = rank if kind in ("reduce_scatter", "all_to_all") else 0
        if kind == "broadcast":
            assert self._job.root is not None
            return self._base(self._job.root, 0, count).astype(np.float64), 1
        every = [self._base(member, at * count, (at + 1) * count) for member in members]
        if kind in ("all_gather", "all_to_all"):
            return np.concatenate(every).astype(np.float64), 1
        if kind == "reduce" and rank != self._job.root:
            return np.zeros(0), 1
        return np.asarray(np.sum(every, axis=0, dtype=np.float64)), len(members)

    def _base(self, rank: int, start: int, stop: int) -> Array:
        numbers = (np.arange(start, stop, dtype=np.int64) * (2 * rank + 3) + rank) % _CYCLE
        return numbers.astype(np.float32)
