"""Plan uneven collectives on drawn networks: percent of the proven bound, and time against padding.

    python -P benchmarks/demands.py [--cases 60] [--seed 1] [--most-ranks 32]
    python -P benchmarks/demands.py --replan 40 [--seed 1]

Each case draws a network, one of MPI's v-collectives and how its blocks differ: Zipf-skewed, one giant block,
most blocks empty, or drawn evenly. A row gives the percent of the bound, by how much whole chunks exceed the
blocks of the busiest rank, the time of the same collective with all blocks padded to the largest over ours
(padded / ours), the chunks, and the processor seconds of the search.

With ``--replan`` each row is a network of 64 or 512 ranks, for which a planner draws and plans as many demand
matrices of an all_to_all: percent of the bound in the mean and at least, the time of direct sends and of
FAST's order of work over ours, and the processor milliseconds of a plan, warm. FAST (Lei et al., arXiv
2505.09764) balances the NICs of each host, then sends between hosts in permutations. Its time here is the
least that this order can take: the moves of balancing, then the busiest host; what follows costs it nothing.
The time of our plans is by their rates; the proven schedules of `ccctl synth` take 0.5 % more than the bound.
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np

from ccctl.arguments import load_network
from probes.base import Floats, Indices
from synth import DemandPlanner, Request, synthesize
from synth.collective import UNEVEN_KINDS, Kind
from synth.kernels import all_compiled
from synth.network import Network
from synth.portfolio import uneven_request

FAMILIES = (
    "ring:{n}",
    "switch:{n}",
    "torus:4x{m}",
    "mesh:3x{m}",
    "hypercube:4",
    "fat_tree:4x{m}/2",
    "dragonfly:{m}x3",
    "fully_connected:{n}",
    "ring_fc_switch:2x2x{m}",
)
MACHINES = ("dgx-1:1", "dgx-a100:1", "dgx-a100:2", "dgx-h100:2", "mi300x:1", "dgx-h100:8/rail/2")
REPLANNED = {
    64: ("dgx-h100:8", "dgx-h100:8/rail/2", "fat_tree:16x4/2", "fat_tree:8x8/4"),
    512: ("dgx-h100:64", "dgx-h100:64/rail/2", "fat_tree:16x32/2", "fat_tree:8x8x8/2"),
}
SHAPES = ("zipf", "giant", "sparse", "even")
BUSIEST_BYTES = 64 << 20


def main() -> None:
    """Print the table and what it comes to."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cases", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--most-ranks", type=int, default=32)
    parser.add_argument("--replan", type=int, default=0, metavar="N")
    wanted = parser.parse_args()
    if wanted.replan:
        replan(wanted.replan, wanted.seed)
        return
    rng = np.random.default_rng(wanted.seed)
    percents, ratios, seconds = [], [], []
    print(
        "network               collective      blocks  ranks  % bound  rounding %  padded/ours  chunks  CPU s"
    )
    for number in range(wanted.cases):
        name, network = drawn_network(rng, wanted.most_ranks)
        kind = UNEVEN_KINDS[number % len(UNEVEN_KINDS)]
        shape = str(rng.choice(SHAPES))
        sizes = drawn_sizes(kind, network.ranks, shape, rng)
        began_s = time.process_time()
        percent, own_s, rounding, chunks = planned(network, kind, sizes)
        took_s = time.process_time() - began_s
        if not own_s:
            continue  # The only block with data is already where it belongs.
        ratio = padded_s(network, kind, sizes) / own_s
        print(
            f"{name:<22}{kind:<16}{shape:<8}{network.ranks:>5}{percent:>9.1f}{100 * rounding:>12.1f}"
            f"{ratio:>13.2f}{chunks:>8}{took_s:>7.1f}",
            flush=True,
        )
        percents.append(percent)
        ratios.append(ratio)
        seconds.append(took_s)
    print(
        f"{len(percents)} cases: {statistics.mean(percents):.1f} % of the bound in the mean, "
        f"{min(percents):.1f} at least; padded / ours {statistics.geometric_mean(ratios):.2f} (geometric "
        f"mean), {min(ratios):.2f} at least; {statistics.median(seconds):.1f} CPU s in the median, "
        f"{max(seconds):.1f} at most"
    )


def replan(times: int, seed: int) -> None:
    """Print a row for each network and shape of demand."""
    print("network               blocks  % bound  least  direct/ours  FAST/ours  CPU ms p50   p99")
    percents = []
    for ranks, names in REPLANNED.items():
        taken_ms = []
        for name in names:
            costs = ("1us", "25GB/s") if name.startswith("fat_tree") else (None, None)
            network = load_network(name, *costs)[0]
            planner = DemandPlanner(network)
            for shape in SHAPES:
                rng = np.random.default_rng([seed, ranks])
                rows = [replanned(planner, network, shape, rng) for _ in range(times + 1)][1:]
                percent, direct, fast, ms = (np.array(column) for column in zip(*rows, strict=True))
                percents += percent.tolist()
                taken_ms += ms.tolist()
                balanced = f"{statistics.geometric_mean(fast):>11.2f}" if name.startswith("dgx") else " " * 11
                print(
                    f"{name:<22}{shape:<8}{percent.mean():>7.1f}{percent.min():>7.1f}"
                    f"{statistics.geometric_mean(direct):>13.2f}{balanced}{np.median(ms):>12.1f}"
                    f"{np.quantile(ms, 0.99):>6.1f}",
                    flush=True,
                )
        p50, p99 = np.quantile(taken_ms, [0.5, 0.99])
        print(f"{ranks} ranks: {p50:.1f} ms in the median, {p99:.1f} p99 of {len(taken_ms)} plans")
    print(f"{statistics.mean(percents):.1f} % of the bound in the mean, {min(percents):.1f} at least")


