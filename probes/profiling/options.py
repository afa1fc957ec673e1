"""Options of a profile: the links to measure, and the effort."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from probes.live import DeviceChoice
from probes.profiling.budget import RoundPlan, Turns
from probes.profiling.instances import Instances
from probes.sampling import Dose, Place, WantedPairs, doubling_strides, resolve, rings, strides
from probes.topology import Topology

__all__ = ["PASSES", "Effort"]

# The minimum of all passes shows what a link can do, so one undisturbed pass is enough.
PASSES = 5
# Seconds of ping-pong and of trains on each link of a wave.
_QUICK_DOSE, _DOSE = Dose(0.01, 0.02), Dose(0.03, 0.04)


@dataclass(frozen=True)
class Effort:
    """The links to measure, and the effort.

    - ``quick``: fewer passes, and only strides 1, 2, 4, …
    - ``pairs``: the only links to measure. ``turns``: the rounds to measure, in their order.
    - ``sizes``: bytes of messages. ``budget_s``: seconds for everything.
    - ``ports``: whether to test which links share a port. With None it is tested if links disturb each other
      or hosts have several ranks.
    - ``device``: whether ranks are GPUs; "auto" uses GPUs if there are any.
    - ``wait_s``: seconds to wait for another measurement on the same hosts.
    - ``alone``: measure one link at a time.
    - ``topology``, ``topology_name``: a topology and its name. With it, rounds are over hosts, and links that
      it declares equal are measured by samples.
    """

    quick: bool = False
    pairs: WantedPairs | None = None
    sizes: tuple[int, ...] = ()
    budget_s: float | None = None
    ports: bool | None = None
    device: DeviceChoice = "auto"
    wait_s: float = 0.0
    alone: bool = False
    turns: Turns | None = None
    topology: Topology | None = None
    topology_name: str = ""

    @property
    def enough_s(self) -> float:
        """Seconds after which no pass beyond the second begins: slow links take long and vary little."""
        return 1.0 if self.quick else 3.0

    @property
    def dose(self) -> Dose:
        """The time at each link."""
        return replace(_QUICK_DOSE if self.quick else _DOSE, sizes=self.sizes)

    def fast_links_s(self, ranks: int) -> float:
        """Return the seconds that all links take if every rank is on a separate host and links are fast.

        Every stride takes two passes of two rounds each, because a rank does not send and receive in the same
        round. A latency is measured once for both ways.
        """
        chosen = doubling_strides(ranks) if self.quick else strides(ranks)
        met = len({min(stride, ranks - stride) for stride in chosen})
        return 4 * (met * self.dose.pingpong_s + len(chosen) * self.dose.trains_s)

    def plan(self, places: Sequence[Place]) -> RoundPlan:
        ranks = len(places)
        if self.pairs is not None:
            rounds = resolve(self.pairs, places)
        elif self.topology is not None:
            rounds = Instances(places).rounds(quick=self.quick)
        else:
            # If ``turns`` has no link between present ranks, measure all present ranks, so that new ranks can
            # be reported.
            rounds = self.turns.rounds(places) if self.turns is not None else []
            rounds = rounds or rings(ranks, doubling_strides(ranks) if self.quick else strides(ranks))
        return RoundPlan(tuple(map(tuple, rounds)), 2 if self.quick else PASSES, self.dose)
