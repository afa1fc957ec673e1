"""An adaptive session: collectives called thousands of times while links, workers and ranks change (AdapCC).

Each rank has one session. The caller's thread asks for collectives; a thread of the session carries out what
the coordinator decides, also for ranks whose caller is late: they relay. Schedules are made anew beside the
job from what the links carry now, and all ranks change to them between the same two requests. Ranks that were
lost and started again are let in where the callers say.
"""

from __future__ import annotations

import contextlib
import logging
import math
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from exec.adaptive.backend import Backend, Work
from exec.adaptive.coordinator import Seen, WaitPolicy
from exec.adaptive.direction import Direction
from exec.adaptive.links_now import LinkNow, guessed_network, measured_network, with_spares
from exec.adaptive.messages import (
    REDUCING,
    SERVED,
    Beat,
    CollectiveCall,
    Decision,
    Join,
    Meet,
    ReconnectionAttempt,
    Regroup,
    leader_of,
)
from exec.program import Array, dtype_name, dtype_of, ufunc_of
from exec.sockets import Group
from probes.base import CcctlError, LostRankError, UsageError
from synth.collective import Kind
from synth.network import Network
from synth.schedules import Schedule

__all__ = ["Admission", "Session", "SessionEvent"]

_log = logging.getLogger(__name__)

TOPIC = "session"
_BEAT_S = 0.1
# How often the ends of a severed pair try to reach each other.
_TRY_S = 0.5
# How often a rank asks to be let in, and for how long it may know of none that it could ask.
_ASK_S, _ALONE_S = 0.5, 10.0
_LOOK_S = 0.02


@dataclass(frozen=True)
class SessionEvent:
    """What a session did besides its collectives: "measured", "planned", "swapped", "lost", "resumed" …

    ``at_s`` counts from the start of the session; ``seconds`` is how long it took, ``stood_s`` for how long
    of that the job stood still.
    """

    what: str
    at_s: float
    seconds: float = 0.0
    stood_s: float = 0.0
    detail: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Admission:
    """What a request that lets ranks in has come to, the same on every rank.

    ``members`` take part from request ``next_seq`` on, ``joined`` of them are new.
    """

    next_seq: int
    members: tuple[int, ...]
    joined: tuple[int, ...]

    @property
    def source(self) -> int:
        """The lowest rank that was there before, of which those that are new can have what they lack."""
        return min(set(self.members) - set(self.joined))


@dataclass(frozen=True)
class _Gone:
    """A start of a rank has ended."""

    how: str
    start: int