def replanned(
    planner: DemandPlanner, network: Network, shape: str, rng: np.random.Generator
) -> tuple[float, float, float, float]:
    """Return (percent of the bound, direct / ours, FAST / ours, processor ms) of a drawn demand."""
    demand = np.array(drawn_sizes("all_to_all", network.ranks, shape, rng), float)
    demand = demand.reshape(network.ranks, -1)
    began_s = time.process_time()
    with all_compiled():
        plan = planner.plan(demand)
    took_s = time.process_time() - began_s
    fast = fast_s(network, demand) / plan.time_s
    return plan.percent_of_optimal, plan.direct_s / plan.time_s, fast, 1e3 * took_s


def fast_s(network: Network, demand: Floats) -> float:
    """Return the least time of FAST's order of work on equal hosts of as many NICs as ranks."""
    host = network.host_of
    hosts = int(host.max()) + 1
    size = network.ranks // hosts
    of_host = (host[:, None] == np.arange(hosts)).astype(float)
    out = demand @ of_host
    out[np.arange(network.ranks), host] = 0.0
    between = of_host.T @ out
    even = between[host] / size
    surplus = np.maximum(out - even, 0.0).sum(axis=1).max()
    missing = np.maximum(even - out, 0.0).sum(axis=1).max()
    inside = network.within_host
    inside_s = float(network.beta_s_per_byte[inside].min()) if inside.any() else 0.0
    across_s = float(network.beta_s_per_byte[~inside].min()) / size
    busiest = max(between.sum(axis=0).max(), between.sum(axis=1).max())
    return float(max(surplus, missing) * inside_s + busiest * across_s)


def drawn_network(rng: np.random.Generator, most_ranks: int) -> tuple[str, Network]:
    """Return a network of a family or a machine with at most ``most_ranks`` ranks, and its name."""
    while True:
        if rng.random() < 0.4:
            name = str(rng.choice(MACHINES))
            network = load_network(name, None, None)[0]
        else:
            name = str(rng.choice(FAMILIES)).format(n=rng.integers(3, 17), m=rng.integers(2, 7))
            levels = name.count("_", 0, name.index(":")) + 1 if name.startswith("ring_fc") else 1
            rates = ",".join(str(rng.choice([12, 25, 50, 100])) for _ in range(levels)) + "GB/s"
            network = load_network(name, f"{rng.choice([1, 2, 5])}us", rates)[0]
        if network.ranks <= most_ranks:
            return name, network


def drawn_sizes(kind: Kind, ranks: int, shape: str, rng: np.random.Generator) -> list[int]:
    """Return sizes of the blocks; a rank's larger buffer is about 64 MiB."""
    blocks = ranks**2 if kind == "all_to_all" else ranks
    weight = {
        "zipf": rng.permutation(1 / (1.0 + np.arange(blocks)) ** 1.2),
        "giant": np.where(np.arange(blocks) == rng.integers(blocks), 4.0 * ranks, 1.0),
        "sparse": (rng.random(blocks) < 0.25) * rng.random(blocks),
        "even": 0.5 + rng.random(blocks),
    }[shape]
    if not weight.any():
        weight[0] = 1.0
    whole = weight.sum() / (ranks if kind == "all_to_all" else 1)
    sizes: Indices = np.round(weight / whole * BUSIEST_BYTES).astype(np.int64)
    return [int(size) for size in sizes]


def planned(network: Network, kind: Kind, sizes: list[int]) -> tuple[float, float, float, int]:
    """Return (percent of the bound, simulated seconds, growth by whole chunks, chunks)."""
    one, size_bytes = uneven_request(kind, network.ranks, sizes)
    found = synthesize(Request(network, "custom", size_bytes=size_bytes, collectives=(one,), jobs=0))
    outcome = found.listed.outcome
    assert outcome is not None and one.sets is not None and one.sets.blocks is not None
    rounding = size_bytes / int(one.sets.blocks.buffer_bytes(network.ranks).max()) - 1
    return outcome.percent_of_optimal, outcome.time_s, rounding, found.schedule.whole.chunks


def padded_s(network: Network, kind: Kind, sizes: list[int]) -> float:
    """Return the time of the collective with equal blocks, all as large as the largest."""
    whole_bytes = max(sizes) * network.ranks
    found = synthesize(Request(network, kind, size_bytes=whole_bytes, jobs=0))
    outcome = found.listed.outcome
    assert outcome is not None
    return outcome.time_s


if __name__ == "__main__":
    main()
