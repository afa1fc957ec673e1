"""Messages between the ranks of an adaptive session; ranks are numbered as at its start.

Workers send the coordinator their readiness, progress and heartbeats. The coordinator sends all workers the
same decisions in the same order, and each worker carries them out one after the other.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from exec.adaptive.links_now import KnownLinks
from exec.sockets import Whereabouts
from synth.collective import ROOTED, Kind
from synth.schedules import Schedule

__all__ = [
    "ADMIT",
    "JOINABLE",
    "SERVED",
    "Beat",
    "CollectiveCall",
    "Decision",
    "Go",
    "Install",
    "Installed",
    "Join",
    "Leave",
    "Measure",
    "MeasuredLinks",
    "Meet",
    "Membership",
    "Outdated",
    "PartDone",
    "Ready",
    "ReconnectionAttempt",
    "Regroup",
    "Resume",
    "Stalled",
    "Swap",
    "WorkerState",
    "leader_of",
]


# Collectives that a session offers.
SERVED: tuple[Kind, ...] = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce")
# Collectives in which a block is a whole buffer. In the others, the larger buffer has a block for each rank.
_WHOLE = ("all_reduce", "broadcast", "reduce")
# Collectives that go on without late ranks, whose data then follows in a later part. A broadcast has the data
# of one rank alone, so nothing could follow later; it waits for all ranks.
_PARTIAL = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "reduce")
# Collectives in which chunks of late ranks may still join the first part.
JOINABLE = ("all_reduce",)


@dataclass(frozen=True)
class CollectiveCall:
    """One requested collective; all ranks must agree on it.

    ``count`` is the elements of a block (``exec.program.layout.Layout``): a rank's buffer, its share of an
    all_gather or reduce_scatter, or its data for one other rank in an all_to_all. ``root`` is 0 for kinds
    without one. ``blocks`` are the elements of each rank's block if they differ; ``count`` is the largest.
    """

    kind: Kind
    op: str
    dtype: str
    count: int
    item_bytes: int
    root: int = 0
    blocks: tuple[int, ...] = ()

    @property
    def block_bytes(self) -> int:
        return self.count * self.item_bytes

    @property
    def admits(self) -> bool:
        """Whether this is the special request that lets waiting ranks in."""
        return not self.count

    @property
    def rooted(self) -> bool:
        """Whether the request needs its root alive."""
        return self.kind in ROOTED

    @property
    def alike(self) -> bool:
        """Whether all ranks end with the same result, so that one rank can give it to another."""
        return self.kind in ("all_reduce", "all_gather", "broadcast")

    @property
    def partial(self) -> bool:
        """Whether the request may go on without late ranks, whose data follows in later parts."""
        return self.kind in _PARTIAL and not self.admits

    @property
    def joinable(self) -> bool:
        """Whether chunks of late ranks may join the first part of the request."""
        return self.kind in JOINABLE

    def size_bytes(self, ranks: int) -> int:
        """Return the size of the larger of a rank's two buffers, for ``ranks`` ranks."""
        if self.blocks:
            return sum(self.blocks) * self.item_bytes
        return (1 if self.kind in _WHOLE else ranks) * self.block_bytes


# The request for admissions. It carries no data; its result is the ranks that are let in.
ADMIT = CollectiveCall("all_gather", "sum", "int64", 0, 8)


def leader_of(members: Collection[int], joined: Mapping[int, int]) -> int:
    """Return the member that decides: the lowest rank among the longest-standing members.

    ``joined`` maps members that were let in later to the requests that let them in.
    """
    return min(members, key=lambda rank: (joined.get(rank, -1), rank))


@dataclass(frozen=True)
class Membership:
    """The ranks of an epoch.

    ``lost`` says how ranks were lost. ``severed`` are pairs of hosts, by their lowest ranks, between which
    nothing passes. ``joined`` maps members that were let in later to the request that let them in. ``starts``
    counts the earlier starts of ranks that were started again. ``joining`` are the members that do not yet
    know their first request.
    """

    members: tuple[int, ...]
    epoch: int = 0
    lost: Mapping[int, str] = field(default_factory=dict)
    severed: tuple[tuple[int, int], ...] = ()
    joined: Mapping[int, int] = field(default_factory=dict)
    starts: Mapping[int, int] = field(default_factory=dict)
    joining: tuple[int, ...] = ()

    @property
    def leader(self) -> int:
        """The member that decides."""
        return leader_of(self.members, self.joined)

    def without(self, lost: Mapping[int, str]) -> Membership:
        """Return the membership after the loss of the members ``lost``."""
        return replace(
            self,
            members=tuple(rank for rank in self.members if rank not in lost),
            lost={**self.lost, **lost},
            joined={rank: seq for rank, seq in self.joined.items() if rank not in lost},
            joining=tuple(rank for rank in self.joining if rank not in lost),
        )

    def with_joining(self, starts: Mapping[int, int], seq: int) -> Membership:
        """Return the membership after request ``seq`` has let in the ranks of ``starts``."""
        return replace(
            self,
            members=tuple(sorted((*self.members, *starts))),
            lost={rank: how for rank, how in self.lost.items() if rank not in starts},
            joined={**self.joined, **dict.fromkeys(starts, seq)},
            starts={**self.starts, **starts},
            joining=tuple(sorted((*self.joining, *starts))),
        )


