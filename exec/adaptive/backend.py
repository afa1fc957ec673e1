"""The thread of a rank that carries out the coordinator's decisions, independently of the caller's thread."""

from __future__ import annotations

import collections
import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from exec.adaptive.compiled_parts import late_parts, packed, unpacked, whole_parts
from exec.adaptive.contexts import Contexts, Result, Version
from exec.adaptive.links_now import LinkNow, betas_of, measured_links, with_links
from exec.adaptive.messages import (
    ADMIT,
    CollectiveCall,
    Decision,
    Go,
    Install,
    Installed,
    InstallLate,
    Leave,
    Measure,
    MeasuredLinks,
    Outdated,
    PartDone,
    Ready,
    Regroup,
    Resume,
    Reveal,
    Stalled,
    Swap,
    Welcome,
    WorkerState,
    leader_of,
)
from exec.adaptive.replanner import first_schedules, good_schedules
from exec.adaptive.severed import HostPair, without_pairs
from exec.program import Array, divided
from exec.relays import Entrance
from exec.sockets import Group
from probes.base import CcctlError, LostRankError, UsageError
from synth.network import Network
from synth.networks import restricted
from synth.schedules import Schedule

if TYPE_CHECKING:
    from exec.adaptive.session import Session

__all__ = ["Backend", "Work"]

