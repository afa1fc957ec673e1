"""All_reduce in random racks, whose NICs, trunks and pairs differ by direction: bounds and trees.

    python -P benchmarks/uneven_racks.py [--networks 16] [--seed 0] [--size 8M]

Hosts send at 40, 60 or 100 Mbit/s and half of them receive at another rate; racks of random sizes are behind
trunks of 30, 60 or 90 Mbit/s, and one pair in twenty carries a quarter. A row gives four ratios: the bound
with the best prices of links and ports over the largest of the other bounds; the time of a byte by a packing
of trees for both directions over a packing of pairs (a tree up and a tree down); the bound over the simulated
time of ``auto``; and the best of ring, tree, direct and halving-doubling over ``auto``.
"""

from __future__ import annotations

import argparse
import time
from statistics import geometric_mean

import numpy as np

from probes.base import parse_size
from synth import Request, synthesize
from synth.bounds.lower_bounds import bounds
from synth.collective import Collective
from synth.errors import NotApplicableError
from synth.network import Link, Network, build
from synth.tree_packing.arborescence_pairs import pack_pairs
from synth.tree_packing.spanning_trees import pack, pair_links

MBIT = 125_000
CLASSIC = ("ring", "tree", "direct", "halving_doubling")


def drawn(chance: np.random.Generator, hosts: int) -> tuple[Network, list[int]]:
    """Return (a network, the sizes of its racks)."""
    sizes: list[int] = []
    while sum(sizes) < hosts:
        sizes.append(min(hosts - sum(sizes), int(chance.integers(1, max(2, hosts // 2) + 1))))
    rack = np.repeat(np.arange(len(sizes)), sizes)
    sends = chance.choice([100, 100, 100, 40, 60], hosts)
    receives = np.where(chance.random(hosts) < 0.5, sends, chance.choice([100, 40, 60], hosts))
    trunk = chance.choice([30, 60, 90], len(sizes))
    links = []
    for src in range(hosts):
        for dst in range(hosts):
            if src == dst:
                continue
            far = rack[src] != rack[dst]
            rates = [sends[src], receives[dst], *((trunk[rack[src]], trunk[rack[dst]]) if far else ())]
            ports = (f"out {src}", f"in {dst}", *((f"up {rack[src]}", f"down {rack[dst]}") if far else ()))
            rate = min(rates) / (4 if chance.random() < 0.05 else 1)
            links.append(Link(src, dst, 6e-5, 1 / (rate * MBIT), ports))
    return build("racks", [f"h{host}" for host in range(hosts)], links), sizes


def classic_s(network: Network, size_bytes: int) -> float:
    """Return the simulated time of the fastest classic algorithm."""
    found = []
    for method in CLASSIC:
        try:
            found.append(synthesize(Request(network, "all_reduce", size_bytes=size_bytes, method=method)))
        except NotApplicableError:
            continue
    return min(each.schedule.outcome.time_s for each in found if each.schedule.outcome)


def main() -> None:
    """Print a row for each network, then geometric means."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--networks", type=int, default=16)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--size", default="8M")
    options = parser.parse_args()
    chance, size_bytes = np.random.default_rng(options.seed), parse_size(options.size, "--size")
    print(f"seed {options.seed}")
    print("hosts, racks; bound / others; both ways / pairs; of bound; classic / auto; CPU s")
    rows: list[tuple[float, ...]] = []
    for _ in range(options.networks):
        network, sizes = drawn(chance, int(chance.integers(3, 13)))
        found = bounds(network, Collective("all_reduce", network.ranks, 1), 1 << 40, fluid=True)
        others_s = max(bound.time_s for bound in found if bound.name != "spanning trees")
        both_ways = pack(pair_links(network)).s_per_byte / pack_pairs(network).s_per_byte
        started_s = time.process_time()
        outcome = synthesize(Request(network, "all_reduce", size_bytes=size_bytes)).schedule.outcome
        took_s = time.process_time() - started_s
        if outcome is None:
            raise SystemExit("no schedule")
        shares = (
            found[0].time_s / others_s,
            both_ways,
            outcome.percent_of_optimal / 100,
            classic_s(network, size_bytes) / outcome.time_s,
        )
        rows.append(shares)
        print(
            f"{network.ranks:3} {'+'.join(map(str, sizes)):12} {shares[0]:6.2f} {shares[1]:6.2f} "
            f"{shares[2]:7.1%} {shares[3]:6.2f} {took_s:6.1f}",
            flush=True,
        )
    columns = [list(column) for column in zip(*rows, strict=True)]
    print(
        f"geometric means: bound / others {geometric_mean(columns[0]):.2f} (most {max(columns[0]):.2f}), "
        f"both ways / pairs {geometric_mean(columns[1]):.2f} (most {max(columns[1]):.2f}), "
        f"of bound {geometric_mean(columns[2]):.1%} (least {min(columns[2]):.1%}), "
        f"classic / auto {geometric_mean(columns[3]):.2f}"
    )


if __name__ == "__main__":
    main()
