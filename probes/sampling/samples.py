"""Raw samples: what the ranks timed."""

from __future__ import annotations

from dataclasses import dataclass, field

from probes.base import Floats, floats
from probes.sampling.packet_trains import Trains
from probes.sampling.rounds import Pair

__all__ = ["Place", "Samples"]

# Beyond this share of a look the time of a message may be that of getting a core: where ranks have cores of
# their own, they wait for some hundredths. No round trip shorter than a slice of a core waited for one.
_PREEMPTED, _SHORTEST_SLICE_S = 0.2, 100e-6


@dataclass(frozen=True)
class Place:
    """Where a rank is, how many cores it may run on there, and what it drives.

    ``nic`` is the NIC by which it leaves its host ("" where that is not known), ``nic_kind`` what NICs that
    are declared alike have in common.
    """

    host: str
    cores: int
    device: str = "process"
    nic: str = ""
    nic_kind: str = ""

    @property
    def on_gpu(self) -> bool:
        return self.device != "process"


@dataclass
class Samples:
    """What was timed: round trips by (first, second), trains by (src, dst).

    ``again`` holds the trains of links that were measured once more with nobody else sending. ``waited`` has
    for (rank, peer) what share of each look at their round trips the rank was ready, but had no core.
    """

    round_trips_s: dict[Pair, list[float]] = field(default_factory=dict)
    trains: dict[Pair, Trains] = field(default_factory=dict)
    again: dict[Pair, Trains] = field(default_factory=dict)
    waited: dict[Pair, list[float]] = field(default_factory=dict)

    def add(self, other: Samples) -> None:
        for lists, more in ((self.round_trips_s, other.round_trips_s), (self.waited, other.waited)):
            for pair, values in more.items():
                lists.setdefault(pair, []).extend(values)
        for mine, theirs in ((self.trains, other.trains), (self.again, other.again)):
            for pair, found in theirs.items():
                mine.setdefault(pair, Trains()).add(found)

    def round_trips_of(self, pair: Pair) -> Floats:
        """The round trips of a link, whichever end timed them."""
        return floats(self.round_trips_s.get(pair, []) + self.round_trips_s.get((pair[1], pair[0]), []))

    def preempted(self, pair: Pair) -> bool:
        """Whether an end waited for a core in every look at the latency of a link, and maybe in each trip."""
        looks = list(zip(self.waited.get(pair, []), self.waited.get((pair[1], pair[0]), []), strict=False))
        waited = bool(looks) and min(map(max, looks)) > _PREEMPTED
        return waited and float(self.round_trips_of(pair).min()) > _SHORTEST_SLICE_S

    def measured(self) -> list[Pair]:
        """The links of which both alpha and beta were timed, in order."""
        return [pair for pair in sorted(self.trains) if len(self.round_trips_of(pair))]