class Session:
    """Collectives on the ranks of ``group``; making it and ``setup`` are collective, and so are its methods.

    ``network`` is what a profile says the links can carry (ranks as in the group); without one they are
    measured. ``policy`` says how long ranks wait for each other, ``replan_s`` how long a synthesis beside
    the job may take, ``fence`` ends the process of a rank that is counted as lost, so that it cannot come
    back. Raises LostRankError where ranks are lost and too few are left.

    On a rank that is started later (`launch` with ``rejoin`` or ``spare``) it is made once the others have
    called ``admit``, for which it waits ``join_s`` at most, else LostRankError. What was set up then is known
    to it.
    """

    def __init__(
        self,
        group: Group,
        network: Network | None = None,
        *,
        policy: WaitPolicy | None = None,
        replan_s: float = 5.0,
        fence: Callable[[int], None] = lambda rank: None,
        join_s: float = 600.0,
    ) -> None:
        self._started_s = time.monotonic()
        self.events: list[SessionEvent] = []
        self._mesh, self._first = group.mesh, group
        self.rank = group.mesh.rank
        self.policy, self.replan_s, self.fence = policy or WaitPolicy(), replan_s, fence
        joins = group.mesh.start > 0
        self.slots = tuple(dict.fromkeys((*group.members, *group.mesh.spares)))
        self.guessed: frozenset[int] = frozenset()
        if not joins:
            self.capability = self._measured(network)
        self._direction: Direction | None = None
        self._gone: set[tuple[int, int]] = set()
        self._meets: queue.SimpleQueue[Meet] = queue.SimpleQueue()
        self._backend = Backend(self, group, None if joins else self.capability)
        self._closed = threading.Event()
        self._inbox: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
        self._mesh.subscribe(TOPIC, self._hear)
        self._mesh.on_stalled(self._backend.stalled)
        self._mesh.on_lost(self._lost)
        if not joins:
            for rank, how in tuple(self._mesh.lost.items()):
                if rank in group.members:
                    self._lost(rank, how, self._mesh.starts[rank])
            # Where a rank is lost already, the others go on as where it is lost later.
            with contextlib.suppress(LostRankError):
                group.Barrier()
        self._threads = [
            threading.Thread(target=run, name=f"session {run.__name__}", daemon=True)
            for run in (self._beat, self._direct, self._try_severed)
        ]
        for thread in self._threads:
            thread.start()
        self._own_admission = self._join(join_s) if joins else None

    @property
    def size(self) -> int:
        """How many ranks there were at the start, and spares."""
        return len(self.slots)

    @property
    def members(self) -> tuple[int, ...]:
        """The ranks that take part, numbered as at the start."""
        return self._backend.members

    @property
    def epoch(self) -> int:
        """How often ranks were lost, or hosts no longer reached each other."""
        return self._backend.epoch

    @property
    def lost(self) -> dict[int, str]:
        """The ranks that were lost, and how."""
        return dict(self._backend.lost)

    @property
    def severed(self) -> tuple[tuple[int, int], ...]:
        """Pairs of hosts, by their lowest ranks, that live and between which nothing passes."""
        return self._backend.severed

    @property
    def seen(self) -> Sequence[Seen]:
        """On the coordinator: what was decided for each request so far."""
        return tuple(self._direction.coordinator.seen) if self._direction else ()

    @property
    def joined_late(self) -> Sequence[tuple[int, int]]:
        """(request, bytes) of this rank's data that joined a part under way for which it was late."""
        return tuple(self._backend.joined_late)

    @property
    def schedules(self) -> Mapping[CollectiveCall, Schedule]:
        """The schedules in use, by request."""
        return self._backend.version.schedules

    def schedule_of(self, request: CollectiveCall) -> Schedule:
        """The schedule in use for ``request``, made on the spot where this rank has not set it up yet."""
        return self._backend.schedule_of(request)

    @property
    def version(self) -> int:
        """The number of the schedules in use: 0 for the first of an epoch, else what they were built as."""
        return self._backend.version.number

    @property
    def profile_every(self) -> int:
        """After how many requests the links are measured; 0 for never."""
        return self._backend.profile_every

    @property
    def coordinator(self) -> int:
        """The rank that decides: the lowest of those that live and are there longest."""
        return leader_of(self.members, self.joined)

    @property
    def joined(self) -> Mapping[int, int]:
        """The members that were started again, and the number of the request by which each was let in."""
        return self._backend.joined

    @property
    def starts(self) -> Mapping[int, int]:
        """How often ranks had been started before they were let in, where they were."""
        return self._backend.starts

    @property
    def joining(self) -> tuple[int, ...]:
        """The members that have not been told yet where they go on."""
        return self._backend.joining

    @property
    def base(self) -> Network:
        """What the links can carry, as it was known, or guessed, at the start."""
        assert self._backend.base is not None, "asked before this rank was let in"
        return self._backend.base

    @property
    def first_links(self) -> tuple[LinkNow, ...]:
        """What the links of spares carried when they were first measured, as of the last epoch."""
        return self._backend.links

    @property
    def requests(self) -> tuple[CollectiveCall, ...]:
        """What was set up, in this order on every rank."""
        return self._backend.requests

    @property
    def next_seq(self) -> int:
        """The number of the next request that this rank asks for; calls of ``admit`` count."""
        return self._backend.next_seq

    def setup(
        self,
        count: int,
        dtype: str = "float32",
        op: str = "sum",
        kind: Kind = "all_reduce",
        root: int | None = None,
    ) -> None:
        """Make buffers, a schedule and the contexts of a collective before they are needed; collective.

        It waits for what this rank has asked for. A rank that is lost meanwhile is left out as in a request.
        ``count`` is as in MPI: elements of a rank's buffer, for an all_gather and a reduce_scatter of its
        share, for an all_to_all of what it has for one other. ``op`` matters where something is reduced,
        ``root`` for a broadcast and a reduce. Of an all_reduce contexts are made for all ranks, for each rank
        that may be late alone, and of small requests for each pair; others when they occur.
        """
        self._backend.setup(self._request(kind, count, dtype, op, root))

    def ask(self, kind: Kind, data: Array, op: str = "sum", root: int | None = None) -> Work:
        """Ask for a collective by its name, with ``data`` as the method of this name has it.

        ``data`` is flat and stays as it is until the work is done. A lost rank keeps its place in it, but
        has none in results: those have a block for each of ``work.members``, in this order.
        """
        if data.ndim != 1 or not data.flags.c_contiguous:
            raise UsageError(f"data: expected a flat, contiguous array, found shape {data.shape}")
        blocks = self.size if kind in ("reduce_scatter", "all_to_all") else 1
        if data.size % blocks:
            raise UsageError(f"data: expected {blocks} blocks, one a rank, found {data.size} elements")
        dtype = dtype_name(data.dtype)
        return self._backend.ask(self._request(kind, data.size // blocks, dtype, op, root), data)

    def all_reduce(self, data: Array, op: str = "sum") -> Work:
        """Reduce ``data`` over all members."""
        return self.ask("all_reduce", data, op)

    def all_gather(self, data: Array) -> Work:
        """The ``data`` of all members, one after the other."""
        return self.ask("all_gather", data)

    def reduce_scatter(self, data: Array, op: str = "sum") -> Work:
        """Reduce ``data``, a block for each rank of the start; each member ends with its own block."""
        return self.ask("reduce_scatter", data, op)

    def all_to_all(self, data: Array) -> Work:
        """Send each member its block of ``data``, which has one for each rank of the start."""
        return self.ask("all_to_all", data)

    def broadcast(self, data: Array, root: int) -> Work:
        """The ``data`` of rank ``root`` on all; of the others only its size and type count.

        Its work raises LostRankError, on every rank, where the root is lost before all have its data.
        """
        return self.ask("broadcast", data, root=root)

    def reduce(self, data: Array, root: int, op: str = "sum") -> Work:
        """Reduce ``data`` to rank ``root``; the others end with an empty array.

        Its work raises LostRankError, on every rank, where the root is lost before it has the result.
        """
        return self.ask("reduce", data, op, root)

    def admit(self) -> Admission:
        """Let in the ranks that were started again and wait; collective, with no request under way.

        Where none waits it costs a message to the coordinator and back. On a rank that joined the first call
        returns at once what it was let in by, so that its loop may be that of the others. All go on with
        first schedules; better ones follow, as after a loss. Raises UsageError where requests are under way.
        """
        own, self._own_admission = self._own_admission, None
        if own is not None:
            return own
        work = self._backend.admit()
        return _admission_of(work, None)

    def profile(self, every: int) -> None:
        """Measure the links every so many requests, 0 for never, and replan; the same on every rank."""
        self._backend.profile_every = every

    def survivors(self, name: str) -> Group:
        """The group of the members that live, for calls of the caller's own that bear this name."""
        return self._backend.group.named(name)

    def close(self) -> None:
        """End the session; collective over the members that live. Its works must be done."""
        self._backend.leave()
        self._closed.set()
        if self._direction is not None:
            self._direction.close()
        for thread in self._threads:
            thread.join(2)
        self._mesh.subscribe(TOPIC, lambda rank, message: None)

    def tell(
        self, what: str, seconds: float = 0.0, stood_s: float = 0.0, detail: dict[str, Any] | None = None
    ) -> None:
        """Note an event."""
        self.events.append(
            SessionEvent(what, time.monotonic() - self._started_s, seconds, stood_s, detail or {})
        )

    def send(self, rank: int, message: object) -> None:
        """Say something to one rank of the session."""
        self._mesh.send(rank, TOPIC, message)

    def _join(self, limit_s: float) -> Admission:
        """Ask the others again and again to be let in, having connected to all whom they name."""
        started_s, asked_s, alone_since_s = time.monotonic(), -_ASK_S, math.inf
        while self._backend.admission.empty():
            now_s, met = time.monotonic(), self._mesh.met
            alone_since_s = math.inf if met else min(now_s, alone_since_s)
            if now_s - alone_since_s > _ALONE_S:
                raise LostRankError(f"rank {self.rank} was started later, and finds no rank to join")
            if now_s - started_s > limit_s:
                raise LostRankError(
                    f"rank {self.rank} was started later, and not let in within {limit_s:g} s",
                    hint="The other ranks let it in where they call admit().",
                )
            if now_s - asked_s > _ASK_S:
                asked_s = now_s
                for rank in met:
                    self.send(rank, Join(self._mesh.start, met))
            with contextlib.suppress(queue.Empty):
                others = self._meets.get(timeout=_LOOK_S).others
                self._mesh.meet(others)
        left_s = limit_s - (time.monotonic() - started_s)
        try:
            admission = _admission_of(self._backend.admission.get(), max(_ALONE_S, left_s))
        except TimeoutError as error:
            raise LostRankError(f"rank {self.rank} was started later, and not let in: {error}") from error
        self._mesh.admitted()
        return admission

    def _measured(self, network: Network | None) -> Network:
        """What the links can carry: as given, or as they are now."""
        measured_s = time.monotonic()
        if network is None:
            network = self._measured_now()
            what = "guessed" if network is None else "measured"
            network = guessed_network(self._first) if network is None else network
            self.tell(what, time.monotonic() - measured_s, detail={"used": "now"})
        if network.ranks == self.size:
            return network
        ranks = self._first.Get_size()
        if network.ranks != ranks:
            raise UsageError(f"the network is for {network.ranks} ranks, the session has {ranks}")
        self.guessed = frozenset(self.slots[ranks:])
        return with_spares(network, self._names_of_spares(network))

    def _measured_now(self) -> Network | None:
        """What the links carry now; None where a rank is lost meanwhile.

        Then this rank may have none and another one have it: all take the coordinator's with the epoch that
        begins without the lost rank.
        """
        group = self._first.among(self._first.members, "first links")

        def give_up(rank: int, how: str, _start: int = 0) -> None:
            if rank in group.members:
                group.revoke(f"rank {rank} {how}")

        self._mesh.on_lost(give_up)
        for rank, how in tuple(self._mesh.lost.items()):
            give_up(rank, how)
        try:
            return measured_network(group)
        except LostRankError:
            return None
        finally:
            group.close()

    def _names_of_spares(self, network: Network) -> list[str]:
        """The host of each spare, named as the network does, or so that it has no other one's name."""
        host, names = self._mesh.host, dict[int, str]()
        for rank, name in zip(self._first.members, network.hosts, strict=True):
            names.setdefault(host[rank], name)
        for rank in self.slots[network.ranks :]:
            called = self._mesh.names[rank]
            names.setdefault(host[rank], f"host {host[rank]}" if called in names.values() else called)
        return [names[host[rank]] for rank in self.slots[network.ranks :]]

    def _lost(self, rank: int, how: str, start: int) -> None:
        """On any thread of the mesh: a rank is lost."""
        self._gone.add((rank, start))
        self._inbox.put((rank, _Gone(how, start)))

    def _request(self, kind: Kind, count: int, dtype: str, op: str, root: int | None) -> CollectiveCall:
        if kind not in SERVED:
            raise UsageError(f"kind: expected one of {', '.join(SERVED)}, found {kind!r}")
        ufunc_of(op)
        if count < 1:
            raise UsageError(f"count: expected at least 1 element, found {count}")
        size = dtype_of(dtype).itemsize
        asked = CollectiveCall(kind, op if kind in REDUCING else "sum", dtype, count, size, root or 0)
        if asked.rooted and root not in self.slots:
            raise UsageError(f"root: expected one of {self.slots}, found {root}")
        if not asked.rooted and root is not None:
            raise UsageError(f"root: {kind} has none, found {root}")
        return asked

    def _hear(self, rank: int, message: Any) -> None:
        """On the mesh's thread: sort what comes."""
        if isinstance(message, Decision):
            if isinstance(message, Regroup):
                self._backend.break_off(message)
            self._backend.decisions.put(message)
        elif isinstance(message, Meet):
            self._meets.put(message)
        else:
            self._inbox.put((rank, message))

    def _beat(self) -> None:
        while not self._closed.wait(_BEAT_S):
            if self.members and self.coordinator != self.rank:
                self.send(self.coordinator, Beat())

    def _try_severed(self) -> None:
        """Where this host is one end of a severed pair: see whether the other can be reached again."""
        while not self._closed.wait(_TRY_S):
            for pair in self.severed:
                here, there = (
                    [rank for rank in self.members if self._mesh.host[rank] == host] for host in pair
                )
                if here and there and self.rank == here[0]:
                    self.send(self.coordinator, ReconnectionAttempt(pair, self._mesh.reaches(there[0])))

    def _direct(self) -> None:
        """Coordinate while this is the lowest rank that lives; else only see whether it has become so."""
        while not self._closed.is_set():
            wait_s = 0.05 if self._direction is None else self._direction.wait_s
            with contextlib.suppress(queue.Empty):
                rank, message = self._inbox.get(timeout=wait_s)
                self._take(rank, message)
                continue
            if self._direction is not None:
                self._guarded(self._direction.tick)

    def _take(self, rank: int, message: Any) -> None:
        if self._direction is None:
            # A rank that is lost may have been started again meanwhile, and is no member then.
            starts, members = self.starts, self.members
            gone = {one for one in members if (one, starts.get(one, 0)) in self._gone}
            if not members or self.rank != leader_of({*members} - gone or {self.rank}, self.joined):
                return
            self._direction = Direction(self, self._first, members, self.epoch)
            self._guarded(self._direction.lose, {one: self._mesh.lost.get(one, "is gone") for one in gone})
        if isinstance(message, _Gone):
            self._guarded(self._direction.lose, {rank: message.how}, message.start)
        else:
            self._guarded(self._direction.hear, rank, message)

    def _guarded(self, act: Callable[..., None], *given: Any) -> None:
        """What the coordinator cannot go on from ends every work with the reason."""
        try:
            act(*given)
        except Exception as error:
            if not isinstance(error, CcctlError):
                _log.exception("the coordinator of the session failed")
            self._backend.fail(error)


def _admission_of(work: Work, timeout_s: float | None) -> Admission:
    joined = tuple(work.wait(timeout_s).tolist())
    return Admission(work.seq + 1, work.members, joined)
