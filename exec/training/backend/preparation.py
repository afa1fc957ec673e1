"""Preparation of plans while a job runs: gloo runs a collective until all ranks have its plan.

Each rank makes plans on a separate thread, in the order in which the job first needs them. Once all ranks
have a plan, they agree on the number of the first collective that uses it. A rank that may be about to run
this collective waits for the answers of the other ranks. The wait is milliseconds, because the threads that
answer never wait for a collective.
"""

from __future__ import annotations

import collections
import itertools
import logging
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass

from exec.adaptive import CollectiveCall
from exec.sockets import Group
from exec.training.backend.autotune import Autotuner
from exec.training.backend.background import Background
from exec.training.backend.group_rendezvous import Shutdown
from exec.training.backend.known_schedules import KnownSchedules
from exec.training.backend.planned_collectives import PlannedCollectives, Prepared
from probes.base import LostRankError, UnavailableError
from synth.network import Network

__all__ = ["Preparation"]

_log = logging.getLogger(__name__)

_GIVEN_UP = "plan given up"
# Limit of the wait in `close` for the thread, which ends once its connections are closed.
_CLOSING_S = 5.0
# A plan is requested at this many equal calls. After so many, further calls are likely, and the plan is worth
# seconds of CPU time.
_CALLS = 3
# All counts are dropped when there are more than this many different calls, as in jobs whose sizes change all
# the time.
_MOST_COUNTED = 1000
_announced: list[bool] = []