# A result (None if the root was lost first), and the ranks whose data is in it.
_Kept = tuple[Array | None, tuple[int, ...]]
# Results kept for ranks that lack them when another rank is lost.
_KEPT = 4
_RESULTS = "results"
# Requests whose late-joined bytes are remembered.
_MOST_LATE = 1 << 16
# Longest wait for new orders after a run broke off.
_LEADERLESS_S = 120.0
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
    """Works and contexts of one rank; members are numbered as at the session's start, as in messages.

    A rank that is started later has no ``network`` and no members until the others let it in.
    """

    def __init__(self, session: Session, group: Group, network: Network | None) -> None:
        self._session, self.group = session, group
        self.members: tuple[int, ...] = group.members if network is not None else ()
        self._first = session.slots
        self.epoch, self.lost = 0, dict[int, str]()
        self.joined: Mapping[int, int] = {}
        self.starts: Mapping[int, int] = {}
        self.joining: tuple[int, ...] = ()
        self._is_new, self.admission = network is None, queue.SimpleQueue[Work]()
        self.base, self.links = network, tuple[LinkNow, ...]()
        self.severed: tuple[HostPair, ...] = ()
        self._broken_epoch = -1
        self.profile_every = 0
        self.decisions: queue.SimpleQueue[Decision] = queue.SimpleQueue()
        self._contexts = Contexts(group, Version(0, {}), range(group.Get_size()))
        self._set_up: dict[CollectiveCall, None] = {}
        self._ready: dict[int, Contexts] = {}
        self._asked, self._done = 0, 0
        self._works: dict[int, Work] = {}
        self._parts: list[tuple[int, ...]] = []
        self._result, self._entrance = Result(), Entrance()
        self.joined_late: collections.deque[tuple[int, int]] = collections.deque(maxlen=_MOST_LATE)
        self._results: collections.OrderedDict[int, _Kept] = collections.OrderedDict()
        self._failed: Exception | None = None
        self._lock = threading.Lock()
        self._left = threading.Event()
        self._building: queue.SimpleQueue[Install | tuple[InstallLate, Contexts] | Contexts] = (
            queue.SimpleQueue()
        )
        for run in (self._run, self._build):
            threading.Thread(target=run, name=f"session {run.__name__}", daemon=True).start()

    @property
    def version(self) -> Version:
        """The schedules in use."""
        return self._contexts.version

    def setup(self, request: CollectiveCall) -> None:
        """Make the contexts of ``request``; collective over the callers, after their earlier requests.

        Returns at once if the request was set up before. After the first epoch each rank makes the same first
        schedule by itself: if a rank is lost in here, some ranks may be through and others may not have
        begun.
        """
        if request in self._set_up:
            return
        with self._lock:
            under_way = tuple(self._works.values())
        for work in under_way:
            with contextlib.suppress(CcctlError):
                work.wait()
        if not request.rooted or request.root in self.members:
            if not self.epoch:
                with contextlib.suppress(LostRankError):
                    self._prepare(request)
                    # No rank may use the contexts before all ranks have them.
                    self.group.named("set up").Barrier()
            self._await_regroup()
        self._set_up[request] = None

    def schedule_of(self, request: CollectiveCall) -> Schedule:
        """Return this epoch's schedule of ``request``; make a first one if a rank was lost in `setup`."""
        contexts = self._contexts
        found = contexts.version.schedules.get(request)
        if found is None:
            found = first_schedules(self._linked(), [request], self.members)[request]
            version = contexts.version
            contexts.version = Version(version.number, {**version.schedules, request: found})
        return found

    def _await_regroup(self) -> None:
        """Wait until an epoch has begun without every rank known to be lost, or the session fails."""
        until_s = time.monotonic() + _LEADERLESS_S
        while self._failed is None and time.monotonic() < until_s:
            if not set(self.group.mesh.lost) & set(self.members):
                return
            time.sleep(_LOOK_S)

    def _prepare(self, request: CollectiveCall) -> None:
        # Both attributes are replaced once a rank is lost.
        group, contexts = self.group, self._contexts
        if request not in contexts.version.schedules:
            made = None
            if group.Get_rank() == 0:
                made = good_schedules(self._linked(), [request], self.members, self._session.replan_s)
            version = contexts.version
            contexts.version = Version(version.number, {**version.schedules, **group.bcast(made)})
        content = b""
        if group.Get_rank() == 0:
            schedules = {request: contexts.version.schedules[request]}
            late = late_parts(schedules) if self._session.policy.relays else ()
            content = packed({**whole_parts(schedules), **dict(late)})
        parts = unpacked(group.bcast(content))
        contexts.take(parts)
        for _, part, first in parts:
            contexts.prepare(request, part, first=first)

    def ask(self, request: CollectiveCall, data: Array) -> Work:
        """Queue a request and return its work; raises UsageError if it was not set up."""
        if request not in self._set_up:
            raise UsageError(
                f"data: no contexts for {request.kind} of {request.count} elements of {request.dtype}",
                hint="Call setup() with this kind, count, type, operator and root first, on every rank.",
            )
        with self._lock:
            work = self._queued(request, data)
        if not work.done():
            self._session.send(self._session.coordinator, Ready(work.seq, request))
            self._entrance.offer((work.seq, request), data)
        return work

    def admit(self) -> Work:
        """Queue a request that lets ranks in; raises UsageError while other requests are under way."""
        with self._lock:
            if self._works:
                raise UsageError(f"ranks are let in between requests, but {len(self._works)} are not done")
            work = self._queued(ADMIT, np.zeros(0, np.int64))
        if not work.done():
            self._session.send(self._session.coordinator, Ready(work.seq, ADMIT))
        return work

    @property
    def requests(self) -> tuple[CollectiveCall, ...]:
        """The requests that were set up, in the same order on every rank."""
        return tuple(self._set_up)

    @property
    def next_seq(self) -> int:
        """The number of this rank's next request."""
        return self._asked

    def _queued(self, request: CollectiveCall, data: Array) -> Work:
        work = Work(self._asked, request, data)
        if self._failed is not None:
            work.fail(self._failed)
            return work
        self._works[work.seq] = work
        self._asked += 1
        return work

    def break_off(self, regroup: Regroup) -> None:
        """Make running collectives raise, as their epoch is over; runs on the mesh's thread."""
        lost = [f"rank {rank} {how}" for rank, how in regroup.lost.items()]
        apart = [f"nothing passes between the hosts of ranks {a} and {b}" for a, b in regroup.severed]
        new = [f"rank {rank} joins" for rank in regroup.joining]
        self.group.revoke("; ".join(lost + apart + new))

    def stalled(self, peer: int) -> None:
        """Report that nothing passes between this rank and ``peer``."""
        self._report(Stalled(self.epoch, peer))

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
            self.group.named("leave").Barrier()
        self.decisions.put(Leave(self.epoch))
        self._left.wait(10)

    def _run(self) -> None:
        broken_s = 0.0
        while True:
            try:
                decision = self.decisions.get(timeout=1.0)
            except queue.Empty:
                if broken_s and time.monotonic() - broken_s > _LEADERLESS_S:
                    self.fail(LostRankError("a rank was lost, and nobody said how to go on"))
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
                broken_s, self._broken_epoch = time.monotonic(), self.epoch
            except Exception as error:
                self.fail(error)
        for contexts in (self._contexts, *self._ready.values()):
            contexts.close()
        self._left.set()
        self._building.put(Install(-1, -1, {}, b""))

    def _carry_out(self, decision: Decision) -> None:
        if isinstance(decision, Regroup):
            self._regroup(decision)
        elif isinstance(decision, Welcome):
            self._take_over(decision)
        elif decision.epoch != self.epoch or self.epoch == self._broken_epoch:
            return
        elif isinstance(decision, Go):
            self._go(decision)
        elif isinstance(decision, Resume):
            self._resume(decision)
        elif isinstance(decision, Install):
            self._building.put(decision)
        elif isinstance(decision, InstallLate):
            # Decisions arrive in one order, so this version is in use on all ranks or on none.
            if self._contexts.version.number == decision.version:
                self._building.put((decision, self._contexts))
        elif isinstance(decision, Swap):
            self._swap(decision)
        elif isinstance(decision, Reveal):
            if self._contexts.version.number == decision.version:
                self._contexts.reveal()
        elif isinstance(decision, Measure):
            self._measure(decision)

    def _go(self, go: Go) -> None:
        started_s = time.monotonic()
        work = self._works.get(go.seq)
        if go.part and not go.request.admits:
            part = tuple(self.group.members.index(rank) for rank in go.part)
            mine = work.data if work is not None and self._session.rank in go.part else None
            self.schedule_of(go.request)
            self._contexts.run(go.request, part, mine, self._result, partial(self._offers, go))
        self._parts.append(go.part)
        if not go.request.alike:
            # No other rank can resupply this result, so all ranks must have theirs before any hands it over.
            self.group.named("whole").Barrier()
        self._report(PartDone(self.epoch, go.seq, go.number, go.last, time.monotonic() - started_s))
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
        """Hand over the combined result of all parts; there are none if the root was lost before."""
        if self._result.joined is not None:
            self.joined_late.append((seq, int(self._result.joined.sum()) * request.item_bytes))
        members = tuple(sorted(rank for part in self._parts for rank in part))
        whole = self._result.whole(request) if self._result.parts else None
        if request.admits:
            let_in = [rank for rank in members if self.joined.get(rank) == seq]
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
            root = work.request.root
            work.fail(LostRankError(f"rank {root}, the root, is lost: it {self.lost.get(root, 'is gone')}"))
        else:
            work.finish(whole, members)

    def _linked(self) -> Network:
        """Return the network between the members, without severed pairs."""
        return without_pairs(self._network(), self.group.mesh.host, self.members, self.severed)

    def _network(self) -> Network:
        """Return the capability of the links between the members."""
        assert self.base is not None
        capability = with_links(self.base, self.links, self._first)
        return restricted(capability, [self._first.index(rank) for rank in self.members])[0]

    def _take_over(self, welcome: Welcome) -> None:
        """Adopt the others' agreements on a rank that joins."""
        if not self._is_new:
            return
        self.base = self._session.capability = welcome.network
        self._session.guessed = welcome.guessed
        self._set_up |= dict.fromkeys(welcome.requests)
        self.profile_every = welcome.profile_every

    def _take_severed(self, pairs: tuple[HostPair, ...]) -> None:
        """Note the severed pairs of hosts, and let the connections between them survive the outage."""
        mesh = self.group.mesh
        for pair in {*pairs} ^ {*self.severed}:
            here = mesh.host[mesh.rank]
            if here in pair:
                there = pair[1 - pair.index(here)]
                for rank in range(mesh.size):
                    if mesh.host[rank] == there:
                        mesh.outlast(rank, outage=pair in pairs)
        self.severed = pairs

    def _regroup(self, regroup: Regroup) -> None:
        if regroup.epoch <= self.epoch:
            self._session.send(leader_of(regroup.members, regroup.joined), Outdated(self.epoch))
            return
        started_s = time.monotonic()
        lost = {rank: how for rank, how in regroup.lost.items() if rank not in self.lost}
        for rank, how in regroup.lost.items():
            self.group.mesh.lose(rank, how, regroup.starts.get(rank, 0))
        for contexts in (self._contexts, *self._ready.values()):
            contexts.close()
        self._ready.clear()
        self.group.close()
        known = {**self.lost, **regroup.lost}
        self.lost = {rank: how for rank, how in known.items() if rank not in regroup.members}
        requests = [one for one in self._set_up if not one.rooted or one.root in regroup.members]
        self.group = self.group.among(regroup.members, str(regroup.epoch))
        self.joined, self.starts, self.joining = regroup.joined, regroup.starts, regroup.joining
        self.members, self.epoch = regroup.members, regroup.epoch
        self.links = regroup.links
        self.base = self.base if regroup.network is None else regroup.network
        if self.base is not None:
            self._session.capability = with_links(self.base, self.links, self._first)
        self._take_severed(regroup.severed)
        with self._lock:
            ready = {seq: work.request for seq, work in self._works.items()}
        done = -1 if self._is_new else self._done
        self._report(WorkerState(self.epoch, done, tuple(self._parts), ready, self._result.open_to))
        # All ranks derive the same schedules from the same costs, so none waits for another's.
        schedules = first_schedules(self._linked(), requests, self.members)
        places = [self._first.index(rank) for rank in self.members]
        self._contexts = Contexts(self.group, Version(0, schedules), places)
        seconds = time.monotonic() - started_s
        if lost and not self._is_new:
            self._session.tell("lost", seconds, detail={"ranks": dict(regroup.lost), "epoch": self.epoch})
        elif regroup.joining:
            detail = {"ranks": regroup.joining, "epoch": self.epoch}
            self._session.tell("joined", seconds, stood_s=seconds, detail=detail)
        else:
            self._session.tell("regrouped", seconds, detail={"severed": self.severed, "epoch": self.epoch})

    def _begin(self, resume: Resume) -> None:
        """Start a joining rank at the request that lets it in."""
        with self._lock:
            self._done = self._asked = resume.seq
            self.admission.put(self._queued(ADMIT, np.zeros(0, np.int64)))
        self._is_new = False

    def _resume(self, resume: Resume) -> None:
        self.joining = ()
        if self._is_new:
            self._begin(resume)
        if self._done == resume.seq and len(self._parts) > resume.kept:
            # Parts that some rank lacks are repeated from the saved data.
            del self._parts[resume.kept :]
            self._result.keep(resume.kept)
        for seq, holder in sorted(resume.holders.items()):
            topic = f"{self.epoch}/{_RESULTS}/{seq}"
            if self._session.rank == holder:
                for rank in self.members:
                    if rank != holder and seq in self._results:
                        self.group.mesh.send(rank, topic, self._results[seq])
            elif seq >= self._done:
                self._catch_up(seq, holder, topic)
        self._session.tell("resumed", detail={"at": resume.seq, "kept": resume.kept, "epoch": self.epoch})

    def _catch_up(self, seq: int, holder: int, topic: str) -> None:
        """Finish a request that another has finished, with its result or with this rank's own.

        This rank has its own if results differ between ranks, as all had theirs before any was handed over.
        """
        work = self._works.get(seq)
        if work is not None and not work.request.alike:
            self._finish(seq, work.request)
            return
        whole, members = self._results[seq] = self.group.mesh.receive(holder, topic)
        self._done, self._parts, self._result = seq + 1, [], Result()
        self._hand_over(seq, whole.copy() if whole is not None else None, members)

    def _swap(self, swap: Swap) -> None:
        started_s = time.monotonic()
        contexts = self._ready.pop(swap.version)
        old, self._contexts = self._contexts, contexts
        # The last version stays, as the coordinator may go back to it.
        self._ready[old.version.number] = old
        newest = max(old.version.number, swap.version)
        for number in [one for one in list(self._ready) if one < newest and one != old.version.number]:
            self._building.put(self._ready.pop(number))
        self._session.tell("swapped", stood_s=time.monotonic() - started_s, detail={"version": swap.version})

    def _measure(self, measure: Measure) -> None:
        started_s = time.monotonic()
        self._take_severed(measure.severed)
        group = self.group.named(f"measure {measure.number}")
        found = measured_links(group, measure.severed, betas_of(self._network()))
        seconds = time.monotonic() - started_s
        members = self.group.members
        links = tuple((members[one.src], one.alpha_s, one.beta_s_per_byte) for one in found)
        self._report(MeasuredLinks(self.epoch, measure.number, seconds, links))
        self._session.tell("measured", seconds, stood_s=seconds, detail={"number": measure.number})

    def _build(self) -> None:
        """Make contexts beside the job, in the order of the coordinator's decisions."""
        while not self._left.is_set():
            item = self._building.get()
            if isinstance(item, Contexts):
                # These contexts are unused; freeing them here keeps the delay off the job.
                item.close()
                continue
            install = item if isinstance(item, Install) else item[0]
            if install.epoch != self.epoch:
                continue
            started_s, group = time.monotonic(), self.group
            try:
                if isinstance(item, Install):
                    self._make(item, group.named(f"version {install.version}"))
                else:
                    late = group.named(f"version {install.version}, late")
                    item[1].prepare_beside(late, unpacked(install.parts))
            except (CcctlError, OSError):
                # The epoch is over or a rank has no room; the contexts' user closes them.
                continue
            self._built(install, started_s, late=isinstance(install, InstallLate))

    def _make(self, install: Install, group: Group) -> None:
        """Make contexts of all ranks for new schedules; close them on failure."""
        schedules = {**self._contexts.version.schedules, **install.schedules}
        places = [self._first.index(rank) for rank in group.members]
        contexts = Contexts(group, Version(install.version, schedules), places)
        try:
            contexts.take(unpacked(install.parts))
            for request in contexts.version.schedules:
                contexts.prepare(request, range(contexts.group.Get_size()), first=True)
        except (CcctlError, OSError):
            contexts.close()
            raise
        self._ready[install.version] = contexts

    def _built(self, install: Install | InstallLate, started_s: float, *, late: bool) -> None:
        detail = {"version": install.version, "late": late}
        self._session.tell("built", time.monotonic() - started_s, detail=detail)
        self._report(Installed(install.epoch, install.version, late))

    def _report(self, message: Any) -> None:
        self._session.send(self._session.coordinator, message)
