"""Metamorphic relations of the planner: a better network must not get a slower schedule.

    python benchmarks/metamorphic.py [--cases 200] [--seed 1] [--worse 2]

Each case draws a network of ``sizes.py`` (of either kind, at most 20 ranks), a collective, a size from 16 KiB
to 4 MiB, and a relation:

- link: with one link more, between two ranks that had none;
- rate: with one link twice as fast, if no port shares it;
- relay: with ranks that take no part, but may pass on what others send;
- names: with the ranks numbered in another order;
- seed: with another seed of the search.

A case breaks its relation if the schedule is slower by more than ``--worse`` percent; names and seed count
both ways. The table has a row for each relation: cases, broken ones, and the worst ratio.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from sizes import KINDS, drawn, unusual

from probes.base import format_size
from probes.base.columns import floats
from synth import CollectiveRequest, Request, synthesize
from synth.collective import Kind
from synth.network import Link, Network, build
from synth.networks import restricted, strong_components

SIZES = tuple(1 << power for power in range(14, 23, 2))
MOST_RANKS = 20


@dataclass(frozen=True)
class Case:
    """Times before and after a change that should not make a schedule slower."""

    relation: str
    network: str
    kind: Kind
    size_bytes: int
    before_s: float
    after_s: float

    @property
    def ratio(self) -> float:
        """The time after the change over the time before; for names and seed the larger over the smaller."""
        ratio = self.after_s / self.before_s
        return max(ratio, 1 / ratio) if self.relation in ("names", "seed") else ratio


def small_network(draw: random.Random) -> Network:
    """Return a drawn network of at most `MOST_RANKS` ranks."""
    while True:
        network = draw.choice((drawn, unusual))(draw.randrange(1_000_000))
        if network.ranks <= MOST_RANKS:
            return network


def time_s(network: Network, kind: Kind, size_bytes: int, seed: int = 0, ranks: Sequence[int] = ()) -> float:
    """Return the time of the schedule that `synth` chooses, for all ranks or for a part of them."""
    if ranks:
        part = CollectiveRequest(kind, ranks[0], tuple(ranks))
        request = Request(network=network, kind=kind, size_bytes=size_bytes, collectives=(part,), jobs=0)
    else:
        request = Request(network=network, kind=kind, size_bytes=size_bytes, seed=seed, jobs=0)
    outcome = synthesize(request).schedule.outcome
    assert outcome is not None
    return outcome.time_s


Times = tuple[float, float]


def link(draw: random.Random, network: Network, kind: Kind, size_bytes: int) -> Times | None:
    """Compare with a network of one link more, as fast as one of the others."""
    links = network.as_links()
    joined = {(one.src, one.dst) for one in links}
    apart = [(a, b) for a in range(network.ranks) for b in range(network.ranks) if a != b]
    apart = [pair for pair in apart if pair not in joined]
    if not apart:
        return None
    like = draw.choice(links)
    more = Link(*draw.choice(apart), like.alpha_s, like.beta_s_per_byte)
    wider = build(network.name, network.hosts, [*links, more])
    return time_s(network, kind, size_bytes), time_s(wider, kind, size_bytes)


def rate(draw: random.Random, network: Network, kind: Kind, size_bytes: int) -> Times | None:
    """Compare with a network of which one link is twice as fast."""
    alone = [at for at in range(network.links) if not len(network.ports_of(at))]
    if not alone:
        return None
    betas = network.beta_s_per_byte.copy()
    betas[draw.choice(alone)] /= 2
    faster = replace(network, beta_s_per_byte=floats(betas))
    return time_s(network, kind, size_bytes), time_s(faster, kind, size_bytes)


def relay(draw: random.Random, network: Network, kind: Kind, size_bytes: int) -> Times | None:
    """Compare a part of the ranks by themselves with the same part on the whole network."""
    ranks = sorted(draw.sample(range(network.ranks), max(3, network.ranks - draw.randint(1, 3))))
    alone, _ = restricted(network, ranks)
    if strong_components(alone, np.arange(alone.links)).any():
        return None
    return time_s(alone, kind, size_bytes), time_s(network, kind, size_bytes, ranks=ranks)


def names(draw: random.Random, network: Network, kind: Kind, size_bytes: int) -> Times:
    """Compare with the same network, its ranks in another order; the root stays the same rank."""
    order = [0, *draw.sample(range(1, network.ranks), network.ranks - 1)]
    links = [one._replace(src=order[one.src], dst=order[one.dst]) for one in network.as_links()]
    hosts = [host for _, host in sorted(zip(order, network.hosts, strict=True))]
    renamed = build(network.name, hosts, links)
    return time_s(network, kind, size_bytes), time_s(renamed, kind, size_bytes)


def seed(draw: random.Random, network: Network, kind: Kind, size_bytes: int) -> Times:
    """Compare with another seed."""
    return time_s(network, kind, size_bytes), time_s(network, kind, size_bytes, seed=draw.randint(1, 1000))


Relation = Callable[[random.Random, Network, Kind, int], Times | None]
RELATIONS: dict[str, Relation] = {"link": link, "rate": rate, "relay": relay, "names": names, "seed": seed}


def cases(number: int, first: int) -> list[Case]:
    """Return ``number`` cases, the relations in turn; a network without such a change is drawn anew."""
    found: list[Case] = []
    draw = random.Random(first)
    while len(found) < number:
        relation = list(RELATIONS)[len(found) % len(RELATIONS)]
        network, kind, size_bytes = small_network(draw), draw.choice(KINDS), draw.choice(SIZES)
        times = RELATIONS[relation](draw, network, kind, size_bytes)
        if times is not None:
            found.append(Case(relation, network.name, kind, size_bytes, *times))
            one = found[-1]
            print(
                f"{len(found)} {relation}: {one.network}, {kind}, {format_size(size_bytes)}: {one.ratio:.3f}",
                flush=True,
            )
    return found


def main() -> None:
    """Print a line for each case, and then a row for each relation."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--worse", type=float, default=2.0, help="percent that count as slower")
    asked = parser.parse_args()
    found = cases(asked.cases, asked.seed)
    print("\n| relation | cases | broken | worst |\n|---|---:|---:|---:|")
    for relation in RELATIONS:
        ratios = [case.ratio for case in found if case.relation == relation]
        broken = sum(ratio > 1 + asked.worse / 100 for ratio in ratios)
        print(f"| {relation} | {len(ratios)} | {broken} | {max(ratios, default=1.0):.3f} |")


if __name__ == "__main__":
    main()
