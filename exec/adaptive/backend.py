"""The thread of a rank that carries out the coordinator's decisions, independently of the caller's thread."""

from __future__ import annotations

import collections
import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from exec.adaptive.compiled_parts import late_parts, packed, unpacked, whole_parts
from exec.adaptive.contexts import Contexts, Result, Version
from exec.adaptive.links_now import betas_of, measured_links
from exec.adaptive.messages import (
    ADMIT,
    CollectiveCall,
    Decision,
    Go,
    Install,
    Installed,
    Leave,
    Measure,
    MeasuredLinks,
    Outdated,
    PartDone,
    Ready,
    Regroup,
    Resume,
    Stalled,
    Swap,
    WorkerState,
)
from exec.adaptive.replanner import first_schedules, good_schedules
from exec.adaptive.session_state import SessionState
from exec.adaptive.severed import HostPair
from exec.program import Array, divided
from exec.sockets import Group
from exec.stragglers import Entrance
from probes.base import CcctlError, LostRankError, UsageError

__all__ = ["Backend", "Work"]

# A result (None if the root was lost first), and the ranks whose data is in it.
_Kept = tuple[Array | None, tuple[int, ...]]
# The number of results that are kept for ranks that lack them when another rank is lost.
_KEPT = 4
_RESULTS = "results"
# The most requests whose late-joined bytes are remembered.
_MOST_LATE = 1 << 16
# Longest wait for new orders after a run broke off.
_LEADERLESS_S = 120.0
# Interval of the checks whether an epoch without a lost rank has begun.
_LOOK_S = 0.01


class Work:
    """A collective that was requested; ``wait`` returns its result."""

    def __init__(self, seq: int, request: CollectiveCall, data: Array) -> None:
        self.seq, self.request, self.data = seq, request, data
        self.members: tuple[int, ...] = ()
        self._done = threading.Event()
        self._result: Array | None = None
        self._error: Exception | None = None

    def done(self) -> bool:
        """Return whether ``wait`` returns at once."""
        return self._done.is_set()

    def wait(self, timeout_s: float | None = None) -> Array:
        """Return the result on this rank, and set ``members`` to the ranks whose data is in it.

        Raises LostRankError, or TimeoutError after ``timeout_s`` seconds.
        """
        if not self._done.wait(timeout_s):
            raise TimeoutError(f"request {self.seq} is not done within {timeout_s} s")
        if self._error is not None:
            raise self._error
        assert self._result is not None
        return self._result

    def finish(self, result: Array, members: tuple[int, ...]) -> None:
        self._result, self.members = result, members
        self._done.set()

    def fail(self, error: Exception) -> None:
        self._error = error
        self._done.set()


