"""What a user asks of a profile: how long to look, and at what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from probes.live import DeviceChoice
from probes.profiling.budget import RoundPlan, Turns
from probes.profiling.instances import Instances
from probes.sampling import Dose, Place, WantedPairs, doubling_strides, resolve, rings, strides
from probes.topology import Topology

__all__ = ["PASSES", "Effort"]

PASSES = 5
_QUICK_DOSE, _DOSE = Dose(0.01, 0.02), Dose(0.03, 0.04)


@dataclass(frozen=True)
class Effort:
    """How long to look, and at what: ``quick`` is fewer passes and strides 1, 2, 4, …

    ``pairs`` names the only links to measure, ``sizes`` the bytes of messages, ``budget_s`` the seconds for
    everything; ``ports`` says whether shared ports are tried (None: where it is cheap); ``device`` whether
    ranks are GPUs ("auto": where there are any); ``wait_s`` how long another measurement on the same hosts is
    waited for; ``alone`` measures one link at a time; ``turns`` are the rounds to measure, in their order.
    With a ``topology``, called ``topology_name``, rounds are over hosts, and what it declares alike is
    measured by samples.
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
        """After two passes, none begins later than this: slow links take long and vary little."""
        return 1.0 if self.quick else 3.0

    def plan(self, places: Sequence[Place]) -> RoundPlan:
        dose = replace(_QUICK_DOSE if self.quick else _DOSE, sizes=self.sizes)
        ranks = len(places)
        if self.pairs is not None:
            rounds = resolve(self.pairs, places)
        elif self.topology is not None:
            rounds = Instances(places).rounds(quick=self.quick)
        else:
            # Where none of the ranks in turn is there, others are: who they are has to be told.
            rounds = self.turns.rounds(places) if self.turns is not None else []
            rounds = rounds or rings(ranks, doubling_strides(ranks) if self.quick else strides(ranks))
        return RoundPlan(tuple(map(tuple, rounds)), 2 if self.quick else PASSES, dose)
