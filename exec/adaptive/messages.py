"""What the ranks of an adaptive session say to each other; ranks are numbered as at its start.

Workers tell the coordinator that they are ready, how far they are and that they live; the coordinator sends
all of them the same decisions in the same order, and each carries them out one after the other.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from exec.adaptive.links_now import LinkNow
from exec.sockets import Whereabouts
from synth.collective import Kind
from synth.network import Network
from synth.schedules import Schedule

__all__ = [
    "ADMIT",
    "JOINABLE",
    "REDUCING",
    "SERVED",
    "Beat",
    "CollectiveCall",
    "Decision",
    "Go",
    "Install",
    "InstallLate",
    "Installed",
    "Join",
    "Leave",
    "Measure",
    "MeasuredLinks",
    "Meet",
    "Outdated",
    "PartDone",
    "Ready",
    "ReconnectionAttempt",
    "Regroup",
    "Resume",
    "Reveal",
    "Stalled",
    "Swap",
    "Welcome",
    "WorkerState",
    "leader_of",
]


# The collectives of a session.
SERVED: tuple[Kind, ...] = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce")
_WHOLE = ("all_reduce", "broadcast", "reduce")
REDUCING = ("all_reduce", "reduce_scatter", "reduce")
# What goes on without late ranks. A broadcast has the data of one rank alone, and waits for every rank.
_PARTIAL = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "reduce")
# Chunks of late ranks may join the first part of these.
JOINABLE = ("all_reduce",)


@dataclass(frozen=True)
class CollectiveCall:
    """One collective that is asked for: what all ranks must agree on.

    ``count`` is the elements of a block (``exec.program.layout.Layout``): of a rank's buffer, of its share of
    an all_gather or reduce_scatter, of what one rank has for another in an all_to_all. ``root`` is 0 where
    the kind has none.
    """

    kind: Kind
    op: str
    dtype: str
    count: int
    item_bytes: int
    root: int = 0

    @property
    def block_bytes(self) -> int:
        return self.count * self.item_bytes

    @property
    def admits(self) -> bool:
        """Whether it is no collective but the moment at which ranks that wait to join are let in."""
        return not self.count

    @property
    def rooted(self) -> bool:
        """Whether it can only be done while its root lives."""
        return self.kind in ("broadcast", "reduce", "gather", "scatter")

    @property
    def alike(self) -> bool:
        """Whether all ranks end with the same, so that one can give its result to another."""
        return self.kind in ("all_reduce", "all_gather", "broadcast")

    @property
    def partial(self) -> bool:
        """Whether it may go on without late ranks, whose data follows in parts of their own."""
        return self.kind in _PARTIAL and not self.admits

    @property
    def joinable(self) -> bool:
        """Whether chunks of late ranks may join its first part."""
        return self.kind in JOINABLE

    def size_bytes(self, ranks: int) -> int:
        """The larger of a rank's two buffers where ``ranks`` take part."""
        return (1 if self.kind in _WHOLE else ranks) * self.block_bytes


# All give nothing, and get the ranks that are let in.
ADMIT = CollectiveCall("all_gather", "sum", "int64", 0, 8)


def leader_of(members: Collection[int], joined: Mapping[int, int]) -> int:
    """The member that decides: the lowest of those who are there longest.

    ``joined`` are the requests by which members were let in that were not there from the start.
    """
    return min(members, key=lambda rank: (joined.get(rank, -1), rank))


@dataclass(frozen=True)
class Beat:
    """A worker lives."""


@dataclass(frozen=True)
class Ready:
    """A worker has data for request number ``seq`` of the session."""

    seq: int
    request: CollectiveCall


@dataclass(frozen=True)
class PartDone:
    """A worker has carried out part ``number`` of a request, in ``seconds``; ``last``: it has the result."""

    epoch: int
    seq: int
    number: int
    last: bool
    seconds: float


@dataclass(frozen=True)
class WorkerState:
    """Where a worker stands when an epoch begins.

    It has the results of all requests before ``done``, the last few of which it keeps; of request ``done``
    it has carried out ``parts``; ``ready`` are those it has data for. ``open_to`` are late ranks chunks of
    which may be in the first of these parts. ``done`` is -1 on a rank that joins, until it has been told
    where it goes on.
    """

    epoch: int
    done: int
    parts: tuple[tuple[int, ...], ...]
    ready: Mapping[int, CollectiveCall]
    open_to: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Installed:
    """A worker has made contexts for a version of the schedules, beside the work.

    First those that all ranks' data needs; ``late``: those for late ranks, too.
    """

    epoch: int
    version: int
    late: bool = False


