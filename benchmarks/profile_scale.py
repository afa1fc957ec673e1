"""The minutes that profiling N hosts takes.

Prints the tables of docs/explanation/results/profiling-at-scale.md.

Seconds come from the plans that `ccctl profile` makes itself, with one rank a host and the stated link.
Setting up connections is not counted. `accept_campaign.py` measures which faults are found.

A second table is of 64 hosts of 8 ranks with 1, 2, 4 and 8 NICs: rounds over ranks, as without a topology,
against rounds over hosts, as with a topology (`ccctl profile --topology`). One NIC carries 15 % less, one
pair of hosts 25 % less, and in half of the trials one rank 40 % less. Every link has a noise of 2 % and, one
time in twenty, a disturbance (exponential, 30 % in the mean). Waves are the parts into which the profile cuts
its rounds. The error is over all links, inferred ones included; ``again`` counts the additional measurements
where flows of one class disagree.

    python benchmarks/profile_scale.py            both tables
    python benchmarks/profile_scale.py nics       the second table alone
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from probes.base.columns import Floats
from probes.profiling.budget import Cost, RoundPlan, fitted
from probes.profiling.instances import Instances
from probes.sampling import packet_trains
from probes.sampling.prober import Dose
from probes.sampling.rounds import Pair, doubling_strides, meetings, rings, strides, waves
from probes.sampling.samples import Place

CLUSTER_HOSTS = (64, 256, 1024, 4096)
LINKS = {"100 Gb/s": (5e-6, 8e-11), "10 GbE": (25e-6, 8e-10)}
NOISE, DISTURBED, DISTURBANCE = 0.02, 0.05, 0.3
SLOW_NIC, SLOW_LINK, SLOW_RANK = 0.85, 0.75, 0.6
HOSTS, PER_HOST, NICS, CORES, CLUSTERS = 64, 8, (1, 2, 4, 8), 64, 4
BUDGET_S = 30.0
FULL, QUICK = Dose(0.03, 0.04), Dose(0.01, 0.02)


@dataclass(frozen=True)
class Effort:
    """One row of the table: strides, rounds and seconds for a number of hosts."""

    name: str
    strides: Sequence[int]
    passes: int
    seconds: tuple[float, ...]


def wave_seconds(hosts: int, dose: Dose, alpha_s: float, beta: float) -> Cost:
    """Return the seconds of one wave of latencies and of one of bandwidths, with the barriers before them."""
    barrier_s = 1e-3 + 2 * math.ceil(math.log2(hosts)) * alpha_s
    balls = 20 + min(2000, max(20, dose.pingpong_s / (2 * alpha_s)))
    probe_bytes = 8 * (4 << 10) + 12 * (32 << 10)
    asked = packet_trains.plan(beta, dose.trains_s)
    sent = probe_bytes + sum(train.messages * train.times * train.size_bytes for train in asked)
    return Cost(barrier_s + balls * 2 * alpha_s, barrier_s + beta * sent)


def cut(pairs: Sequence[Pair]) -> list[list[Pair]]:
    """Return two waves a round, as a rank sends or receives; a round is given by one of its links."""
    return [list(pairs)] * 2 if pairs else []


def seconds(hosts: int, chosen: Sequence[int], passes: int, cost: Cost) -> float:
    """Return the seconds of ``passes`` passes over the rounds of the chosen strides."""
    met = {min(stride, hosts - stride) for stride in chosen}
    return passes * 2 * (len(met) * cost.alpha_s + len(chosen) * cost.beta_s)


def within_budget(hosts: int, alpha_s: float, beta: float) -> tuple[list[int], float]:
    """Return the strides that fit into the budget, and the seconds of one pass over them."""
    order = strides(hosts)
    rounds = tuple(((0, s),) if 2 * s <= hosts else ((hosts - s, 0),) for s in order)
    cost = wave_seconds(hosts, FULL, alpha_s, beta)
    first_s = 2 * (cost.alpha_s + cost.beta_s)
    plan = fitted(RoundPlan(rounds, 5, FULL), cut, cost, BUDGET_S - first_s)
    kept = order[: len(plan.rounds)]
    return kept, seconds(hosts, kept, 1, wave_seconds(hosts, plan.dose, alpha_s, beta))


def efforts(hosts: int) -> list[Effort]:
    """Return the ways to profile ``hosts`` hosts."""
    everything, quick = strides(hosts), doubling_strides(hosts)
    full = [seconds(hosts, everything, 2, wave_seconds(hosts, FULL, *link)) for link in LINKS.values()]
    short = [seconds(hosts, quick, 2, wave_seconds(hosts, QUICK, *link)) for link in LINKS.values()]
    rows = [Effort("full", everything, 2, tuple(full)), Effort("--quick", quick, 2, tuple(short))]
    for at, (name, link) in enumerate(LINKS.items()):
        kept, time_s = within_budget(hosts, *link)
        times = tuple(time_s if at == other else math.nan for other in range(len(LINKS)))
        rows.append(Effort(f"--budget {BUDGET_S:g} at {name}", kept, 1, times))
    return rows


def sampled(truth: Floats, times: int, rng: np.random.Generator) -> Floats:
    """Return the best of several measurements of each link, as logarithms."""
    best = np.full(truth.shape, -np.inf)
    for _ in range(times):
        seen = truth + rng.normal(0, NOISE, truth.shape)
        disturbed = rng.random(truth.shape) < DISTURBED
        seen[disturbed] -= rng.exponential(DISTURBANCE, int(disturbed.sum()))
        best = np.maximum(best, seen)
    return best


@dataclass(frozen=True, eq=False)
class Box:
    """A cluster whose ranks share NICs, and the cost of each link, as logarithms of s/byte."""

    places: Sequence[Place]
    truth: Floats

    @classmethod
    def of(cls, nics: int, rng: np.random.Generator, *, slow_rank: bool) -> Box:
        """Return a cluster with a slow NIC, a slow pair of hosts and perhaps a slow rank, all at random."""
        places = [
            Place(f"h{host}", CORES, "process", f"nic{rank * nics // PER_HOST}", "alike")
            for host in range(HOSTS)
            for rank in range(PER_HOST)
        ]
        host_of = np.repeat(np.arange(HOSTS), PER_HOST)
        nic_of = host_of * nics + np.tile(np.arange(PER_HOST) * nics // PER_HOST, HOSTS)
        nic = int(rng.integers(HOSTS * nics))
        a, b = rng.choice(HOSTS, 2, replace=False)
        ends = np.where(nic_of == nic, -math.log(SLOW_NIC), 0.0)
        if slow_rank:
            ends[int(rng.integers(len(places)))] = -math.log(SLOW_RANK)
        truth = np.maximum(ends[:, None], np.zeros(len(places))[None, :])
        between = (host_of[:, None] == a) & (host_of[None, :] == b)
        return cls(places, np.maximum(truth, np.where(between, -math.log(SLOW_LINK), 0.0)))

    def seen(self, pairs: Sequence[Pair], rng: np.random.Generator) -> dict[Pair, float]:
        """Return the best of two measurements of each of ``pairs``."""
        rows = tuple(np.array(pairs, dtype=np.int64).reshape(-1, 2).T)
        logs = -sampled(-self.truth[rows], 2, rng)
        return dict(zip(pairs, np.exp(logs).tolist(), strict=True))

    def errors(self, found: dict[Pair, float]) -> Floats:
        """Return the relative error of each link between hosts."""
        rows = tuple(np.array(list(found), dtype=np.int64).T)
        costs = np.array(list(found.values()))
        errors: Floats = np.abs(np.exp(np.log(costs) - self.truth[rows]) - 1)
        return errors

    def waves(self, rounds: Sequence[Sequence[Pair]], *, nics: bool) -> tuple[int, int]:
        """Return the numbers of waves of latencies and of bandwidths into which the rounds are cut."""
        host_of, cores = [place.host for place in self.places], {place.host: CORES for place in self.places}
        nic_of = [place.nic for place in self.places] if nics else None
        met = [pairs for pairs in meetings(rounds) if pairs]
        counts = [sum(len(waves(pairs, host_of, cores, nic_of)) for pairs in some) for some in (met, rounds)]
        return counts[0], counts[1]


def by_nics() -> None:
    """Print the second table."""
    print("| NICs | rounds over | rounds | waves | s at 100 Gb/s | error: median | 99 % | most | again |")
    print("|---:|---|---:|---:|---:|---:|---:|---:|---:|")
    cost = wave_seconds(HOSTS, FULL, *LINKS["100 Gb/s"])
    for nics in NICS:
        rng = np.random.default_rng(nics)
        boxes = [Box.of(nics, rng, slow_rank=bool(turn % 2)) for turn in range(CLUSTERS)]
        for over in ("ranks", "hosts"):
            instances = Instances(boxes[0].places)
            rounds = rings(HOSTS * PER_HOST) if over == "ranks" else instances.rounds()
            alpha, beta = boxes[0].waves(rounds, nics=over == "hosts")
            errors, again = [], 0
            for box in boxes:
                between = [
                    pair
                    for pairs in rounds
                    for pair in pairs
                    if box.places[pair[0]].host != box.places[pair[1]].host
                ]
                found = box.seen(between, rng)
                if over == "hosts":
                    spread = instances.spread(found)
                    again += len(spread.more)
                    found |= box.seen(spread.more, rng)
                    inferred = Instances(box.places, spread.apart).inferred(found)
                    found |= {pair: found[other] for pair, other in inferred.items()}
                errors.append(box.errors(found))
            every = np.concatenate(errors)
            time_s = alpha * cost.alpha_s + beta * cost.beta_s
            print(
                f"| {nics} | {over} | {len(rounds)} | {alpha + beta} | {time_s:.3g} | {np.median(every):.1%} "
                f"| {np.quantile(every, 0.99):.1%} | {every.max():.0%} | {again / CLUSTERS:.0f} |",
                flush=True,
            )


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="?", choices=("hosts", "nics"), help="one of the tables alone")
    asked = parser.parse_args()
    if asked.what != "nics":
        by_hosts()
    if asked.what != "hosts":
        by_nics()


def by_hosts() -> None:
    """Print the first table."""
    speeds = " | ".join(f"s at {name}" for name in LINKS)
    print(f"| hosts | effort | rounds | links | {speeds} |")
    print("|" + "---:|" * (4 + len(LINKS)))
    for hosts in CLUSTER_HOSTS:
        for effort in efforts(hosts):
            share = len(effort.strides) / (hosts - 1)
            times = " | ".join("" if math.isnan(time_s) else f"{time_s:.3g}" for time_s in effort.seconds)
            print(f"| {hosts} | {effort.name} | {len(effort.strides)} | {share:.0%} | {times} |")


if __name__ == "__main__":
    main()
