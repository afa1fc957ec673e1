"""Raw samples that the ranks timed."""

from __future__ import annotations

from dataclasses import dataclass, field

from probes.base import Floats, floats
from probes.sampling.packet_trains import Trains
from probes.sampling.rounds import Pair

__all__ = ["Place", "Samples"]

# If a rank waits for a core for more than this share of a measurement, message times may be waiting times.
# Ranks that share no core wait for a few hundredths of the time. A round trip shorter than a scheduler's
# slice did not wait.
_PREEMPTED, _SHORTEST_SLICE_S = 0.2, 100e-6


@dataclass(frozen=True)
class Place:
    """The host of a rank, the number of cores that the ranks there may use, and its device.

    ``nic`` is the NIC through which the rank's data leaves its host ("" if unknown). ``nic_kind`` holds the
    common properties of NICs that are declared equal.
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
    """Raw measurements: round trips by (first, second), trains by (src, dst).

    ``again`` holds the trains of links measured again without other traffic. ``waited`` has for (rank, peer)
    the share of each round-trip measurement in which the rank was ready but had no core. The same shares of
    the measurements of trains are in ``sender_waited`` and ``receiver_waited``, by link.
    """

    round_trips_s: dict[Pair, list[float]] = field(default_factory=dict)
    trains: dict[Pair, Trains] = field(default_factory=dict)
    again: dict[Pair, Trains] = field(default_factory=dict)
    waited: dict[Pair, list[float]] = field(default_factory=dict)
    sender_waited: dict[Pair, list[float]] = field(default_factory=dict)
    receiver_waited: dict[Pair, list[float]] = field(default_factory=dict)

    def add(self, other: Samples) -> None:
        for lists, more in (
            (self.round_trips_s, other.round_trips_s),
            (self.waited, other.waited),
            (self.sender_waited, other.sender_waited),
            (self.receiver_waited, other.receiver_waited),
        ):
            for pair, values in more.items():
                lists.setdefault(pair, []).extend(values)
        for mine, theirs in ((self.trains, other.trains), (self.again, other.again)):
            for pair, found in theirs.items():
                mine.setdefault(pair, Trains()).add(found)

    def round_trips_of(self, pair: Pair) -> Floats:
        """Return the round trips of a link, whichever end timed them."""
        return floats(self.round_trips_s.get(pair, []) + self.round_trips_s.get((pair[1], pair[0]), []))

    def preempted(self, pair: Pair) -> bool:
        """Return whether every round trip may include a wait of an end for a core."""
        looks = list(zip(self.waited.get(pair, []), self.waited.get((pair[1], pair[0]), []), strict=False))
        waited = bool(looks) and min(map(max, looks)) > _PREEMPTED
        return waited and float(self.round_trips_of(pair).min()) > _SHORTEST_SLICE_S

    def starved(self, pair: Pair) -> bool:
        """Return whether an end waited for a core during every measurement of the link's trains."""
        looks = zip(self.sender_waited.get(pair, []), self.receiver_waited.get(pair, []), strict=False)
        return min(map(max, looks), default=0.0) > _PREEMPTED

    def measured(self) -> list[Pair]:
        """Return the links with both alpha and beta measured, in order."""
        return [pair for pair in sorted(self.trains) if len(self.round_trips_of(pair))]