@dataclass(frozen=True)
class Stalled:
    """A worker waits for data from or to ``peer``, and nothing passes between the two."""

    epoch: int
    peer: int


@dataclass(frozen=True)
class Outdated:
    """A worker has been told to begin an epoch that is no later than its own, ``epoch``."""

    epoch: int


@dataclass(frozen=True)
class Join:
    """A rank that was started again asks to be let in; ``met`` are the ranks that it reaches, by start."""

    start: int
    met: Mapping[int, int]


@dataclass(frozen=True)
class Meet:
    """To a rank that asks to be let in: connect to these first."""

    others: tuple[Whereabouts, ...]


@dataclass(frozen=True)
class ReconnectionAttempt:
    """A worker has tried to reach the other host of a severed pair by a new connection."""

    pair: tuple[int, int]
    reached: bool


@dataclass(frozen=True, eq=False)
class MeasuredLinks:
    """What the links into a worker carried now: (source, alpha in s, beta in s/byte) each.

    Beta is infinite where nothing came. The job stood still for ``seconds``.
    """

    epoch: int
    number: int
    seconds: float
    links: tuple[tuple[int, float, float], ...]


@dataclass(frozen=True)
class Decision:
    """What the coordinator decides; one of an earlier epoch is void."""

    epoch: int


@dataclass(frozen=True)
class Go(Decision):
    """Carry out the data of ``part`` for a request; the others are relays. ``last``: then it is whole."""

    seq: int
    request: CollectiveCall
    part: tuple[int, ...]
    number: int
    last: bool


@dataclass(frozen=True)
class Regroup(Decision):
    """A new epoch begins with ``members``; say where you stand.

    ``severed`` are pairs of hosts, by their lowest ranks, between which nothing passes. ``joined`` are the
    members that were let in later, and by which request; ``starts`` how often members and lost ranks were
    started before, where they were. ``joining`` have not yet been told where they go on. ``links`` are those
    of spares that have joined, as they were measured first. ``network`` is what the coordinator takes the
    links for: where a rank was lost while they were measured at the start, others may know less or more.
    """

    members: tuple[int, ...]
    lost: Mapping[int, str]
    severed: tuple[tuple[int, int], ...] = ()
    joined: Mapping[int, int] = field(default_factory=dict)
    starts: Mapping[int, int] = field(default_factory=dict)
    joining: tuple[int, ...] = ()
    links: tuple[LinkNow, ...] = ()
    network: Network | None = None


@dataclass(frozen=True)
class Resume(Decision):
    """Go on at request ``seq``, whose first ``kept`` parts are whole on all.

    ``holders`` names, for each request before it that some lack, a worker that has its result.
    """

    seq: int
    kept: int
    holders: Mapping[int, int]


@dataclass(frozen=True, eq=False)
class Install(Decision):
    """Make contexts for ``schedules``, by request, beside the work; ``parts`` are packed."""

    version: int
    schedules: Mapping[CollectiveCall, Schedule]
    parts: bytes


@dataclass(frozen=True, eq=False)
class InstallLate(Decision):
    """Make the contexts of ``version`` for late ranks beside the work; ``parts`` are packed."""

    version: int
    parts: bytes


@dataclass(frozen=True)
class Swap(Decision):
    """From now on the contexts of ``version`` are used."""

    version: int


@dataclass(frozen=True)
class Reveal(Decision):
    """From now on the contexts for late ranks of ``version`` are used, as far as it is the one in use."""

    version: int


@dataclass(frozen=True)
class Measure(Decision):
    """Measure the links now, those between hosts of ``severed`` pairs left out."""

    number: int
    severed: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, eq=False)
class Welcome(Decision):
    """To a rank that joins: what the others have agreed on so far.

    ``network`` is what the links can carry, guessed for those of the ranks ``guessed``, ``requests`` were set
    up in this order, and links are measured every so many requests.
    """

    network: Network
    guessed: frozenset[int]
    requests: tuple[CollectiveCall, ...]
    profile_every: int


@dataclass(frozen=True)
class Leave(Decision):
    """The session ends."""
