"""The phases of a profile, which all ranks take together: passes over all links, retests, shared ports."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import count

import numpy as np

from probes.link_costs import HostCopies, HostMemory
from probes.live import memory_speed
from probes.profiling.assemble import Fits, preempted, still_slow, to_retest, unsettled, waiting
from probes.profiling.budget import Cost, RoundPlan, fitted
from probes.profiling.instances import Instances, SampleSpread
from probes.profiling.options import PASSES, Effort
from probes.sampling import Pair, Place, Prober, Samples, Waves, host_copies, looks_slow, meetings, waves
from probes.sharing import (
    ContentionTrials,
    Known,
    Share,
    attempts,
    behind,
    carries,
    contradicted,
    kept_waiting,
    nic_shares,
    one_at_a_time,
    trunk_shares,
)

__all__ = ["Steps"]

# Most links are disturbed only once and few twice, so more repetitions would find little.
_MORE_PASSES = 2
_MORE_TIMES_ALONE = 2
# Share of the time left of a budget that one more pass may take. The rest is for measuring suspects again.
_FOR_PASSES = 0.5
# Alone, a few round trips are enough, and these take a quarter of the usual time.
_ALPHA_AGAIN = 0.25

Probe = Callable[[Sequence[Pair], str], Samples | None]
Choice = Callable[[Samples, Sequence[Place]], list[Pair]]


class Steps:
    """One rank's view of one profile; the samples that it returns are complete on rank 0 only."""

    def __init__(self, prober: Prober, effort: Effort, places: Sequence[Place], started_s: float) -> None:
        self._prober, self._effort, self._places = prober, effort, places
        self._started_s = started_s
        self._left_out: list[str] = []
        self._declared_notes: list[str] = []
        self._instances: Instances | None = None
        host_of = [place.host for place in places]
        cores_of = {place.host: place.cores for place in places}
        nic_of = [place.nic for place in places]
        self._cut: Waves = lambda pairs: waves(pairs, host_of, cores_of, nic_of)
        if effort.alone:
            self._cut = lambda pairs: [[pair] for pair in pairs]
        self._most_retests = 2 * len(places) + 16

    def passes(self, plan: RoundPlan) -> tuple[int, Samples]:
        """Run the passes; return their number and their samples."""
        found = Samples()
        if self._effort.budget_s is not None:
            plan = self._calibrated(plan, found)
        self._prober.dose = plan.dose
        made, last_s = 0, 0.0
        for number in range(1, plan.passes + 1):
            if number > 1 and self._agreed(self._is_enough(number, last_s)):
                break
            began_s = time.perf_counter()
            if not self._pass(plan, number, found):
                break
            made, last_s = number, time.perf_counter() - began_s
            if self._effort.budget_s is None:
                plan = plan.without(self._settled(found))
            if not plan.rounds:
                break
        self._left_out = list(plan.left_out)
        if self._effort.budget_s is not None and made < PASSES:
            self._left_out.append(f"{PASSES - made} of {PASSES} passes")
        return max(made, 1), self._gathered(found)

    def checked(self, samples: Samples) -> Instances | None:
        """Check the spread of a topology's NIC classes; return the ranks of each host by NIC.

        Links on which a class disagrees are measured, added to ``samples``, and noted. Returns None without a
        topology, or if single links were requested.
        """
        if self._effort.topology is None or self._effort.pairs is not None:
            return None
        mine = None
        if self._prober.rank == 0:
            mine = Instances(self._places).spread(Fits(samples, self._places).between_hosts)
        self._prober.waits_for_all("whether what is declared alike is alike")
        spread: SampleSpread = self._prober.comm.bcast(mine)
        self._declared_notes += spread.notes
        met = sorted({(min(pair), max(pair)) for pair in spread.more})
        steps: list[tuple[Probe, list[Pair]]] = [(self._prober.alpha, wave) for wave in self._cut(met)]
        steps += [(self._prober.beta, wave) for wave in self._cut(spread.more)]
        self._prober.expect(len(steps))
        found = Samples()
        for index, (probe, wave) in enumerate(steps, start=1):
            taken = probe(wave, f"what was declared alike, wave {index} of {len(steps)}")
            if taken is None:
                self._declared_notes.append("no time to measure all that is not alike as declared")
                break
            found.add(taken)
        self._add(found, samples)
        self._instances = Instances(self._places, spread.apart)
        return self._instances

    def retest(self, samples: Samples) -> None:
        """Repeat measurements of links that stand out, one link at a time; add them to ``samples``.

        If there are too many, they are first measured again concurrently, because most were disturbed only
        once. Links that were disturbed even alone, or that stand out only now, are then measured alone again.
        Single links that are still slow are measured a last time, because some are disturbed twice. Links
        whose ends waited for cores are also measured alone.
        """
        chosen = self._on_every_rank(to_retest, samples)
        for number in range(1, _MORE_PASSES + 1):
            if len(chosen) <= self._most_retests:
                break
            cut = self._cut(chosen)
            self._prober.expect(len(cut))
            found = Samples()
            for index, wave in enumerate(cut, start=1):
                step = f"measuring suspicious links again, pass {number}: {index} of {len(cut)}"
                found.add(self._prober.beta(wave, step) or Samples())
            self._add(found, samples)
            chosen = self._on_every_rank(to_retest, samples)
        late = self._on_every_rank(preempted, samples)
        self._alone(list(dict.fromkeys([*chosen, *late]))[: self._most_retests], samples)
        for _ in range(_MORE_TIMES_ALONE):
            self._alone(self._on_every_rank(unsettled, samples)[: self._most_retests], samples)
        self._alone(self._on_every_rank(still_slow, samples), samples)

    def ports(self, samples: Samples) -> tuple[list[Share], list[str]]:
        """Find the shared ports by trials; return them, and further findings of the trials."""
        prober = self._prober
        mine = self._known(samples) if prober.rank == 0 else None
        prober.waits_for_all("which ports to try")
        known: Known = prober.comm.bcast(mine)
        if not self._wants_trials(known):
            self._alone(self._on_every_rank(waiting, samples)[: self._most_retests], samples)
            return [], []
        trials = ContentionTrials(attempts(prober, known), carries(prober, known))
        shares, notes = trunk_shares(known, trials)
        self._through(shares, samples)
        self._alone(self._on_every_rank(waiting, samples)[: self._most_retests], samples)
        of_nics = nic_shares(known, trials)
        return [*shares, *of_nics], [*notes, *contradicted(self._places, of_nics)]

    def host_copies(self) -> tuple[HostCopies, ...]:
        """Measure copies between GPUs and their CPUs, on every host one GPU at a time."""
        if not any(place.on_gpu for place in self._places):
            return ()
        prober, host = self._prober, self._places[self._prober.rank].host
        ahead = sum(place.host == host for place in self._places[: prober.rank])
        mine = None
        for turn in range(max(Counter(place.host for place in self._places).values())):
            prober.waits_for_all(f"copies to the CPU, GPU {turn} of each host")
            if turn == ahead and prober.gpu is not None:
                mine = host_copies(prober.rank, prober.gpu, prober.dose.trains_s)
        every: list[HostCopies | None] = prober.comm.allgather(mine)
        return tuple(copies for copies in every if copies is not None)

    def memory(self) -> tuple[HostMemory, ...]:
        """Measure copies and sums in memory on hosts with several ranks, all ranks at once.

        Nothing is measured if a rank is on a GPU or the effort has a budget.
        """
        hosts = Counter(place.host for place in self._places)
        unwanted = self._effort.budget_s is not None or any(place.on_gpu for place in self._places)
        if unwanted or max(hosts.values()) < 2:
            return ()
        self._prober.waits_for_all("copies and sums in memory")
        number = count(1)
        # This takes long on a busy machine, so each barrier reports progress.
        own = memory_speed(
            self._prober.comm, lambda: self._prober.says(f"copies and sums in memory, {next(number)}")
        )
        every = self._prober.comm.allgather(own)
        found = []
        for host in (host for host, ranks in hosts.items() if ranks > 1):
            here = [one for one, place in zip(every, self._places, strict=True) if place.host == host]
            found.append(
                HostMemory(
                    host,
                    here[0].sizes_bytes,
                    _medians([one.copies for one in here]),
                    _medians([one.sums for one in here]),
                    _medians([one.fetches for one in here]),
                    _medians([one.written_fetches for one in here]),
                    len(frozenset.union(*(one.cores for one in here))),
                )
            )
        return tuple(found)

    def notes(self, samples: Samples) -> list[str]:
        """Return notes on omitted measurements, with reasons."""
        missing = len(self._places) * (len(self._places) - 1) - len(samples.measured())
        found = list(self._declared_notes)
        if self._instances is not None:
            inferred = len(self._instances.inferred(Fits(samples, self._places).between_hosts))
            missing -= inferred
            if inferred:
                found.append(
                    f"{inferred} links between hosts are inferred from samples: {self._effort.topology_name} "
                    f"declares {self._instances.classes()}"
                )
        left = [f"{missing} links not measured"] if missing else []
        if not left and not self._left_out:
            return found
        why = "no time"
        if self._effort.budget_s is not None:
            why = f"budget of {self._effort.budget_s:g} s"
        elif self._effort.pairs:
            why = f"{self._effort.pairs.source} names the pairs"
        elif self._effort.quick:
            why = "strides 1, 2, 4, … only"
        return [*found, f"left out ({why}): {', '.join(left + self._left_out)}"]

    def _is_enough(self, number: int, last_s: float) -> bool:
        """Return whether to skip pass ``number``: no time left, or two passes took long enough."""
        now_s = time.perf_counter()
        if self._effort.budget_s is not None:
            return _FOR_PASSES * (self._prober.deadline_s - now_s) < last_s
        return number > 2 and now_s - self._started_s > self._effort.enough_s

    def _pass(self, plan: RoundPlan, number: int, found: Samples) -> bool:
        """Measure one pass; return whether there was time for all of it.

        Each round measures latency and bandwidth of its links, so that the links of finished rounds are
        complete even if the pass stops early.
        """
        rounds = plan.rounds_of(number)
        cut = [
            (self._cut(met), self._cut(pairs)) for met, pairs in zip(meetings(rounds), rounds, strict=True)
        ]
        self._prober.expect((plan.passes - number + 1) * sum(len(alpha) + len(beta) for alpha, beta in cut))
        for index, (alpha, beta) in enumerate(cut, start=1):
            part = f"pass {number} of {plan.passes}, links that run at once: set {index} of {len(rounds)}"
            steps: list[tuple[str, Probe, list[Pair]]]
            steps = [(f"latency, {part}", self._prober.alpha, wave) for wave in alpha]
            steps += [(f"bandwidth, {part}", self._prober.beta, wave) for wave in beta]
            for step, probe, wave in steps:
                samples = probe(wave, step)
                if samples is None:
                    return False
                found.add(samples)
        return True

    def _settled(self, found: Samples) -> frozenset[Pair]:
        """Return the slow links between hosts, which need no other pass unless a budget pays for it.

        Each takes long to measure, and outliers are measured again anyway, alone.
        """
        host_of = [place.host for place in self._places]
        mine = [
            pair
            for pair, trains in found.trains.items()
            if host_of[pair[0]] != host_of[pair[1]] and looks_slow(trains)
        ]
        self._prober.waits_for_all("which links another pass needs")
        return frozenset(pair for pairs in self._prober.comm.allgather(mine) for pair in pairs)

    def _calibrated(self, plan: RoundPlan, found: Samples) -> RoundPlan:
        """Cut ``plan`` to the budget, by the cost of a wave in its first round."""
        # The first round ignores the budget: without a single link there is no profile.
        deadline_s, self._prober.deadline_s = self._prober.deadline_s, float("inf")
        first = self._cut(plan.rounds[0])
        # An estimate for one pass, so that the progress bar is not full too early.
        self._prober.expect(2 * len(first) * len(plan.rounds))
        cost = []
        for probe, pairs in (
            (self._prober.alpha, self._cut(meetings(plan.rounds[:1])[0])),
            (self._prober.beta, first),
        ):
            began_s = time.perf_counter()
            for wave in pairs:
                found.add(probe(wave, "what a wave costs") or Samples())
            self._prober.waits_for_all("what a wave costs")
            cost.append((time.perf_counter() - began_s) / len(pairs))
        self._prober.deadline_s = deadline_s
        left_s = deadline_s - time.perf_counter()
        fit: RoundPlan = self._prober.comm.bcast(fitted(plan, self._cut, Cost(*cost), left_s))
        return fit

    def _alone(self, pairs: Sequence[Pair], samples: Samples) -> None:
        found = Samples()
        self._prober.expect(2 * len(pairs))
        for index, pair in enumerate(pairs, start=1):
            step = f"measuring suspicious links again, one at a time: {index} of {len(pairs)}"
            # Alone, a few round trips are enough; within a host, more of them cost little.
            share = 1.0 if self._places[pair[0]].host == self._places[pair[1]].host else _ALPHA_AGAIN
            found.add(self._prober.alpha([pair], f"{step}, latency", share) or Samples())
            found.add(self._prober.beta([pair], f"{step}, bandwidth", alone=True) or Samples())
        self._add(found, samples)

    def _add(self, found: Samples, samples: Samples) -> None:
        """Add the ``found`` samples of all ranks to ``samples`` on rank 0."""
        gathered = self._gathered(found)
        if self._prober.rank == 0:
            samples.add(gathered)

    def _on_every_rank(self, choose: Choice, samples: Samples) -> list[Pair]:
        """Return, on every rank, the links that rank 0 chooses."""
        chosen = choose(samples, self._places) if self._prober.rank == 0 else None
        self._prober.waits_for_all("which links to measure again")
        pairs: list[Pair] = self._prober.comm.bcast(chosen)
        return pairs

    def _known(self, samples: Samples) -> Known:
        fits = Fits(samples, self._places)
        beta = {pair: float(value) for pair, value in zip(fits.pairs, fits.column(""), strict=True)}
        contended = {fits.pairs[row]: gain for row, gain in fits.contended.items()}
        alone = frozenset(pair for pair in samples.again if pair in beta)
        return Known(beta, contended, self._places, kept_waiting(fits.between_hosts, samples), alone)

    def _wants_trials(self, known: Known) -> bool:
        """Return whether to try ports: by default if links disturb each other or a host has several ranks."""
        ranks_of = known.ranks_of()
        if len(ranks_of) < 2 or self._effort.ports is False:
            return False
        crowded = len(self._places) > len(ranks_of) and not self._effort.quick
        return bool(self._effort.ports or known.contended or known.kept_waiting or crowded)

    def _through(self, shares: Sequence[Share], samples: Samples) -> None:
        """Measure links that others slowed down, one at a time through each trunk, then those still slow."""
        trunks = [share.pairs for share in shares]

        def slowed_down(known: Samples, places: Sequence[Place]) -> list[Pair]:
            return behind(Fits(known, places).between_hosts, trunks, known)[: self._most_retests]

        def only_in_company(known: Samples, places: Sequence[Place]) -> list[Pair]:
            return [pair for pair in slowed_down(known, places) if pair not in known.again]

        chosen = self._on_every_rank(only_in_company, samples)
        found = Samples()
        cut = one_at_a_time(chosen, shares, self._places)
        self._prober.expect(len(cut))
        for index, wave in enumerate(cut, start=1):
            step = f"bandwidth through trunks, wave {index} of {len(cut)}"
            found.add(self._prober.beta(wave, step, alone=True) or Samples())
        self._add(found, samples)
        self._alone(self._on_every_rank(slowed_down, samples), samples)

    def _agreed(self, decision: bool) -> bool:
        """Return the decision of rank 0 on every rank."""
        self._prober.waits_for_all("whether another pass is needed")
        return bool(self._prober.comm.bcast(decision))

    def _gathered(self, samples: Samples) -> Samples:
        """Return the samples of all ranks on rank 0; on another rank, return its own."""
        self._prober.waits_for_all("the samples of all ranks")
        everyone = self._prober.comm.gather(samples)
        if everyone is None:
            return samples
        total = Samples()
        for part in everyone:
            total.add(part)
        return total


def _medians(costs: Sequence[tuple[float, ...]]) -> tuple[float, ...]:
    """Return the median over ranks for each size; empty if a rank has no values."""
    return tuple(np.median(costs, axis=0).tolist()) if all(costs) else ()
