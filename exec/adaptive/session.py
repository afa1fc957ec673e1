"""An adaptive session: collectives called thousands of times while links, workers and ranks change (AdapCC).

Each rank has one session. The caller's thread requests collectives; a thread of the session carries out the
coordinator's decisions, even when the caller is late: the rank then relays. New schedules for the current
links are made beside the job, and all ranks change to them between the same two requests. Ranks that were
lost and started again are let in when the callers call ``admit``.
"""

from __future__ import annotations

import contextlib
import logging
import math
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from exec.adaptive.backend import Backend, Work
from exec.adaptive.coordinator import RequestHistory, WaitPolicy
from exec.adaptive.direction import Direction
from exec.adaptive.links_now import KnownLinks, guessed_network, measured_network, with_spares
from exec.adaptive.messages import (
    SERVED,
    Beat,
    CollectiveCall,
    Decision,
    Join,
    Meet,
    Membership,
    ReconnectionAttempt,
    Regroup,
    leader_of,
)
from exec.adaptive.session_state import TOPIC, SessionState
from exec.program import Array, dtype_name, dtype_of, ufunc_of
from exec.sockets import Group
from exec.stragglers import CYCLE_S
from probes.base import CcctlError, LostRankError, UsageError
from synth.collective import REDUCING, Kind
from synth.network import Network
from synth.schedules import Schedule

__all__ = ["Admission", "Session"]

_log = logging.getLogger(__name__)

# Interval of heartbeats: a tenth of WaitPolicy.silent_s, so that a few late ones are no loss of a rank.
_BEAT_S = 0.1
# Interval at which the ends of a severed pair try to reach each other.
_TRY_S = 0.5
# Interval between a rank's requests for admission, and how long it may be without any rank to send them to.
_ASK_S, _ALONE_S = 0.5, 10.0
# Longest wait for orders of the coordinator, before the limits are checked again.
_LOOK_S = 0.02


@dataclass(frozen=True)
class Admission:
    """The result of a request that lets ranks in, the same on every rank.

    ``members`` take part from request ``next_seq`` on; those in ``joined`` are new.
    """

    next_seq: int
    members: tuple[int, ...]
    joined: tuple[int, ...]

    @property
    def source(self) -> int:
        """The lowest rank that was a member before; new ranks can copy their missing state from it."""
        return min(set(self.members) - set(self.joined))


@dataclass(frozen=True)
class _Gone:
    """The loss of a rank: how it was lost, and the number of its earlier starts."""

    how: str
    start: int


