"""All_reduce of 256 MiB on every family: time, bound and percent, beside the ring and a composition.

    python benchmarks/allreduce_families.py [FILTER]

The peers are simulated on the same network: the best-ordered ring, and a reduce_scatter followed by an
all_gather, each at its own bound. Seconds are CPU seconds of the search and the proof, once compiled.
"""

from __future__ import annotations

import sys
import time

from forest_cases import network_of

from probes.base.errors import UsageError
from synth import Request, synthesize
from synth.bounds.lower_bounds import bounds
from synth.collective import Kind, collective
from synth.network import Network
from synth.portfolio.plain import warm

SIZE_BYTES = 256 << 20
# (network, GB/s of each dimension)
CASES = (
    ("mesh:10x10", "53.687"),
    ("mesh:16x16", "53.687"),
    ("mesh:8x8x4", "53.687"),
    ("torus:10x10", "53.687"),
    ("torus:16x16", "53.687"),
    ("torus:6x6x6", "53.687"),
    ("ring:16", "53.687"),
    ("ring:64", "53.687"),
    ("ring:256", "53.687"),
    ("hypercube:64", "53.687"),
    ("hypercube:256", "53.687"),
    ("dragonfly:9x8", "400,200"),
    ("dragonfly:16x16", "400,200"),
    ("fully_connected:64", "50"),
    ("switch:64", "50"),
    ("switch_switch:8x8", "300,25"),
    ("rfs:2x4x8", "200,100,50"),
    ("rfs:2x4x16", "200,100,50"),
    ("rfs:2x4x32", "200,100,50"),
    ("fat_tree:8x8", "50"),
    ("fat_tree:8x4/2", "50"),
    ("dgx-1", ""),
    ("dgx-2:2", ""),
    ("dgx-a100:2", ""),
    ("dgx-a100:4", ""),
    ("ndv2:2", ""),
    ("ndv4:2", ""),
    ("mi250:2", ""),
    ("mi300x:2", ""),
)


def halves_s(network: Network) -> float:
    """Return the time of a reduce_scatter and then an all_gather, each at its bound."""
    kinds: tuple[Kind, ...] = ("reduce_scatter", "all_gather")
    chunk_bytes = SIZE_BYTES // network.ranks
    found = (bounds(network, collective(kind, network.ranks), chunk_bytes, fluid=True) for kind in kinds)
    return sum(each[0].time_s for each in found)


def ring_s(network: Network) -> float:
    """Return the time of the best-ordered ring; infinity if there is none."""
    try:
        found = synthesize(Request(network, "all_reduce", size_bytes=SIZE_BYTES, method="ring"))
    except UsageError:
        return float("inf")
    assert found.schedule.outcome is not None
    return found.schedule.outcome.time_s


def main(wanted: str = "") -> None:
    """Print a row for each case whose name contains ``wanted``."""
    warm()
    print(
        f"{'network':20}{'ranks':>6}{'method':>14}{'time ms':>9}{'bound':>9}{'percent':>9}"
        f"{'halves':>8}{'ring':>8}{'seconds':>9}  binding bound"
    )
    for spec, bandwidth in CASES:
        if wanted not in spec:
            continue
        network = network_of(spec, bandwidth)
        begun_s = time.process_time()
        schedule = synthesize(Request(network, "all_reduce", size_bytes=SIZE_BYTES)).schedule
        took_s = time.process_time() - begun_s
        outcome = schedule.outcome
        assert outcome is not None
        print(
            f"{spec:20}{network.ranks:6}{schedule.method:>14}{outcome.time_s * 1e3:9.3f}"
            f"{outcome.binding.time_s * 1e3:9.3f}{outcome.percent_of_optimal:8.1f}%"
            f"{halves_s(network) / outcome.time_s:7.2f}x{ring_s(network) / outcome.time_s:7.2f}x"
            f"{took_s:8.1f}s  {outcome.binding.name}",
            flush=True,
        )


if __name__ == "__main__":
    main(*sys.argv[1:2])