class Preparation:
    """The plans of one rank of a group; ``meet`` connects the ranks when the first plan is needed.

    ``ready`` must be called for each collective, in order, on one thread. With ``at_once``, ``ready`` waits
    for the plan instead of going on without one. ``given``, ``budget_s`` and ``known`` are passed to
    `PlannedCollectives` and its search.
    """

    def __init__(
        self,
        meet: Callable[[], Group],
        given: Network | None,
        budget_s: float,
        known: KnownSchedules,
        *,
        at_once: bool,
    ) -> None:
        self._meet, self._given, self._known, self._at_once = meet, given, known, at_once
        self._background = Background(budget_s)
        self._asked: queue.SimpleQueue[CollectiveCall | None] = queue.SimpleQueue()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        # The number of the next collective; the first collective that must wait for an agreement, if any.
        self._next = 0
        self._held: int | None = None
        self._waiting = False
        self._calls: collections.Counter[CollectiveCall] = collections.Counter()
        self._wanted: set[CollectiveCall] = set()
        self._agreed: collections.deque[_Agreed] = collections.deque()
        self._refused: dict[CollectiveCall, str] = {}
        self._failed = ""
        self._closed = False
        self._group: Group | None = None
        self.plans: PlannedCollectives | None = None
        self.autotuner: Autotuner | None = None
        self.shutdown: Shutdown | None = None

    def ready(self, request: CollectiveCall) -> bool:
        """Return whether the next collective uses a plan; the same on all ranks.

        With ``at_once`` raises UnavailableError if there can be no plan.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._held is None or self._next < self._held)
            self._use_agreed()
            if not self.has(request):
                if len(self._calls) > _MOST_COUNTED:
                    self._calls.clear()
                self._calls[request] += 1
                if self._at_once or self._calls[request] == _CALLS:
                    self._want(request)
                if self._at_once:
                    self._wait_for(request)
            self._next += 1
            return self.has(request)

    def revoke(self, why: str) -> None:
        """Make all operations under way raise an error."""
        if self._group is not None:
            self._group.revoke(why)

    def close(self, leave: Callable[[Shutdown], None]) -> None:
        """Free everything; ``leave`` is called before the connections are closed."""
        self._closed = True
        self._background.close()
        self._asked.put(None)
        self.revoke("the process group is closed")
        if self.shutdown is not None:
            leave(self.shutdown)
        if self._group is not None:
            self._group.mesh.close()
        if self._thread is not None:
            self._thread.join(_CLOSING_S)
        for agreed in self._agreed:
            agreed.prepared.plan.abandon()
        if self.plans is not None:
            self.plans.close()

    def has(self, request: CollectiveCall) -> bool:
        return self.plans is not None and self.plans.has(request)

    def _want(self, request: CollectiveCall) -> None:
        """Request a plan, unless it is already requested."""
        if request in self._wanted:
            return
        self._wanted.add(request)
        self._asked.put(request)
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="ccctl plans", daemon=True)
            self._thread.start()

    def _wait_for(self, request: CollectiveCall) -> None:
        self._waiting = True
        self._changed.wait_for(lambda: self._failed or request in self._refused or self._agreed)
        self._waiting = False
        self._use_agreed()
        if not self.has(request):
            raise UnavailableError(self._failed or self._refused[request])

    def _use_agreed(self) -> None:
        """Start using the plans whose agreed number is reached."""
        while self._agreed and self._agreed[0].number <= self._next:
            agreed = self._agreed.popleft()
            assert self.plans is not None
            self._wanted.discard(agreed.request)
            self.plans.keep(agreed.request, agreed.prepared)
            del self._calls[agreed.request]

    def _serve(self) -> None:
        """Connect, then make one plan after the other; runs on the thread."""
        try:
            self._begin()
        except Exception as error:  # Any error: gloo goes on, and waiting calls raise.
            if self._group is not None:
                self._group.mesh.close()
            self._say(f"no plans, gloo carries out all collectives: {error}", error)
            with self._changed:
                self._failed = str(error)
                self._changed.notify_all()
            return
        for number in itertools.count():
            request = self._asked.get()
            if request is None:
                return
            self._prepare(request, number)

    def _begin(self) -> None:
        self._group = group = self._meet()
        if group.Get_rank() == 0 and not _announced:
            _announced.append(True)
            waiting = "the first ones wait" if self._at_once else "gloo carries them out until then"
            _log.warning(
                "ccctl measures links and plans large collectives, for some seconds, or for a minute where "
                "loops have to be compiled: %s",
                waiting,
            )
        self.shutdown = Shutdown(group)
        group.mesh.subscribe(_GIVEN_UP, lambda peer, name: group.mesh.revoke(name, f"rank {peer} gave up"))
        plans = PlannedCollectives(group, self._given, self._background.search, self._known)
        self.autotuner = Autotuner(group.named("trials"))
        self.plans = plans

    def _prepare(self, request: CollectiveCall, number: int) -> None:
        """Make a plan with the others, and agree on the first collective that uses it."""
        assert self._group is not None and self.plans is not None
        mesh, group = self._group.mesh, self._group.named(f"plan {number}")
        prepared = None
        try:
            if mesh.host[mesh.rank] == mesh.rank:
                self._background.compile_for(request.dtype)
            prepared = self.plans.make(request, group)
            with self._changed:
                self._held = self._next if self._waiting else self._next + 1
            agreed = _Agreed(max(group.allgather(self._held)), request, prepared)
        except Exception as error:  # Any error: gloo goes on, and waiting calls raise.
            if prepared is not None:
                prepared.plan.abandon()
            for member in group.members:
                mesh.send(member, _GIVEN_UP, f"{group.epoch}/plan {number}/")
            self._say(f"no plan for {request}, gloo carries it out: {error}", error)
            with self._changed:
                self._refused[request] = str(error)
                self._release()
        else:
            with self._changed:
                self._agreed.append(agreed)
                self._release()

    def _release(self) -> None:
        self._held = None
        self._changed.notify_all()

    def _say(self, message: str, error: Exception) -> None:
        """Warn of an error of this rank; another rank reports its own errors."""
        if not self._closed:
            level = logging.DEBUG if isinstance(error, LostRankError) else logging.WARNING
            _log.log(level, "ccctl: %s", message)


@dataclass(frozen=True, eq=False)
class _Agreed:
    """A plan that is used from collective ``number`` on."""

    number: int
    request: CollectiveCall
    prepared: Prepared