class Backend:
    """The works and contexts of one rank; applies decisions to `SessionState`."""

    def __init__(self, state: SessionState) -> None:
        self._state = state
        self._is_new, self.admission = state.links is None, queue.SimpleQueue[Work]()
        self._broken_epoch = -1
        self.decisions: queue.SimpleQueue[Decision] = queue.SimpleQueue()
        self._ready: dict[int, Contexts] = {}
        self.next_seq, self._done = 0, 0
        self._works: dict[int, Work] = {}
        self._parts: list[tuple[int, ...]] = []
        self._result, self._entrance = Result(), Entrance()
        self.joined_late: collections.deque[tuple[int, int]] = collections.deque(maxlen=_MOST_LATE)
        self._results: collections.OrderedDict[int, _Kept] = collections.OrderedDict()
        self._failed: Exception | None = None
        self._lock = threading.Lock()
        self._left = threading.Event()
        # Work beside the job, in the order of the decisions; None ends it.
        self._building: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        for run in (self._run, self._build):
            threading.Thread(target=run, name=f"session {run.__name__}", daemon=True).start()

    def setup(self, request: CollectiveCall) -> None:
        """Make the contexts of ``request``; collective over the callers, after their earlier requests.

        Returns at once if the request was set up before. After the first epoch, ranks exchange nothing here,
        and each makes the same first schedule by itself. When a rank is lost during this call, some ranks may
        have finished it and others may not have begun it.
        """
        state = self._state
        if request in state.requests:
            return
        with self._lock:
            under_way = tuple(self._works.values())
        for work in under_way:
            with contextlib.suppress(CcctlError):
                work.wait()
        if not request.rooted or request.root in state.membership.members:
            if not state.membership.epoch:
                with contextlib.suppress(LostRankError):
                    self._prepare(request)
                    # No rank may use the contexts before all ranks have them.
                    state.group.named("set up").Barrier()
            self._await_regroup()
        state.requests[request] = None

    def _await_regroup(self) -> None:
        """Wait until no member of the current epoch is known to be lost, or the session fails."""
        until_s = time.monotonic() + _LEADERLESS_S
        while self._failed is None and time.monotonic() < until_s:
            if not set(self._state.mesh.lost) & set(self._state.membership.members):
                return
            time.sleep(_LOOK_S)

    def _prepare(self, request: CollectiveCall) -> None:
        state = self._state
        # Use the same group and contexts throughout, because ``state`` gets new ones when a rank is lost.
        group, contexts = state.group, state.contexts
        if request not in contexts.version.schedules:
            made = None
            if group.Get_rank() == 0:
                members = state.membership.members
                made = good_schedules(state.connected_network, [request], members, state.replan_s)
            contexts.add(group.bcast(made))
        content = b""
        if group.Get_rank() == 0:
            schedules = {request: contexts.version.schedules[request]}
            late = late_parts(schedules) if state.policy.relays else ()
            content = packed({**whole_parts(schedules), **dict(late)})
        parts = unpacked(group.bcast(content))
        contexts.take(parts)
        for _, part, first in parts:
            contexts.prepare(request, part, first=first)

    def ask(self, request: CollectiveCall, data: Array) -> Work:
        """Queue a request and return its work; raises UsageError if it was not set up."""
        if request not in self._state.requests:
            raise UsageError(
                f"data: no contexts for {request.kind} of {request.count} elements of {request.dtype}",
                hint="Call setup() with this kind, count, type, operator and root first, on every rank.",
            )
        with self._lock:
            work = self._queued(request, data)
        if not work.done():
            self._report(Ready(work.seq, request))
            self._entrance.offer((work.seq, request), data)
        return work

    def admit(self) -> Work:
        """Queue a request that lets ranks in; raises UsageError while other requests are under way."""
        with self._lock:
            if self._works:
                raise UsageError(f"ranks are let in between requests, but {len(self._works)} are not done")
            work = self._queued(ADMIT, np.zeros(0, np.int64))
        if not work.done():
            self._report(Ready(work.seq, ADMIT))
        return work

    def _queued(self, request: CollectiveCall, data: Array) -> Work:
        work = Work(self.next_seq, request, data)
        if self._failed is not None:
            work.fail(self._failed)
            return work
        self._works[work.seq] = work
        self.next_seq += 1
        return work

    def break_off(self, regroup: Regroup) -> None:
        """Make running collectives raise, as their epoch is over; runs on the mesh's thread."""
        after = regroup.membership
        lost = [f"rank {rank} {how}" for rank, how in after.lost.items()]
        apart = [f"nothing passes between the hosts of ranks {a} and {b}" for a, b in after.severed]
        new = [f"rank {rank} joins" for rank in after.joining]
        self._state.group.revoke("; ".join(lost + apart + new))

    def stalled(self, peer: int) -> None:
        """Report that nothing passes between this rank and ``peer``."""
        self._report(Stalled(self._state.membership.epoch, peer))

    def fail(self, error: Exception) -> None:
        """End every work with ``error``."""
        with self._lock:
            self._failed = error
            works, self._works = list(self._works.values()), {}
        for work in works:
            work.fail(error)

    def leave(self) -> None:
        """Stop the threads once every rank leaves."""
        with contextlib.suppress(LostRankError):
            self._state.group.named("leave").Barrier()
        self.decisions.put(Leave(self._state.membership.epoch))
        self._left.wait(10)

    def _run(self) -> None:
        broken_s = 0.0
        while True:
            try:
                decision = self.decisions.get(timeout=1.0)
            except queue.Empty:
                if broken_s and time.monotonic() - broken_s > _LEADERLESS_S:
                    self.fail(LostRankError("a rank was lost, and no coordinator has said how to go on"))
                    broken_s = 0.0
                continue
            if isinstance(decision, Leave):
                break
            try:
                self._carry_out(decision)
                broken_s = 0.0 if isinstance(decision, Resume) else broken_s
            except LostRankError:
                # The coordinator hears of the loss too and begins an epoch without the rank. Its earlier
                # decisions assume work that this rank has not done.
                broken_s, self._broken_epoch = time.monotonic(), self._state.membership.epoch
            except Exception as error:
                self.fail(error)
        for contexts in (self._state.contexts, *self._ready.values()):
            contexts.close()
        self._left.set()
        self._building.put(None)

    def _carry_out(self, decision: Decision) -> None:
        epoch, contexts = self._state.membership.epoch, self._state.contexts
        if isinstance(decision, Regroup):
            self._regroup(decision)
        elif decision.epoch != epoch or epoch == self._broken_epoch:
            return
        elif isinstance(decision, Go):
            self._go(decision)
        elif isinstance(decision, Resume):
            self._resume(decision)
        elif isinstance(decision, Measure):
            self._measure(decision)
        elif (
            isinstance(decision, Install | Swap)
            and decision.late
            and contexts.version.number != decision.version
        ):
            # Decisions arrive in one order, so this version is out of use on all ranks.
            return
        elif isinstance(decision, Install):
            self._building.put(partial(self._make, decision, contexts))
        elif isinstance(decision, Swap):
            contexts.reveal() if decision.late else self._swap(decision)

    def _go(self, go: Go) -> None:
        started_s, state = time.monotonic(), self._state
        work = self._works.get(go.seq)
        if go.part and not go.request.admits:
            part = tuple(state.group.members.index(rank) for rank in go.part)
            mine = work.data if work is not None and state.rank in go.part else None
            state.schedule_of(go.request)
            state.contexts.run(go.request, part, mine, self._result, partial(self._offers, go))
        self._parts.append(go.part)
        if not go.request.alike:
            # No other rank can supply this result later, so all ranks must have their results before any rank
            # hands its result over.
            state.group.named("whole").Barrier()
        self._report(PartDone(go.epoch, go.seq, go.number, go.last, time.monotonic() - started_s))
        if go.last:
            self._finish(go.seq, go.request)

    @contextlib.contextmanager
    def _offers(self, go: Go, take: Callable[[Array], None]) -> Iterator[None]:
        """Hand this rank's data for a part to ``take`` within the block, now or when its caller brings it."""
        with self._entrance.open((go.seq, go.request), take):
            work = self._works.get(go.seq)
            if work is not None:
                self._entrance.offer((work.seq, work.request), work.data)
            yield

    def _finish(self, seq: int, request: CollectiveCall) -> None:
        """Hand over the combined result of all parts; there are no parts if the root was lost."""
        if self._result.joined is not None:
            self.joined_late.append((seq, int(self._result.joined.sum()) * request.item_bytes))
        members = tuple(sorted(rank for part in self._parts for rank in part))
        whole = self._result.whole(request) if self._result.parts else None
        if request.admits:
            let_in = [rank for rank in members if self._state.membership.joined.get(rank) == seq]
            whole = np.array(let_in, np.int64)
        self._result, self._parts = Result(), []
        if request.op == "avg" and whole is not None:
            whole = divided(whole, len(members))
        if request.alike:
            self._results[seq] = (whole.copy() if whole is not None else None, members)
        while len(self._results) > _KEPT:
            self._results.popitem(last=False)
        self._done = seq + 1
        self._hand_over(seq, whole, members)

    def _hand_over(self, seq: int, whole: Array | None, members: tuple[int, ...]) -> None:
        with self._lock:
            work = self._works.pop(seq, None)
        if work is None:
            return
        if whole is None:
            root, lost = work.request.root, self._state.membership.lost
            work.fail(LostRankError(f"rank {root}, the root, is lost: it {lost.get(root, 'is gone')}"))
        else:
            work.finish(whole, members)

    def _take_severed(self, pairs: tuple[HostPair, ...]) -> None:
        """Note the severed pairs of hosts, and let the connections between them survive the outage."""
        mesh, before = self._state.mesh, self._state.membership
        for pair in {*pairs} ^ {*before.severed}:
            own_host = mesh.host[mesh.rank]
            if own_host in pair:
                other_host = pair[1 - pair.index(own_host)]
                for rank in range(mesh.size):
                    if mesh.host[rank] == other_host:
                        mesh.outlast(rank, outage=pair in pairs)
        self._state.membership = replace(before, severed=pairs)

    def _regroup(self, regroup: Regroup) -> None:
        """Begin an epoch: drop all contexts, report this rank's state, and make first schedules."""
        state, before, after = self._state, self._state.membership, regroup.membership
        if after.epoch <= before.epoch:
            state.send(after.leader, Outdated(before.epoch))
            return
        started_s = time.monotonic()
        for rank, how in after.lost.items():
            state.mesh.lose(rank, how, after.starts.get(rank, 0))
        for contexts in (state.contexts, *self._ready.values()):
            contexts.close()
        self._ready.clear()
        state.group.close()
        state.group = state.group.among(after.members, str(after.epoch))
        state.links = regroup.links or state.links
        if self._is_new:
            state.requests |= dict.fromkeys(regroup.requests)
            state.profile_every = regroup.profile_every
        self._take_severed(after.severed)
        state.membership = after
        with self._lock:
            ready = {seq: work.request for seq, work in self._works.items()}
        done = -1 if self._is_new else self._done
        self._report(WorkerState(after.epoch, done, tuple(self._parts), ready, self._result.open_to))
        # All ranks derive the same schedules from the same costs, so no rank waits for another.
        requests = [one for one in state.requests if not one.rooted or one.root in after.members]
        schedules = first_schedules(state.connected_network, requests, after.members)
        version = Version(0, schedules, after.epoch)
        state.contexts = Contexts(state.group, version, state.places(after.members))
        seconds = time.monotonic() - started_s
        if after.lost.keys() - before.lost.keys() and not self._is_new:
            state.tell("lost", seconds, detail={"ranks": dict(after.lost), "epoch": after.epoch})
        elif after.joining:
            detail = {"ranks": after.joining, "epoch": after.epoch}
            state.tell("joined", seconds, stood_s=seconds, detail=detail)
        else:
            state.tell("regrouped", seconds, detail={"severed": after.severed, "epoch": after.epoch})

    def _begin(self, resume: Resume) -> None:
        """Start a joining rank at the request that lets it in."""
        with self._lock:
            self._done = self.next_seq = resume.seq
            self.admission.put(self._queued(ADMIT, np.zeros(0, np.int64)))
        self._is_new = False

    def _resume(self, resume: Resume) -> None:
        state = self._state
        state.membership = replace(state.membership, joining=())
        if self._is_new:
            self._begin(resume)
        if self._done == resume.seq and len(self._parts) > resume.kept:
            # Parts that some rank lacks are repeated from the saved data.
            del self._parts[resume.kept :]
            self._result.keep(resume.kept)
        for seq, holder in sorted(resume.holders.items()):
            topic = f"{resume.epoch}/{_RESULTS}/{seq}"
            if state.rank == holder:
                for rank in state.membership.members:
                    if rank != holder and seq in self._results:
                        state.mesh.send(rank, topic, self._results[seq])
            elif seq >= self._done:
                self._catch_up(seq, holder, topic)
        state.tell("resumed", detail={"at": resume.seq, "kept": resume.kept, "epoch": resume.epoch})

    def _catch_up(self, seq: int, holder: int, topic: str) -> None:
        """Finish a request that ``holder`` has finished, with its result or this rank's own.

        If results differ between ranks, this rank already has its own, because no rank hands a result over
        before all ranks have theirs.
        """
        work = self._works.get(seq)
        if work is not None and not work.request.alike:
            self._finish(seq, work.request)
            return
        whole, members = self._results[seq] = self._state.mesh.receive(holder, topic)
        self._done, self._parts, self._result = seq + 1, [], Result()
        self._hand_over(seq, whole.copy() if whole is not None else None, members)

    def _swap(self, swap: Swap) -> None:
        started_s = time.monotonic()
        state, contexts = self._state, self._ready.pop(swap.version)
        old, state.contexts = state.contexts, contexts
        # The last version stays, as the coordinator may go back to it.
        self._ready[old.version.number] = old
        newest = max(old.version.number, swap.version)
        for number in [one for one in list(self._ready) if one < newest and one != old.version.number]:
            # Free them on the building thread, so that the job is not delayed.
            self._building.put(self._ready.pop(number).close)
        state.tell("swapped", stood_s=time.monotonic() - started_s, detail={"version": swap.version})

    def _measure(self, measure: Measure) -> None:
        started_s, state = time.monotonic(), self._state
        self._take_severed(measure.severed)
        group = state.group.named(f"measure {measure.number}")
        found = measured_links(group, measure.severed, betas_of(state.network))
        seconds, members = time.monotonic() - started_s, state.group.members
        links = tuple((members[one.src], one.alpha_s, one.beta_s_per_byte) for one in found)
        self._report(MeasuredLinks(measure.epoch, measure.number, seconds, links))
        state.tell("measured", seconds, stood_s=seconds, detail={"number": measure.number})

    def _build(self) -> None:
        """Work beside the job, in the order of the coordinator's decisions."""
        while not self._left.is_set() and (work := self._building.get()) is not None:
            work()

    def _make(self, install: Install, used: Contexts) -> None:
        """Make contexts for new schedules, or add those for late ranks to ``used``."""
        state = self._state
        if install.epoch != state.membership.epoch:
            return
        started_s = time.monotonic()
        group = state.group.named(f"version {install.version}{', late' if install.late else ''}")
        # Errors are ignored: the epoch may be over, or a rank may have no room.
        with contextlib.suppress(CcctlError, OSError):
            if install.late:
                used.prepare_beside(group, unpacked(install.parts))
            else:
                self._ready[install.version] = self._made(install, used.version, group)
            detail = {"version": install.version, "late": install.late}
            state.tell("built", time.monotonic() - started_s, detail=detail)
            self._report(Installed(install.epoch, install.version, install.late))

    def _made(self, install: Install, used: Version, group: Group) -> Contexts:
        """Make contexts of all ranks for new schedules; close them on failure."""
        version = Version(install.version, {**used.schedules, **install.schedules}, install.epoch)
        contexts = Contexts(group, version, self._state.places(group.members))
        with contextlib.ExitStack() as stack:
            stack.callback(contexts.close)
            contexts.take(unpacked(install.parts))
            for request in version.schedules:
                contexts.prepare(request, range(group.Get_size()), first=True)
            stack.pop_all()
        return contexts

    def _report(self, message: Any) -> None:
        self._state.send(self._state.membership.leader, message)
