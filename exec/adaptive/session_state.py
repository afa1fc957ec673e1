"""The state of a session on one rank, which all its threads share.

`Backend` alone changes the state, in the order of the coordinator's decisions; all other threads read it. A
`Regroup` begins an epoch: it replaces ``group``, ``links``, ``membership`` and, last, ``contexts``. So once
``version`` belongs to the new epoch, ``group``, ``links`` and ``membership`` do, too. A `Resume` ends the
joining of ranks. A `Measure` replaces the severed pairs, and a `Swap` replaces the contexts.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from exec.adaptive.contexts import Contexts, Version
from exec.adaptive.coordinator import WaitPolicy
from exec.adaptive.links_now import KnownLinks
from exec.adaptive.messages import CollectiveCall, Membership
from exec.adaptive.replanner import first_schedules
from exec.adaptive.severed import without_pairs
from exec.sockets import Group
from synth.network import Network
from synth.networks import restricted
from synth.schedules import Schedule

__all__ = ["TOPIC", "SessionEvent", "SessionState"]

TOPIC = "session"


@dataclass(frozen=True)
class SessionEvent:
    """An event of a session besides its collectives: "measured", "planned", "swapped", "lost", "resumed" …

    ``at_s`` counts from the start of the session. ``seconds`` is the duration, of which the job stood still
    for ``stood_s``.
    """

    what: str
    at_s: float
    seconds: float = 0.0
    stood_s: float = 0.0
    detail: dict[str, Any] = field(default_factory=dict)


class SessionState:
    """The state of a session on one rank.

    ``first`` is the group of ranks with which the session starts; spare ranks may join later. On a rank that
    is started later, there are no members and no links until the others admit it.
    """

    def __init__(self, first: Group, policy: WaitPolicy, replan_s: float) -> None:
        self.started_s, self.events = time.monotonic(), list[SessionEvent]()
        self.mesh, self.first, self.rank = first.mesh, first, first.mesh.rank
        self.policy, self.replan_s = policy, replan_s
        # Ranks of the start, then spares.
        self.slots = tuple(dict.fromkeys((*first.members, *first.mesh.spares)))
        self.membership = Membership(() if first.mesh.start else first.members)
        self.links: KnownLinks | None = None
        self.group, self.contexts = first, Contexts(first, Version(0, {}), range(first.Get_size()))
        # The requests that were set up, in the same order on every rank.
        self.requests: dict[CollectiveCall, None] = {}
        # The number of requests between measurements of the links; 0 for never.
        self.profile_every = 0

    @property
    def version(self) -> Version:
        """The schedules in use."""
        return self.contexts.version

    @property
    def network(self) -> Network:
        """The capability of the links between the members, as all of them know it."""
        assert self.links is not None, "asked before this rank was let in"
        return self.among(self.links.capability, self.membership.members)

    @property
    def connected_network(self) -> Network:
        """The network between the members without severed pairs."""
        members, severed = self.membership.members, self.membership.severed
        return without_pairs(self.network, self.mesh.host, members, severed)

    def among(self, network: Network, members: tuple[int, ...]) -> Network:
        """Return ``network``, whose ranks are ``slots``, reduced to ``members``."""
        return restricted(network, self.places(members))[0]

    def places(self, members: tuple[int, ...]) -> list[int]:
        """Return the places of ``members`` among ``slots``."""
        return [self.slots.index(rank) for rank in members]

    def schedule_of(self, request: CollectiveCall) -> Schedule:
        """Return this epoch's schedule of ``request``; make one if a loss interrupted its setup."""
        contexts = self.contexts
        found = contexts.version.schedules.get(request)
        if found is None:
            members = self.membership.members
            found = first_schedules(self.connected_network, [request], members)[request]
            contexts.add({request: found})
        return found

    def send(self, rank: int, message: object) -> None:
        self.mesh.send(rank, TOPIC, message)

    def tell(
        self, what: str, seconds: float = 0.0, stood_s: float = 0.0, detail: dict[str, Any] | None = None
    ) -> None:
        at_s = time.monotonic() - self.started_s
        self.events.append(SessionEvent(what, at_s, seconds, stood_s, detail or {}))
