"""Which slow hosts and links are named, and which healthy ones: prints a table for 3 to 16 hosts.

Each trial draws up to half of the hosts and makes each of them, or one of its links, slower by a factor
from 1.3 to 20: where it sends, where it receives, or both. The judge sees bandwidths with the noise asked
for. An alarm is a trial in which something is named that was not made slow.

    python benchmarks/slow_hosts.py --trials 200 --noise 0.01
"""

from __future__ import annotations

import argparse
import itertools
from dataclasses import dataclass

import numpy as np

from probes.base.columns import Floats
from probes.profiling.outliers import SlowPart, slow_parts
from probes.sampling.rounds import Pair
from probes.sampling.samples import Place

LEAST, MOST = 1.3, 20.0
# Two faults within this of each other are equally bad: noise decides which is named first.
ALIKE = 1.1
BYTES_PER_S = 12e9


@dataclass(frozen=True)
class Population:
    """What each host can send and receive and each link carry (1 is healthy), and what was made slow."""

    sends: Floats
    receives: Floats
    links: Floats

    def reached(self) -> Floats:
        """Return the bandwidth from each host to each other."""
        return np.minimum(self.links, np.minimum(self.sends[:, None], self.receives[None, :]))

    def faults(self) -> dict[tuple[str, Pair], float]:
        """Return how many times too slow each faulty part is; a link only where its ends do not hide it."""
        found = {("sends", (host, host)): 1 / value for host, value in enumerate(self.sends) if value < 1}
        found |= {
            ("receives", (host, host)): 1 / value for host, value in enumerate(self.receives) if value < 1
        }
        ends = np.minimum(self.sends[:, None], self.receives[None, :])
        hidden = self.links * ALIKE > ends
        slow = np.argwhere((self.links < 1) & ~hidden)
        return found | {("link", (int(a), int(b))): 1 / float(self.links[a, b]) for a, b in slow}


@dataclass(frozen=True)
class Outcome:
    """Whether a fault as bad as the worst was named first, and what was missed and wrongly named."""

    worst_first: bool
    missed: int
    alarms: int


def population(hosts: int, seed: int) -> Population:
    """Hosts of which 1 to half are slow, in another way each."""
    random = np.random.default_rng(seed)
    found = Population(np.ones(hosts), np.ones(hosts), np.ones((hosts, hosts)))
    for host in random.permutation(hosts)[: random.integers(1, hosts // 2 + 1)]:
        level = float(np.exp(-random.uniform(np.log(LEAST), np.log(MOST))))
        kind = random.choice(["sends", "receives", "both", "link"])
        if kind in ("sends", "both"):
            found.sends[host] = level
        if kind in ("receives", "both"):
            found.receives[host] = level
        if kind == "link":
            found.links[host, (host + random.integers(1, hosts)) % hosts] = level
    return found


def named(parts: list[SlowPart], pairs: list[Pair]) -> list[tuple[str, Pair]]:
    """Return what the findings name, in their order, links with the worst first."""
    found: list[tuple[str, Pair]] = []
    for part in parts:
        if part.word == "outlier":
            order = sorted(zip(part.named, part.rows, strict=True), key=lambda one: -one[0][0])
            found += [("link", pairs[row]) for _, row in order]
        else:
            word, end = ("sends", 0) if part.word == "slow_sender" else ("receives", 1)
            found.append((word, (pairs[part.rows[0]][end],) * 2))
    return found


def outcome(faulty: Population, noise: float, seed: int) -> Outcome:
    """Return what the judge makes of one population."""
    hosts = len(faulty.sends)
    pairs = list(itertools.permutations(range(hosts), 2))
    noisy = np.exp(np.random.default_rng(seed).normal(0, noise, (hosts, hosts)))
    reached = BYTES_PER_S * faulty.reached() * noisy
    beta = np.array([1 / reached[pair] for pair in pairs])
    places = [Place(f"n{host}", 8) for host in range(hosts)]
    found = named(slow_parts(pairs, beta, beta * np.exp(noise), places), pairs)
    faults = faulty.faults()
    worst = max(faults.values(), default=0.0)
    first = faults.get(found[0], 0.0) if found else 0.0
    hidden = {("link", (int(a), int(b))) for a, b in np.argwhere(faulty.links < 1)}
    return Outcome(
        worst_first=bool(faults) == bool(found) and first * ALIKE >= worst,
        missed=len(faults.keys() - set(found)),
        alarms=len(set(found) - faults.keys() - hidden),
    )


def healthy(hosts: int) -> Population:
    """Hosts of which none is slow."""
    return Population(np.ones(hosts), np.ones(hosts), np.ones((hosts, hosts)))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--noise", type=float, default=0.01, help="standard deviation of log bandwidth")
    arguments = parser.parse_args()
    print("hosts  worst first  all named  alarms  alarms if all are healthy")
    for hosts in range(3, 17):
        seeds = range(arguments.trials)
        slow = [outcome(population(hosts, seed), arguments.noise, seed) for seed in seeds]
        none = [outcome(healthy(hosts), arguments.noise, seed) for seed in seeds]
        shares = (
            np.mean([one.worst_first for one in slow]),
            np.mean([one.missed == 0 for one in slow]),
            np.mean([one.alarms > 0 for one in slow]),
            np.mean([one.alarms > 0 for one in none]),
        )
        print(f"{hosts:5}  {shares[0]:11.1%}  {shares[1]:9.1%}  {shares[2]:6.1%}  {shares[3]:25.1%}")


if __name__ == "__main__":
    main()
