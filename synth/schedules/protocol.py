"""What every kind of schedule answers, so that nobody else needs to know which kind it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, ClassVar, Protocol

if TYPE_CHECKING:
    from probes.base import Floats
    from synth.collective import Collective
    from synth.network import Network
    from synth.networks import SymmetricNetwork
    from synth.schedules.schedule import Outcome, Race, Schedule, Timing

__all__ = ["RIGHT", "AnySchedule"]

# What a proof says, whatever the kind.
RIGHT = "every send is causal, every link and port exclusive, every result complete"


class AnySchedule(Protocol):
    """Who sends which chunk to whom when; a selection speaks for the largest of its sizes.

    ``kind`` is its word in ``SCHEDULE_KINDS``, ``noun`` what a sentence calls it. ``is_listed``: its table
    has all sends.
    """

    kind: ClassVar[str]
    noun: ClassVar[str]
    is_listed: ClassVar[bool]

    @property
    def network(self) -> Network | SymmetricNetwork:
        """What it runs on."""

    def listed_network(self) -> Network:
        """Return what it runs on, with all links; raises UsageError if they are too many to list."""

    @property
    def collective(self) -> Collective:
        """What the sends of its table do."""

    @property
    def whole(self) -> Collective:
        """What all its sends do."""

    @property
    def chunk_bytes(self) -> int:
        """The bytes of a chunk."""

    @property
    def method(self) -> str:
        """Who made it."""

    @property
    def seed(self) -> int:
        """What drove the draws of the method."""

    @property
    def sends(self) -> int:
        """How many sends there are, listed and not."""

    @property
    def busy_s(self) -> Floats:
        """For how long each link is held in all; of a symmetric one a link, then a port of each orbit."""

    @property
    def outcome(self) -> Outcome | None:
        """Its time and the proven bounds on it; None where nobody has timed it."""

    @property
    def race(self) -> Race | None:
        """The measurement by which it was chosen; None where there was none."""

    @property
    def facts(self) -> Mapping[str, float]:
        """What only its kind has: how often sends are repeated, for one."""

    def remark(self, seconds: Callable[[float], str]) -> str:
        """Return how its table stands for all sends; "" where it lists them. ``seconds`` writes a time."""

    @property
    def proof(self) -> str:
        """What is proven of it where the judge finds nothing."""

    def problems(self) -> list[str]:
        """Return every inconsistency, as ``path: what is wrong``."""

    def of_size(self, size_bytes: int) -> AnySchedule:
        """Return the same for a buffer of ``size_bytes``, rounded up; without an outcome."""

    def expanded(self) -> Schedule:
        """Return the table of all sends; O(all sends)."""

    def simulated(self, replay: Callable[[Schedule], Timing]) -> Timing:
        """Its time, and when each send of its table starts, by what ``replay`` says of tables."""
