"""Plan uneven collectives on drawn networks: percent of the proven bound, and time against padding.

    python -P benchmarks/demands.py [--cases 60] [--seed 1] [--most-ranks 32]

Each case draws a network, one of MPI's v-collectives and how its blocks differ: Zipf-skewed, one giant block,
most blocks empty, or drawn evenly. A row gives the percent of the bound, by how much whole chunks exceed the
blocks of the busiest rank, the time of the same collective with all blocks padded to the largest over ours
(padded / ours), the chunks, and the processor seconds of the search.
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np

from ccctl.arguments import load_network
from probes.base import Indices
from synth import Request, synthesize
from synth.collective import UNEVEN_KINDS, Kind
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
SHAPES = ("zipf", "giant", "sparse", "even")
BUSIEST_BYTES = 64 << 20


def main() -> None:
    """Print the table and what it comes to."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cases", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--most-ranks", type=int, default=32)
    wanted = parser.parse_args()
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
    assert outcome is not None and one.sets is not None
    rounding = size_bytes / int(one.sets.buffer_bytes().max()) - 1
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
