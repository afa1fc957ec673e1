"""All of profiling: every rank runs ``measure_task``, rank 0 gets the profile.

First ping-pong over disjoint pairs for alpha, then message trains in the round-robin rounds of
AdapCC (Sec. IV-B) for beta, several passes over all links so that a disturbance which lasts a while
does not take every sample of one link. Links whose fit is refused or that stand out are measured
again, alone, before they are reported. Then shared ports are tried.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from probes import trains
from probes.assemble import Fits, assemble, to_retest
from probes.budget import Cost, Plan, fitted
from probes.errors import UsageError
from probes.nics import nic_shares
from probes.pairs import WantedPairs, resolve
from probes.ports import Share
from probes.prober import Dose, Prober
from probes.profile import Profile
from probes.progress import Safekeeping
from probes.rounds import Pair, Waves, doubling_strides, meetings, pairings, rings, strides, waves
from probes.samples import Place, Samples
from probes.trials import Known, Trials, attempts
from probes.trunks import trunk_shares

__all__ = ["Begun", "Effort", "measure_task", "rescued"]

_QUICK_DOSE, _DOSE = Dose(0.01, 0.02), Dose(0.03, 0.04)


@dataclass(frozen=True)
class Effort:
    """How long to look, and at what: ``quick`` is fewer passes and strides 1, 2, 4, …

    ``pairs`` names the only links to measure, ``sizes`` the bytes of messages, ``budget_s`` the
    seconds for everything; ``ports`` says whether shared ports are tried (None: where it is cheap).
    """

    quick: bool = False
    pairs: WantedPairs | None = None
    sizes: tuple[int, ...] = ()
    budget_s: float | None = None
    ports: bool | None = None

    @property
    def enough_s(self) -> float:
        """After two passes, none begins later than this: slow links take long and vary little."""
        return 1.0 if self.quick else 3.0

    def plan(self, places: Sequence[Place]) -> Plan:
        dose = replace(_QUICK_DOSE if self.quick else _DOSE, sizes=self.sizes)
        ranks = len(places)
        if self.pairs is not None:
            rounds = resolve(self.pairs, places)
        else:
            rounds = rings(ranks, doubling_strides(ranks) if self.quick else strides(ranks))
        return Plan(tuple(map(tuple, rounds)), 2 if self.quick else 5, dose)


@dataclass(frozen=True)
class Begun:
    """What a profile needs beside samples, kept in case that the run is cut short."""

    places: tuple[Place, ...]
    library: str
    links: int


def measure_task(comm: Any, effort: Effort, progress: Safekeeping) -> Profile | None:
    """The profile of the ranks of ``comm``, on rank 0; None elsewhere. Needs two ranks."""
    started_s = time.perf_counter()
    if comm.Get_size() < 2:
        raise UsageError("a profile measures links between ranks: expected at least 2 ranks, found 1")
    places: list[Place] = comm.allgather(Place(socket.gethostname(), len(os.sched_getaffinity(0))))
    plan = effort.plan(places)
    prober = Prober(comm, plan.dose, progress)
    if prober.rank == 0:
        links = len({pair for pairs in plan.rounds for pair in pairs})
        progress.partial(Begun(tuple(places), _library(), links))
    if effort.budget_s is not None:
        prober.deadline_s = started_s + effort.budget_s
    run = _Run(prober, effort, places, started_s)
    trains.warm_buffer()
    passes, samples = run.passes(plan)
    run.retest(samples, to_retest if prober.rank == 0 else None)
    shares, said = run.ports(samples)
    if prober.rank != 0:
        return None
    return assemble(
        samples,
        places,
        library=_library(),
        seconds=time.perf_counter() - started_s,
        rounds=len(plan.rounds) * passes,
        shares=shares,
        said=[*run.said(samples), *said],
    )


def rescued(values: Iterable[object], why: str) -> Profile | None:
    """What was measured before the run was cut short, from what the ranks gave away; None without a link."""
    begun: Begun | None = None
    samples = Samples()
    for value in values:
        if isinstance(value, Samples):
            samples.add(value)
        elif isinstance(value, Begun):
            begun = value
    if begun is None or not samples.measured():
        return None
    missing = begun.links - len(samples.measured())
    said = f"interrupted: {why}; {missing} of {begun.links} links not measured"
    return assemble(samples, begun.places, library=begun.library, seconds=0.0, rounds=0, said=[said])


class _Run:
    """The steps of one profile, on every rank; samples are whole on rank 0 only."""

    def __init__(self, prober: Prober, effort: Effort, places: Sequence[Place], started_s: float) -> None:
        self._prober, self._effort, self._places = prober, effort, places
        self._started_s = started_s
        self._plan: Plan | None = None
        host_of = [place.host for place in places]
        cores_of = {place.host: place.cores for place in places}
        self._cut: Waves = lambda pairs: waves(pairs, host_of, cores_of)
        self._most_retests = 2 * len(places) + 16

    def passes(self, plan: Plan) -> tuple[int, Samples]:
        """How many passes were made, and the samples of them."""
        found = Samples()
        if self._effort.budget_s is not None:
            plan = self._calibrated(plan, found)
        self._plan, prober = plan, self._prober
        prober.dose = plan.dose
        whole = len(plan.rounds) == len(self._places) - 1 and self._effort.pairs is None
        met = pairings(len(self._places)) if whole and not self._effort.quick else meetings(plan.rounds)
        alpha = [wave for pairs in met for wave in self._cut(pairs)]
        beta = [wave for pairs in plan.rounds for wave in self._cut(pairs)]
        prober.expect(plan.passes * (len(alpha) + len(beta)))
        made = 0
        for number in range(1, plan.passes + 1):
            if number > 2 and self._agreed(time.perf_counter() - self._started_s > self._effort.enough_s):
                break
            of = f"pass {number} of {plan.passes}"
            if not self._pass(alpha, beta, of, found):
                break
            made = number
        return max(made, 1), self._gathered(found)

    def retest(self, samples: Samples, choose: Any) -> None:
        """Measure links that stand out once more, one at a time, and add that to ``samples``."""
        chosen = choose(samples, self._places, self._most_retests) if choose else None
        self._prober.waits_for_all("which links to measure again")
        self._alone(self._prober.comm.bcast(chosen), samples)

    def ports(self, samples: Samples) -> tuple[list[Share], list[str]]:
        """The shared ports that trials find, and what else they tell."""
        prober = self._prober
        prober.waits_for_all("which ports to try")
        known: Known = prober.comm.bcast(self._known(samples) if prober.rank == 0 else None)
        if not self._wants_trials(known):
            return [], []
        trials = Trials(attempts(prober, known))
        shares, said = trunk_shares(known, trials)
        self._alone(self._not_yet_alone(shares, samples), samples)
        shares += nic_shares(known, trials)
        return shares, said

    def said(self, samples: Samples) -> list[str]:
        """What was left out, and why."""
        places, plan = len(self._places), self._plan
        missing = places * (places - 1) - len(samples.measured())
        if not missing and not (plan and plan.left_out):
            return []
        whys = {"a file names the pairs": self._effort.pairs, "strides 1, 2, 4, … only": self._effort.quick}
        if self._effort.budget_s is not None:
            whys = {f"budget of {self._effort.budget_s:g} s": True}
        why = next((text for text, is_so in whys.items() if is_so), "no time")
        left = [f"{missing} links not measured"] if missing else []
        return [f"left out ({why}): {', '.join([*left, *(plan.left_out if plan else ())])}"]

    def _pass(self, alpha: list[list[Pair]], beta: list[list[Pair]], of: str, found: Samples) -> bool:
        """Whether there was time for all waves."""
        for what, cut, probe in (
            ("latency", alpha, self._prober.alpha),
            ("bandwidth", beta, self._prober.beta),
        ):
            for index, wave in enumerate(cut, start=1):
                samples = probe(wave, f"{what}, {of}, wave {index} of {len(cut)}")
                if samples is None:
                    return False
                found.add(samples)
        return True

    def _calibrated(self, plan: Plan, found: Samples) -> Plan:
        """``plan`` cut to the budget, once its first round has told what a wave costs."""
        first = self._cut(plan.rounds[0])
        cost = []
        for probe, pairs in (
            (self._prober.alpha, self._cut(meetings(plan.rounds[:1])[0])),
            (self._prober.beta, first),
        ):
            began_s = time.perf_counter()
            for wave in pairs:
                found.add(probe(wave, "what a wave costs") or Samples())
            self._prober.waits_for_all("what a wave costs")
            self._prober.comm.Barrier()
            cost.append((time.perf_counter() - began_s) / len(pairs))
        left_s = self._prober.deadline_s - time.perf_counter()
        fit: Plan = self._prober.comm.bcast(fitted(plan, self._cut, Cost(*cost), left_s))
        return fit

    def _alone(self, pairs: Sequence[Pair], samples: Samples) -> None:
        found = Samples()
        self._prober.expect(2 * len(pairs))
        for index, pair in enumerate(pairs, start=1):
            step = f"again, alone, {index} of {len(pairs)}"
            found.add(self._prober.alpha([pair], f"latency {step}") or Samples())
            found.add(self._prober.beta([pair], f"bandwidth {step}", alone=True) or Samples())
        gathered = self._gathered(found)
        if self._prober.rank == 0:
            samples.add(gathered)

    def _known(self, samples: Samples) -> Known:
        fits = Fits(samples, self._places)
        beta = {pair: float(value) for pair, value in zip(fits.pairs, fits.column(""), strict=True)}
        return Known(beta, {fits.pairs[row]: gain for row, gain in fits.contended.items()}, self._places)

    def _wants_trials(self, known: Known) -> bool:
        """Where nobody said: when links slow each other down, or a host has several ranks."""
        ranks_of = known.ranks_of()
        if len(ranks_of) < 2 or self._effort.ports is False:
            return False
        crowded = len(self._places) > len(ranks_of) and not self._effort.quick
        return bool(self._effort.ports or known.contended or crowded)

    def _not_yet_alone(self, shares: Sequence[Share], samples: Samples) -> list[Pair]:
        """Links through a trunk that were only measured in company, as far as that is cheap."""
        chosen = None
        if self._prober.rank == 0:
            through = dict.fromkeys(pair for share in shares for pair in share.pairs)
            chosen = [pair for pair in through if pair not in samples.again][: self._most_retests]
        self._prober.waits_for_all("which links to measure alone")
        pairs: list[Pair] = self._prober.comm.bcast(chosen)
        return pairs

    def _agreed(self, decision: bool) -> bool:
        """What rank 0 decides."""
        self._prober.waits_for_all("whether another pass is needed")
        return bool(self._prober.comm.bcast(decision))

    def _gathered(self, samples: Samples) -> Samples:
        """On rank 0 the samples of every rank, elsewhere its own."""
        self._prober.waits_for_all("the samples of all ranks")
        everyone = self._prober.comm.gather(samples)
        if everyone is None:
            return samples
        total = Samples()
        for part in everyone:
            total.add(part)
        return total


def _library() -> str:
    from mpi4py import MPI

    text: str = MPI.Get_library_version()
    return text.replace("\0", " ").strip().splitlines()[0].split(",")[0].strip()