@dataclass(frozen=True)
class Beat:
    """Heartbeat of a worker."""


@dataclass(frozen=True)
class Ready:
    """Report that a worker has data for request number ``seq`` of the session."""

    seq: int
    request: CollectiveCall


@dataclass(frozen=True)
class PartDone:
    """Report of part ``number`` of a request, carried out in ``seconds``; ``last``: the result is ready."""

    epoch: int
    seq: int
    number: int
    last: bool
    seconds: float


@dataclass(frozen=True)
class WorkerState:
    """Report of a worker's state when an epoch begins.

    The worker has finished all requests before ``done``, and still holds the last few results. It has carried
    out ``parts`` of request ``done``, and has data for the requests in ``ready``. ``open_to`` are late ranks
    whose chunks may be in the first of these parts. ``done`` is -1 on a joining rank that does not yet know
    its first request.
    """

    epoch: int
    done: int
    parts: tuple[tuple[int, ...], ...]
    ready: Mapping[int, CollectiveCall]
    open_to: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Installed:
    """Report that a worker has made the contexts of a version of the schedules while the job ran.

    A version has two sets of contexts: one for requests for which all ranks are ready in time, and one for
    requests with late ranks. ``late`` tells that the second set was made.
    """

    epoch: int
    version: int
    late: bool = False


@dataclass(frozen=True)
class Stalled:
    """Report that a worker waits for data from or to ``peer``, and nothing passes between the two."""

    epoch: int
    peer: int


@dataclass(frozen=True)
class Outdated:
    """Report that a worker received a `Regroup` for an epoch no later than its own, ``epoch``."""

    epoch: int


@dataclass(frozen=True)
class Join:
    """Request of a restarted rank for admission.

    ``start`` counts the rank's earlier starts. ``met`` has the same count of each rank to which it is
    connected.
    """

    start: int
    met: Mapping[int, int]


@dataclass(frozen=True)
class Meet:
    """Order to a rank that requests admission: connect to these ranks first."""

    others: tuple[Whereabouts, ...]


@dataclass(frozen=True)
class ReconnectionAttempt:
    """Result of an attempt to reach the other host of a severed pair by a new connection."""

    pair: tuple[int, int]
    reached: bool


@dataclass(frozen=True, eq=False)
class MeasuredLinks:
    """Current costs of the links into a worker: (source, alpha in s, beta in s/byte) each.

    Beta is infinite for a link that delivered nothing. The job stood still for ``seconds``.
    """

    epoch: int
    number: int
    seconds: float
    links: tuple[tuple[int, float, float], ...]


@dataclass(frozen=True)
class Decision:
    """A decision of the coordinator; void if it is of an earlier epoch."""

    epoch: int


@dataclass(frozen=True)
class Go(Decision):
    """Order to run part ``number`` of a request, with the data of the ranks ``part``.

    The other ranks only relay. The request is complete after the part with ``last``.
    """

    seq: int
    request: CollectiveCall
    part: tuple[int, ...]
    number: int
    last: bool


@dataclass(frozen=True, eq=False)
class Regroup(Decision):
    """Start of an epoch with ``membership``; each member reports its state.

    ``links`` are the links as the coordinator knows them: if a rank was lost while they were first measured,
    others may know them differently. A rank that joins also needs the ``requests`` that were set up, in this
    order, and ``profile_every``, the number of requests between measurements.
    """

    membership: Membership
    links: KnownLinks | None = None
    requests: tuple[CollectiveCall, ...] = ()
    profile_every: int = 0


@dataclass(frozen=True)
class Resume(Decision):
    """Order to go on at request ``seq``, whose first ``kept`` parts are complete on all ranks.

    ``holders`` names a worker with the result of each earlier request that some ranks lack.
    """

    seq: int
    kept: int
    holders: Mapping[int, int]


@dataclass(frozen=True, eq=False)
class Install(Decision):
    """Order to make contexts of a version of the schedules while the job runs; ``late`` as in `Installed`.

    ``parts`` are the compiled parts, packed. Without ``late`` the version is new, and ``schedules`` maps
    requests to their new schedules. With ``late`` the version exists, and ``schedules`` is empty.
    """

    version: int
    parts: bytes
    schedules: Mapping[CollectiveCall, Schedule] = field(default_factory=dict)
    late: bool = False


@dataclass(frozen=True)
class Swap(Decision):
    """Order to use contexts of ``version`` from now on; ``late`` as in `Installed`.

    With ``late``, the order is void if another version is in use.
    """

    version: int
    late: bool = False


@dataclass(frozen=True)
class Measure(Decision):
    """Order to measure the links now, except between hosts of ``severed`` pairs."""

    number: int
    severed: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Leave(Decision):
    """End of the session."""
