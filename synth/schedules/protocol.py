"""The interface of all kinds of schedules, so that callers need not know the kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

if TYPE_CHECKING:
    from probes.base import Floats
    from synth.collective import Collective
    from synth.network import Network
    from synth.networks import SymmetricNetwork
    from synth.schedules.schedule import Outcome, Race, Schedule, Timing

__all__ = ["RIGHT", "AnySchedule", "Obligation", "Workload"]

# The statement that a proof makes of a schedule of any kind.
RIGHT = "every rank has what it sends, no two sends hold a link or port at once, every result is complete"


@dataclass(frozen=True, eq=False)
class Obligation:
    """A proof obligation: a table of sends that must be right if the schedule is to be right.

    ``timing`` holds the times that it claims, if any. With ``period_s``, all its sends repeat every
    ``period_s`` seconds with other chunks, any number of times. If ``most_chunk_bytes`` is given, the table
    must be right for every chunk size from ``table.chunk_bytes`` to ``most_chunk_bytes``. Findings begin with
    ``place``.
    """

    table: Schedule
    timing: Timing | None = None
    period_s: float | None = None
    most_chunk_bytes: int | None = None
    place: str = ""


@dataclass(frozen=True)
class Workload:
    """The collective and the chunk size from which the bounds on a schedule's time follow.

    With ``fluid``, the chunk size is free: only the total bytes count.
    """

    collective: Collective
    chunk_bytes: int
    fluid: bool


class AnySchedule(Protocol):
    """A schedule of any kind; a selection has the values of its schedule for the largest size.

    ``kind`` is its key in ``SCHEDULE_KINDS``, ``noun`` its name in sentences. ``is_listed``: its table has
    all sends. ``is_sized``: it is for one size.
    """

    kind: ClassVar[str]
    noun: ClassVar[str]
    is_listed: ClassVar[bool]
    is_sized: ClassVar[bool]

    @property
    def network(self) -> Network | SymmetricNetwork:
        """The network it runs on."""

    def listed_network(self) -> Network:
        """Return the network with all its links; raises UsageError if they are too many to list."""

    @property
    def collective(self) -> Collective:
        """The collective that the sends of its table do."""

    @property
    def whole(self) -> Collective:
        """The collective that all its sends perform, listed in the table or not."""

    @property
    def chunk_bytes(self) -> int:
        """The bytes of a chunk."""

    @property
    def method(self) -> str:
        """The name of the method that made it."""

    @property
    def seed(self) -> int:
        """The seed of the method's random numbers."""

    @property
    def sends(self) -> int:
        """The number of all sends, listed or not."""

    @property
    def busy_s(self) -> Floats:
        """Seconds each link is held; if symmetric, one entry for each orbit of links, then of ports."""

    @property
    def outcome(self) -> Outcome | None:
        """Its time and the proven bounds on it; None if it was not timed."""

    @property
    def race(self) -> Race | None:
        """The measurement by which it was chosen; None where there was none."""

    @property
    def facts(self) -> Mapping[str, float]:
        """Numbers that only this kind of schedule has, such as the number of periods."""

    def remark(self, seconds: Callable[[float], str]) -> str:
        """Return in words how its table implies all sends; "" if listed. ``seconds`` formats a time."""

    @property
    def proof(self) -> str:
        """The statement that is proven if the checker finds nothing."""

    def obligations(self, timing: Timing | None = None) -> Sequence[Obligation]:
        """Return the tables that prove the schedule if they are right and it has no ``problems``.

        ``timing`` is the claimed timing of ``excerpt``, used if the schedule states no times itself.
        """

    @property
    def workload(self) -> Workload:
        """The work from which the bounds on its time follow."""

    def problems(self) -> list[str]:
        """Return every inconsistency, as ``path: what is wrong``."""

    def of_size(self, size_bytes: int) -> AnySchedule:
        """Return the same schedule for a buffer of ``size_bytes``, rounded up; without an outcome."""

    def expanded(self) -> Schedule:
        """Return the table of all sends; O(all sends)."""

    @property
    def excerpt(self) -> Schedule | None:
        """The sends whose replay gives the times of all sends; None if too many to replay."""

    def timing(self, excerpt: Timing | None) -> Timing:
        """Return its time, and start and arrival of each send of its table, from the replayed excerpt."""
