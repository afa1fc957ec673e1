"""Laws that a planner should keep: a better network never has a slower schedule.

    python benchmarks/laws.py [--cases 200] [--seed 1] [--worse 2]

Each case draws a network of ``sizes.py`` (of either kind, at most 20 ranks), a collective, a size from 16 KiB
to 4 MiB, and a law:

- link: with one link more, between two ranks that had none;
- rate: with one link twice as fast, if no port shares it;
- relay: with ranks that take no part, but may pass on what others send;
- names: with the ranks numbered in another order;
- seed: with another seed of the search.

A case breaks its law if the schedule is slower by more than ``--worse`` percent; names and seed count both
ways. The table has a row for each law: cases, broken ones, and the worst ratio.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from sizes import KINDS, drawn, unusual

from probes.base import format_size
from probes.base.columns import floats
from synth import CollectiveRequest, Request, synthesize
from synth.collective import Kind
from synth.network import Link, Network, build

SIZES = tuple(1 << power for power in range(14, 23, 2))
MOST_RANKS = 20


@dataclass(frozen=True)
class Case:
    """Times before and after a change that should not make a schedule slower."""

    law: str
    network: str
    kind: Kind
    size_bytes: int
    before_s: float
    after_s: float

    @property
    def ratio(self) -> float:
        """The time after the change over the time before; for names and seed the larger over the smaller."""
        ratio = self.after_s / self.before_s
        return max(ratio, 1 / ratio) if self.law in ("names", "seed") else ratio


def links_of(network: Network) -> list[Link]:
    """Return the links of a network as a builder takes them."""
    return [
        Link(
            int(network.src[link]),
            int(network.dst[link]),
            float(network.alpha_s[link]),
            float(network.beta_s_per_byte[link]),
            tuple(network.ports[port] for port in network.ports_of(link)),
        )
        for link in range(network.links)
    ]


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
    links = links_of(network)
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
    place = {rank: at for at, rank in enumerate(ranks)}
    inside = [
        one._replace(src=place[one.src], dst=place[one.dst])
        for one in links_of(network)
        if one.src in place and one.dst in place
    ]
    if not connected(len(ranks), inside):
        return None
    alone = build(network.name, [network.hosts[rank] for rank in ranks], inside)
    return time_s(alone, kind, size_bytes), time_s(network, kind, size_bytes, ranks=ranks)


def connected(ranks: int, links: Sequence[Link]) -> bool:
    """Return whether every rank reaches every other one."""
    for ends in ({(one.src, one.dst) for one in links}, {(one.dst, one.src) for one in links}):
        reached, new = {0}, {0}
        while new:
            new = {b for a, b in ends if a in new} - reached
            reached |= new
        if len(reached) < ranks:
            return False
    return True


def names(draw: random.Random, network: Network, kind: Kind, size_bytes: int) -> Times:
    """Compare with the same network, its ranks in another order; the root stays the same rank."""
    order = [0, *draw.sample(range(1, network.ranks), network.ranks - 1)]
    links = [one._replace(src=order[one.src], dst=order[one.dst]) for one in links_of(network)]
    hosts = [host for _, host in sorted(zip(order, network.hosts, strict=True))]
    renamed = build(network.name, hosts, links)
    return time_s(network, kind, size_bytes), time_s(renamed, kind, size_bytes)


def seed(draw: random.Random, network: Network, kind: Kind, size_bytes: int) -> Times:
    """Compare with another seed."""
    return time_s(network, kind, size_bytes), time_s(network, kind, size_bytes, seed=draw.randint(1, 1000))


Law = Callable[[random.Random, Network, Kind, int], Times | None]
LAWS: dict[str, Law] = {"link": link, "rate": rate, "relay": relay, "names": names, "seed": seed}


def cases(number: int, first: int) -> list[Case]:
    """Return ``number`` cases, the laws in turn; what has no such change is drawn anew."""
    found: list[Case] = []
    draw = random.Random(first)
    while len(found) < number:
        law = list(LAWS)[len(found) % len(LAWS)]
        network, kind, size_bytes = small_network(draw), draw.choice(KINDS), draw.choice(SIZES)
        times = LAWS[law](draw, network, kind, size_bytes)
        if times is not None:
            found.append(Case(law, network.name, kind, size_bytes, *times))
            one = found[-1]
            print(
                f"{len(found)} {law}: {one.network}, {kind}, {format_size(size_bytes)}: {one.ratio:.3f}",
                flush=True,
            )
    return found


def main() -> None:
    """Print a line for each case, and then a row for each law."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--worse", type=float, default=2.0, help="percent that count as slower")
    asked = parser.parse_args()
    found = cases(asked.cases, asked.seed)
    print("\n| law | cases | broken | worst |\n|---|---:|---:|---:|")
    for law in LAWS:
        ratios = [case.ratio for case in found if case.law == law]
        broken = sum(ratio > 1 + asked.worse / 100 for ratio in ratios)
        print(f"| {law} | {len(ratios)} | {broken} | {max(ratios, default=1.0):.3f} |")


if __name__ == "__main__":
    main()
