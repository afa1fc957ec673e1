"""Raw samples: what the ranks timed."""

from __future__ import annotations

from dataclasses import dataclass, field

from probes.columns import Floats, floats
from probes.sampling.packet_trains import Trains
from probes.sampling.rounds import Pair

__all__ = ["Place", "Samples"]


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

    ``again`` holds the trains of links that were measured once more with nobody else sending.
    """

    round_trips_s: dict[Pair, list[float]] = field(default_factory=dict)
    trains: dict[Pair, Trains] = field(default_factory=dict)
    again: dict[Pair, Trains] = field(default_factory=dict)

    def add(self, other: Samples) -> None:
        for pair, values in other.round_trips_s.items():
            self.round_trips_s.setdefault(pair, []).extend(values)
        for mine, theirs in ((self.trains, other.trains), (self.again, other.again)):
            for pair, found in theirs.items():
                mine.setdefault(pair, Trains()).add(found)

    def round_trips_of(self, pair: Pair) -> Floats:
        """The round trips of a link, whichever end timed them."""
        return floats(self.round_trips_s.get(pair, []) + self.round_trips_s.get((pair[1], pair[0]), []))

    def measured(self) -> list[Pair]:
        """The links of which both alpha and beta were timed, in order."""
        return [pair for pair in sorted(self.trains) if len(self.round_trips_of(pair))]
