"""The certificate artifact: the verdict on a cluster, and all that it rests on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from exec.benchmark import Integrity
from probes.base import not_finite
from synth.collective import Kind

__all__ = ["Certificate", "Culprit", "FaultCost", "Spares", "Stage", "Sureness", "Verdict", "WholeRow"]

Verdict = Literal["accepted", "accepted with remarks", "refused", "undecided"]
Sureness = Literal["certain", "likely", "possible"]


@dataclass(frozen=True)
class FaultCost:
    """The cost of one culprit: a collective's time now, and its time if this part were sound.

    ``with_s`` is the time of ``algorithm``: a method of ccctl ("forest"), or "" for the best of the simple
    published algorithms. ``library`` names the library that has the algorithm, "" for ccctl. With
    ``measured``, ``with_s`` was measured; otherwise the model predicts both times.
    """

    collective: Kind
    size_bytes: int
    with_s: float
    without_s: float
    algorithm: str = ""
    library: str = ""
    measured: bool = False

    @property
    def times(self) -> float:
        """The factor by which the culprit slows the collective down."""
        return self.with_s / self.without_s if self.without_s else 1.0


@dataclass(frozen=True)
class Culprit:
    """One part that is not as it should be.

    ``kind`` is a fixed word for the type of problem. ``part`` names the part ("gpu017 mlx5_2"), and ``hosts``
    the hosts that it belongs to. A culprit of severity "fault" makes the verdict "refused", a "remark" does
    not. ``text`` is one sentence with the measured and the normal value. ``evidence`` lists the measurements
    behind it, and ``remedy`` says what to do. ``cost`` is the cost for ccctl's schedule, ``library_cost`` the
    cost for the library of the ranks.
    """

    kind: str
    part: str
    hosts: tuple[str, ...]
    severity: Literal["fault", "remark"]
    text: str
    evidence: tuple[str, ...] = ()
    sure: Sureness = "certain"
    remedy: str = ""
    cost: FaultCost | None = None
    library_cost: FaultCost | None = None


@dataclass(frozen=True)
class WholeRow:
    """A collective on all ranks by one library ("ccctl", "mpi", "gloo", "nccl"), with its lower bounds.

    ``algbw_gbs`` and ``busbw_gbs`` are the bandwidths in GB/s as nccl-tests defines them. ``bound_s`` is the
    lower bound on the measured network, ``bought_bound_s`` the lower bound on the network as bought. Either
    is None if unknown. ``wrong`` is the number of wrong elements, None if the results were not checked.
    """

    collective: Kind
    size_bytes: int
    library: str
    time_s: float
    bound_s: float | None = None
    bought_bound_s: float | None = None
    wrong: int | None = None
    algbw_gbs: float = 0.0
    busbw_gbs: float = 0.0


@dataclass(frozen=True)
class Spares:
    """The best hosts to leave out, and the time of a collective on the ``kept`` remaining hosts.

    ``sound_s`` is the time if all kept hosts were sound.
    """

    kept: int
    left_out: tuple[str, ...]
    collective: Kind
    size_bytes: int
    time_s: float
    sound_s: float

    @property
    def percent(self) -> float:
        """The rate of the kept hosts as a percentage of their rate if all of them were sound."""
        return 100 * self.sound_s / self.time_s if self.time_s else 0.0


@dataclass(frozen=True)
class Stage:
    """One stage of the acceptance, the seconds that it took, and what it left out and why."""

    name: Literal["hosts", "links", "whole"]
    seconds: float
    done: bool
    left_out: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """The name shown to people: "collectives" for the stage "whole"."""
        return "collectives" if self.name == "whole" else self.name


@dataclass(frozen=True)
class Certificate:
    """The verdict on a cluster.

    ``reason`` is the verdict in one sentence. ``tested`` are the hosts that took part, ``skipped`` maps the
    others to the reason. ``spec`` and ``plan`` are the terms as they were given, ``spares_asked`` the number
    of hosts that may be left out. Costs are times of ``collective`` with ``size_bytes`` bytes. ``culprits``
    are ordered, the worst first. ``files`` maps each file that the verdict was computed from to its SHA-256.
    ``integrity`` says whether two runs on the same inputs give the same results, and which ranks or links
    corrupt data.
    ``serials`` maps machines and GPUs ("gpu017", "gpu017 GPU 3") to their serial numbers or UUIDs.
    ``versions`` maps names of software to their versions. ``seal`` is the SHA-256 of this certificate without
    the seal itself.
    """

    verdict: Verdict
    reason: str
    ranks: int
    tested: tuple[str, ...]
    skipped: dict[str, str] = field(default_factory=dict)
    spec: str = ""
    plan: str = ""
    collective: Kind = "all_reduce"
    size_bytes: int = 1 << 30
    spares_asked: int = 0
    culprits: tuple[Culprit, ...] = ()
    whole: tuple[WholeRow, ...] = ()
    spares: tuple[Spares, ...] = ()
    stages: tuple[Stage, ...] = ()
    unread: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    started: str = ""
    seal: str = ""
    integrity: Integrity | None = None
    serials: dict[str, str] = field(default_factory=dict)

    def problems(self) -> Iterator[str]:
        """Yield each number that is not finite or exceeds 63 bits, as ``path: what is wrong``."""
        for at, culprit in enumerate(self.culprits):
            yield from not_finite(culprit, f"culprits[{at}]")
        for at, row in enumerate(self.whole):
            yield from not_finite(row, f"whole[{at}]")
        for at, spares in enumerate(self.spares):
            yield from not_finite(spares, f"spares[{at}]")
        for at, stage in enumerate(self.stages):
            yield from not_finite(stage, f"stages[{at}]")
