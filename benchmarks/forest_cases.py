"""Throughput-optimal trees of an all_gather: seconds to find the bound and the trees, and simulated times.

    python benchmarks/forest_cases.py [FILTER]

ForestColl's figures are those of its released Python code, measured once on a machine of two cores; this code
neither proves nor simulates its trees. Ours are CPU seconds, once compiled.
"""

from __future__ import annotations

import sys
import time

import numpy as np

from synth import Request, synthesize
from synth.check.schedule import check
from synth.network import Network
from synth.networks.dgx import is_pod, pod
from synth.networks.families import family
from synth.schedules import Schedule
from synth.tree_packing.integral_packing import gathering_trees, optimum

SIZE_BYTES = 256 << 20
# (network, bandwidth in GB/s, ForestColl: seconds of its bound, seconds of its trees, trees, highest)
CASES = (
    ("dgx-a100:1", "", 0.08, 0.28, 8, 7),
    ("dgx-a100:2", "", 0.81, 17.5, 43, 9),
    ("mesh:4x4", "50", 0.08, 0.87, 23, 8),
    ("torus:4x4", "50", 0.18, 1.7, 38, 8),
    ("hypercube:16", "50", 0.15, 1.4, 33, 10),
    ("ring:16", "50", 0.11, 0.89, 25, 15),
    ("mesh:8x8", "50", 1.5, 29.9, 64, 17),
    ("torus:8x8", "50", 2.6, 47.2, 64, 16),
    ("mesh:10x10", "50", 6.9, 169.0, 100, 22),
    ("hypercube:64", "50", 3.4, None, None, None),
    ("mesh:16x16", "50", 28.5, None, None, None),
    ("torus:16x16", "50", None, None, None, None),
    ("rfs:2x4x32", "200,100,50", None, None, None, None),
)


def network_of(spec: str, bandwidth: str) -> Network:
    """Return the family or machine that ``spec`` names."""
    if is_pod(spec):
        return pod(spec)
    return family(spec, [5e-7], [float(value) * 1e9 for value in bandwidth.split(",")])


def height(schedule: Schedule) -> int:
    """Return the number of links on the longest way of a chunk."""
    network, depth = schedule.network, np.zeros((schedule.network.ranks, schedule.collective.chunks), int)
    for chunk, link in zip(schedule.chunk.tolist(), schedule.link.tolist(), strict=True):
        depth[network.dst[link], chunk] = depth[network.src[link], chunk] + 1
    return int(depth.max())


def main(wanted: str = "") -> None:
    """Print a row for each case whose name contains ``wanted``."""
    print(
        f"{'network':14}{'ranks':>6} | {'ForestColl: bound':>17}{'trees':>8}{'high':>6}{'seconds':>9} |"
        f"{'ours: bound':>12}{'trees':>7}{'high':>6}{'seconds':>9}{'GB/s':>10}{'optimal':>9}{'simulated':>11}"
    )
    optimum(family("ring:4", [0.0], [1e9]))
    gathering_trees(family("ring:4", [0.0], [1e9]), 2)
    for spec, bandwidth, *theirs in CASES:
        if wanted not in spec:
            continue
        network = network_of(spec, bandwidth)
        begun_s = time.process_time()
        least = optimum(network)
        bound_s = time.process_time() - begun_s
        packing = gathering_trees(network, least.trees_a_root)
        trees_s = time.process_time() - begun_s - bound_s
        proven = "proven" if packing.s_per_byte <= packing.bound_s_per_byte else "no"
        found = synthesize(Request(network, "all_gather", size_bytes=SIZE_BYTES, method="forest")).schedule
        assert not check(found) and found.outcome
        cells = ["-" if value is None else f"{value:g}" for value in theirs]
        print(
            f"{spec:14}{network.ranks:6} | {cells[0]:>15} s{cells[2]:>8}{cells[3]:>6}{cells[1]:>7} s |"
            f"{bound_s:10.2f} s{len(packing.trees):7}{height(found):6}{trees_s:7.2f} s"
            f"{1e-9 / packing.s_per_byte:10.2f}{proven:>9}{found.outcome.percent_of_optimal:9.1f} %",
            flush=True,
        )


if __name__ == "__main__":
    main(*sys.argv[1:2])