class Session:
    """Collectives on the ranks of ``group``; the constructor, ``setup`` and the collectives are collective.

    ``network`` is the capability of the links, from a profile with the group's ranks; without it the links
    are measured. ``policy`` sets how long ranks wait for each other. ``replan_s`` limits a synthesis beside
    the job. ``fence`` ends the process of a lost rank, so that it cannot come back. Raises LostRankError if
    too few ranks are left.

    On a rank that is started later (`launch` with ``rejoin`` or ``spare``) the constructor waits until the
    others call ``admit``, and raises LostRankError after ``join_s``. The rank then knows all requests that
    the others have set up.
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
        self._state = state = SessionState(group, policy or WaitPolicy(), replan_s)
        self._mesh, self._fence = group.mesh, fence
        # Ranks are numbered as at the start; ``size`` counts them all, with spares.
        self.rank, self.size, self.events = state.rank, len(state.slots), state.events
        joins = group.mesh.start > 0
        if not joins:
            state.links = self._measured(network)
        self._direction: Direction | None = None
        self._gone: set[tuple[int, int]] = set()
        self._meets: queue.SimpleQueue[Meet] = queue.SimpleQueue()
        self._backend = Backend(state)
        self._closed = threading.Event()
        self._inbox: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
        self._mesh.subscribe(TOPIC, self._hear)
        self._mesh.stalled = self._backend.stalled
        self._mesh.on_lost(self._lost)
        if not joins:
            for rank, how in tuple(self._mesh.lost.items()):
                if rank in group.members:
                    self._lost(rank, how, self._mesh.known[rank].start)
            # If a rank is already lost, the others go on as after a later loss.
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
    def membership(self) -> Membership:
        """The members, numbered as at the start, with the ranks that were lost or have joined."""
        return self._state.membership

    @property
    def members(self) -> tuple[int, ...]:
        """The ranks that take part."""
        return self.membership.members

    @property
    def epoch(self) -> int:
        """The number of regroupings: after losses, after admissions, and around severed hosts."""
        return self.membership.epoch

    @property
    def lost(self) -> Mapping[int, str]:
        """The ranks that were lost, and how."""
        return self.membership.lost

    @property
    def severed(self) -> tuple[tuple[int, int], ...]:
        """Pairs of live hosts, by their lowest ranks, between which nothing passes."""
        return self.membership.severed

    @property
    def coordinator(self) -> int:
        """The rank that decides: the lowest among the longest-standing live members."""
        return self.membership.leader

    @property
    def seen(self) -> Sequence[RequestHistory]:
        """The decisions for each request so far; empty on ranks other than the coordinator."""
        return tuple(self._direction.coordinator.seen) if self._direction else ()

    @property
    def joined_late(self) -> Sequence[tuple[int, int]]:
        """(request, bytes) of this rank's data that joined a running part although it was late."""
        return tuple(self._backend.joined_late)

    @property
    def schedules(self) -> Mapping[CollectiveCall, Schedule]:
        """The schedules in use, by request."""
        return self._state.version.schedules

    @property
    def version(self) -> int:
        """The number of the schedules in use; 0 for the first ones of an epoch."""
        return self._state.version.number

    @property
    def links(self) -> KnownLinks:
        """The capability of the links, as all members know it since the last regrouping."""
        assert self._state.links is not None, "asked before this rank was let in"
        return self._state.links

    @property
    def next_seq(self) -> int:
        """The number of this rank's next request; calls of ``admit`` count."""
        return self._backend.next_seq

    def setup(
        self,
        count: int,
        dtype: str = "float32",
        op: str = "sum",
        kind: Kind = "all_reduce",
        root: int | None = None,
    ) -> None:
        """Make the buffers, schedule and contexts of a collective in advance; collective.

        Waits for this rank's earlier requests. A rank that is lost meanwhile is left out as in a request.
        ``count`` is as in MPI: elements of a rank's buffer, of its share for an all_gather or reduce_scatter,
        of its data for one other rank for an all_to_all. ``op`` matters for reductions, ``root`` for a
        broadcast and a reduce. A collective that can go on without late ranks has contexts for each single
        late rank, and for each pair if it is small; contexts for other sets are made when such a set occurs.
        """
        self._backend.setup(self._request(kind, count, dtype, op, root))

    def ask(self, kind: Kind, data: Array, op: str = "sum", root: int | None = None) -> Work:
        """Start a collective by name, with ``data`` as for the method of that name.

        ``data`` is flat and must not change until the work is done. A lost rank keeps its place in ``data``
        but has none in results, which have a block for each of ``work.members``, in this order.
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
        """Gather the ``data`` of all members, one after the other."""
        return self.ask("all_gather", data)

    def reduce_scatter(self, data: Array, op: str = "sum") -> Work:
        """Reduce ``data``, which has a block for each rank of the start; each member gets its own block."""
        return self.ask("reduce_scatter", data, op)

    def all_to_all(self, data: Array) -> Work:
        """Send each member its block of ``data``, which has a block for each rank of the start."""
        return self.ask("all_to_all", data)

    def broadcast(self, data: Array, root: int) -> Work:
        """Send the ``data`` of rank ``root`` to all; other ranks' ``data`` only sets size and type.

        Its work raises LostRankError on every rank if the root is lost before all have its data.
        """
        return self.ask("broadcast", data, root=root)

    def reduce(self, data: Array, root: int, op: str = "sum") -> Work:
        """Reduce ``data`` to rank ``root``; the others end with an empty array.

        Its work raises LostRankError on every rank if the root is lost before it has the result.
        """
        return self.ask("reduce", data, op, root)

    def admit(self) -> Admission:
        """Let in the ranks that were started again, and wait; collective, with no request under way.

        If no rank waits, the call costs one message to the coordinator and back. On a rank that joined, the
        first call returns its own admission at once, so that all ranks can run the same loop. All ranks go on
        with schedules that are quick to make; better schedules follow, as after a loss. Raises UsageError if
        requests are under way.
        """
        admission, self._own_admission = self._own_admission, None
        if admission is not None:
            return admission
        work = self._backend.admit()
        return _admission_of(work, None)

    def profile(self, every: int) -> None:
        """Measure the links every ``every`` requests (0: never) and replan; the same on every rank."""
        self._state.profile_every = every

    def gather(self, name: str, value: Any) -> dict[int, Any]:
        """Return the ``value`` of each member by rank, on every member; collective.

        A loss interrupts nothing, unlike in a group's calls: a rank that is lost before its value has arrived
        here is left out. Calls of one ``name`` are in the same order on all ranks.
        """
        topic, starts, found = f"gathered/{name}", self.membership.starts, dict[int, Any]()
        members = self.members
        for rank in members:
            self._mesh.send(rank, topic, value)
        for rank in members:
            with contextlib.suppress(LostRankError):
                found[rank] = self._mesh.receive(rank, topic, starts.get(rank, 0))
        return found

    def close(self) -> None:
        """End the session; collective over the live members. Its works must be done."""
        self._backend.leave()
        self._closed.set()
        if self._direction is not None:
            self._direction.close()
        for thread in self._threads:
            thread.join(2)
        self._mesh.subscribe(TOPIC, lambda rank, message: None)

    def _join(self, limit_s: float) -> Admission:
        """Request admission repeatedly, and connect to all ranks that the others name."""
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
                    self._state.send(rank, Join(self._mesh.start, met))
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

    def _measured(self, network: Network | None) -> KnownLinks:
        """Return the capability of the links: as given, or as measured now."""
        state, measured_s = self._state, time.monotonic()
        if network is None:
            network = self._measured_now()
            what = "guessed" if network is None else "measured"
            network = guessed_network(state.first) if network is None else network
            state.tell(what, time.monotonic() - measured_s, detail={"used": "now"})
        if network.ranks == self.size:
            return KnownLinks(state.slots, network)
        ranks = state.first.Get_size()
        if network.ranks != ranks:
            raise UsageError(f"the network is for {network.ranks} ranks, the session has {ranks}")
        whole = with_spares(network, self._names_of_spares(network))
        return KnownLinks(state.slots, whole, frozenset(state.slots[ranks:]))

    def _measured_now(self) -> Network | None:
        """Measure the links now; return None if a rank is lost meanwhile.

        In that case other ranks may have a result. All ranks then adopt the coordinator's result when the
        next epoch begins, without the lost rank.
        """
        group = self._state.first.among(self._state.first.members, "first links")

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
        """Return the host of each spare, named as in the network or with a name that is new in it."""
        host, names, slots = self._mesh.host, dict[int, str](), self._state.slots
        for rank, name in zip(self._state.first.members, network.hosts, strict=True):
            names.setdefault(host[rank], name)
        for rank in slots[network.ranks :]:
            called = self._mesh.known[rank].name
            names.setdefault(host[rank], f"host {host[rank]}" if called in names.values() else called)
        return [names[host[rank]] for rank in slots[network.ranks :]]

    def _lost(self, rank: int, how: str, start: int) -> None:
        """Note a lost rank; runs on any thread of the mesh."""
        self._gone.add((rank, start))
        self._inbox.put((rank, _Gone(how, start)))

    def _request(self, kind: Kind, count: int, dtype: str, op: str, root: int | None) -> CollectiveCall:
        if kind not in SERVED:
            raise UsageError(f"kind: expected one of {', '.join(SERVED)}, found {kind!r}")
        ufunc_of(op)
        if count < 1:
            raise UsageError(f"count: expected at least 1 element, found {count}")
        size = dtype_of(dtype).itemsize
        call = CollectiveCall(kind, op if kind in REDUCING else "sum", dtype, count, size, root or 0)
        if call.rooted and root not in self._state.slots:
            raise UsageError(f"root: expected one of {self._state.slots}, found {root}")
        if not call.rooted and root is not None:
            raise UsageError(f"root: {kind} has none, found {root}")
        return call

    def _hear(self, rank: int, message: Any) -> None:
        """Sort incoming messages; runs on the mesh's thread."""
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
                self._state.send(self.coordinator, Beat())

    def _try_severed(self) -> None:
        """Try to reach the other host of each severed pair that this host is in."""
        while not self._closed.wait(_TRY_S):
            for pair in self.severed:
                own_host, other_host = (
                    [rank for rank in self.members if self._mesh.host[rank] == host] for host in pair
                )
                if own_host and other_host and self.rank == own_host[0]:
                    attempt = ReconnectionAttempt(pair, self._mesh.reaches(other_host[0]))
                    self._state.send(self.coordinator, attempt)

    def _direct(self) -> None:
        """Coordinate as soon as this rank is the leader."""
        while not self._closed.is_set():
            wait_s = 0.05 if self._direction is None else CYCLE_S
            with contextlib.suppress(queue.Empty):
                rank, message = self._inbox.get(timeout=wait_s)
                self._take(rank, message)
                continue
            if self._direction is not None:
                self._guarded(self._direction.tick)

    def _take(self, rank: int, message: Any) -> None:
        if self._direction is None:
            # A member may have been lost before and started again: only the loss of its present start counts.
            now = self.membership
            lost_members = {one for one in now.members if (one, now.starts.get(one, 0)) in self._gone}
            left = {*now.members} - lost_members or {self.rank}
            if not now.members or self.rank != leader_of(left, now.joined):
                return
            self._direction = Direction(self._state, now, self._fence)
            self._guarded(
                self._direction.lose, {one: self._mesh.lost.get(one, "is gone") for one in lost_members}
            )
        if isinstance(message, _Gone):
            self._guarded(self._direction.lose, {rank: message.how}, message.start)
        else:
            self._guarded(self._direction.hear, rank, message)

    def _guarded(self, act: Callable[..., None], *given: Any) -> None:
        """Call ``act``; if it raises an error, every work fails with that error."""
        try:
            act(*given)
        except Exception as error:
            if not isinstance(error, CcctlError):
                _log.exception("the coordinator of the session failed")
            self._backend.fail(error)


def _admission_of(work: Work, timeout_s: float | None) -> Admission:
    joined = tuple(work.wait(timeout_s).tolist())
    return Admission(work.seq + 1, work.members, joined)
