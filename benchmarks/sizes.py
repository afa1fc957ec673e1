"""Percent of the proven bound against size, for every collective on several networks.

    python -P benchmarks/sizes.py [--networks ring:8,torus:4x4x4] [--collectives all_reduce] [--sizes 1K,16K]
        [--random 5] [--seed 1] [--below 85]

Without options: 1 KiB to 1 GiB by factors of four, five collectives, six networks that have names and five
drawn at random. A cell is the simulated time's percent of the largest proven lower bound; 100 is proven
optimal. With ``--below`` the cells under that percent follow, each with its method and what binds it.
"""

from __future__ import annotations

import argparse
import random
import time
from dataclasses import dataclass
from itertools import pairwise

from ccctl.arguments.units import format_size, parse_size
from synth.collective import Kind, kind_of
from synth.network import Link, Network, build
from synth.networks.dgx import is_pod, pod
from synth.networks.families import family
from synth.portfolio.synthesize import Request, synthesize

# GB/s of each dimension, where the network does not say itself.
NAMED = {
    "ring:8": "50",
    "torus:4x4x4": "50",
    "dgx-a100:4": "",
    "rfs:2x4x8": "200,100,50",
    "fat_tree:8x8": "50",
    "dragonfly:9x8": "400,200",
}
KINDS: tuple[Kind, ...] = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")
SIZES = tuple(1 << power for power in range(10, 31, 2))
ALPHA_S = 0.7e-6


@dataclass(frozen=True)
class Cell:
    """One collective of one size on one network, and how near its schedule comes to the bound."""

    network: str
    kind: Kind
    size_bytes: int
    percent: float
    method: str
    binds: str
    seconds: float


def named(spec: str) -> Network:
    """The network of this name, with links of 0.7 µs."""
    if is_pod(spec):
        return pod(spec)
    bandwidths = [float(word) * 1e9 for word in NAMED.get(spec, "50").split(",")]
    return family(spec, [ALPHA_S], bandwidths)


def drawn(seed: int) -> Network:
    """Hosts of equal size, each a line of ranks with random chords, joined by their NICs."""
    draw = random.Random(seed)
    hosts, size = draw.randint(2, 5), draw.randint(1, 6)
    ranks = hosts * size
    inside_s, inside = draw.uniform(0.5e-6, 2e-6), draw.choice((20e9, 50e9, 200e9))
    links: dict[tuple[int, int], Link] = {}
    for host in range(hosts):
        members = list(range(host * size, host * size + size))
        chords = [(a, b) for a in members for b in members if a < b and b != a + 1 and draw.random() < 0.4]
        for a, b in [*pairwise(members), *chords]:
            for ends in ((a, b), (b, a)):
                links[ends] = Link(*ends, inside_s, 1 / inside)
    alphas_s = [draw.uniform(2e-6, 20e-6) for _ in range(hosts)]
    rates = [draw.choice((1.25e9, 12.5e9, 25e9)) for _ in range(hosts)]
    for a in range(ranks):
        for b in range(ranks):
            from_host, to_host = a // size, b // size
            if from_host != to_host:
                alpha_s = max(alphas_s[from_host], alphas_s[to_host])
                beta = 1 / min(rates[from_host], rates[to_host])
                links[a, b] = Link(a, b, alpha_s, beta, (f"out {from_host}", f"in {to_host}"))
    names = [f"h{rank // size}" for rank in range(ranks)]
    return build(f"random:{seed} ({hosts}x{size})", names, links.values())


def measured(network: Network, kind: Kind, size_bytes: int) -> Cell:
    """What `synth` finds."""
    begun_s = time.process_time()
    found = synthesize(Request(network=network, kind=kind, size_bytes=size_bytes, jobs=0))
    outcome = found.schedule.outcome
    assert outcome is not None
    return Cell(
        network.name,
        kind,
        size_bytes,
        outcome.percent_of_optimal,
        found.schedule.method,
        f"{outcome.binding.name} {outcome.binding.detail}".strip(),
        time.process_time() - begun_s,
    )


def main() -> None:
    """Print one row for each network and collective, and then what fell short."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--networks", default=",".join(NAMED), help="names, with commas between them")
    parser.add_argument("--collectives", default=",".join(KINDS))
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    parser.add_argument("--random", type=int, default=5, help="so many networks drawn at random")
    parser.add_argument("--seed", type=int, default=1, help="of the first network drawn")
    parser.add_argument("--below", type=float, help="list the cells under this percent")
    asked = parser.parse_args()
    sizes = [parse_size(word) for word in asked.sizes.split(",")]
    networks = [named(spec) for spec in asked.networks.split(",") if spec]
    networks += [drawn(asked.seed + number) for number in range(asked.random)]
    cells: list[Cell] = []
    print("| network | collective | " + " | ".join(map(format_size, sizes)) + " | CPU s |")
    print("|---|---|" + "---:|" * (len(sizes) + 1))
    for network in networks:
        for kind in map(kind_of, asked.collectives.split(",")):
            row = [measured(network, kind, size) for size in sizes]
            cells += row
            percents = " | ".join(f"{cell.percent:.1f}" for cell in row)
            seconds = sum(cell.seconds for cell in row)
            print(f"| {network.name} | {kind} | {percents} | {seconds:.1f} |", flush=True)
    if asked.below is not None:
        short = [cell for cell in cells if cell.percent < asked.below]
        print(f"\n{len(short)} of {len(cells)} cells are below {asked.below:g} %:\n")
        for cell in short:
            print(
                f"- {cell.network} {cell.kind} {format_size(cell.size_bytes)}: {cell.percent:.1f} %, "
                f"{cell.method}; bound: {cell.binds}"
            )


if __name__ == "__main__":
    main()
