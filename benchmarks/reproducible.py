"""Print the price of a fixed order of sums, and whether results have the same bits on all networks.

    python -P benchmarks/reproducible.py [--sizes 1M,16M,256M]
    python -P benchmarks/reproducible.py --bits [--ranks 2-16]

Each row plans one collective on one network twice: with sums in a fixed order, and in any order. The price is
the first time over the second, by the model of links. The percentages are of the proven bound of any order;
the bound of the fixed order is given as a multiple of this bound. With --bits the reference interpreter
computes results of 20 lengths, for each number of ranks on ten networks, with three chunkings and around a
failed link, and compares their digests.
"""

from __future__ import annotations

import argparse
import hashlib
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from ccctl.arguments import load_network
from exec.program import Array
from exec.program.interpreter import interpret
from probes.base import UsageError, parse_size
from synth import Request, synthesize
from synth.bounds import ORDER_BOUND
from synth.collective import Kind
from synth.compiler import lower
from synth.network import Link, Network, build
from synth.networks import failures_of

PRICED = (
    "switch:8",
    "switch:16",
    "fat_tree:4x4/2",
    "dgx-a100:1",
    "dgx-a100:2",
    "dgx-h100:2",
    "dgx-h100:4",
    "ring:8",
    "torus:4x4",
    "hypercube:16",
)
KINDS: tuple[Kind, ...] = ("reduce_scatter", "all_reduce")
# The ways to connect n ranks whose digests are compared, for all n and for even n; drawn links make them ten.
SPECS = ("ring:{n}", "mesh:{n}", "switch:{n}", "fully_connected:{n}")
EVEN_SPECS = ("mesh:{h}x2", "torus:{h}x2", "switch_switch:{h}x2", "fat_tree:{h}x2")
NETWORKS = 10
# The lengths of buffers whose results are compared.
LENGTHS = (1, 2, 3, 4, 5, 7, 8, 13, 21, 33, 55, 64, 100, 144, 255, 377, 610, 1024, 1597, 2000)


def main() -> None:
    """Print the table of prices, or the count of digests."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sizes", default="1M,16M,256M")
    parser.add_argument("--networks", default=",".join(PRICED))
    parser.add_argument("--bits", action="store_true")
    parser.add_argument("--ranks", default="2-16", help="with --bits")
    wanted = parser.parse_args()
    if wanted.bits:
        low, _, high = wanted.ranks.partition("-")
        compare_bits(range(int(low), int(high or low) + 1))
        return
    print("network            collective      size  price  % in order  % in any order  order's bound  CPU s")
    for spec in wanted.networks.split(","):
        for kind in KINDS:
            for size in wanted.sizes.split(","):
                print(row(spec, kind, size), flush=True)


def row(spec: str, kind: Kind, size: str) -> str:
    """Return the row of one collective."""
    began_s = time.process_time()
    request = Request(network_of(spec), kind, size_bytes=parse_size(size, "size"), jobs=0, reproducible=True)
    found = synthesize(request)
    outcome = found.listed.outcome
    assert outcome is not None and found.any_order_s is not None
    free_s = max(bound.time_s for bound in outcome.bounds if bound.name != ORDER_BOUND)
    order_s = max((bound.time_s for bound in outcome.bounds if bound.name == ORDER_BOUND), default=0.0)
    return (
        f"{spec:<19}{kind:<14}{size:>6}{outcome.time_s / found.any_order_s:>7.2f}"
        f"{100 * free_s / outcome.time_s:>12.1f}{100 * free_s / found.any_order_s:>16.1f}"
        f"{order_s / free_s:>15.2f}{time.process_time() - began_s:>7.1f}"
    )


def network_of(spec: str) -> Network:
    """Return the network; links of families carry 50 GB/s after 1 us."""
    machine = spec.startswith("dgx")
    rates = ",".join(["50GB/s"] * (2 if spec.startswith("switch_switch") else 1))
    return load_network(spec, None if machine else "1us", None if machine else rates)[0]


def compare_bits(worlds: range) -> None:
    """Compare the digests of all results for each number of ranks."""
    compared, different = 0, 0
    for ranks in worlds:
        inputs = drawn_inputs(ranks)
        right: dict[int, str] = {}
        for network, options in cases(ranks):
            try:
                found = synthesize(network, "all_reduce", reproducible=True, **options)
            except UsageError:  # without that link no path is left, or there is no such link
                if "without" not in options:
                    raise
                continue
            program = lower(found.listed)
            for elements in LENGTHS:
                for output in interpret(program, [one[:elements] for one in inputs]):
                    digest = hashlib.sha256(output.tobytes()).hexdigest()
                    compared += 1
                    different += digest != right.setdefault(elements, digest)
        print(f"{ranks:>2} ranks: {compared} results so far, {different} with other bits", flush=True)


def cases(ranks: int) -> Iterator[tuple[Network, dict[str, Any]]]:
    """Yield ten networks, each in three chunkings, and one after the loss of a link."""
    specs = SPECS + (EVEN_SPECS if ranks % 2 == 0 and ranks >= 6 else ())
    networks = [network_of(spec.format(n=ranks, h=ranks // 2)) for spec in specs]
    networks += [drawn_links(ranks, seed) for seed in range(NETWORKS - len(networks))]
    for network in networks:
        yield network, {"size_bytes": 64 << 10}
        yield network, {"chunk_bytes": 256, "chunks": 1}
        yield network, {"chunk_bytes": 256, "chunks": 3 * ranks}
        yield network, {"size_bytes": 8 << 10, "without": failures_of("link:0-1", network)}


def drawn_links(ranks: int, seed: int) -> Network:
    """Return a ring of links both ways with as many further links, all with drawn costs."""
    random = np.random.default_rng((ranks, seed))
    ends = {(rank, (rank + step) % ranks) for rank in range(ranks) for step in (1, ranks - 1)}
    ends |= {(int(a), int(b)) for a, b in random.integers(ranks, size=(ranks, 2)) if a != b}
    links = [Link(*one, random.uniform(0.5e-6, 5e-6), random.uniform(1e-11, 1e-10)) for one in sorted(ends)]
    return build(f"drawn:{ranks}-{seed}", ["host"] * ranks, links)


def drawn_inputs(ranks: int) -> list[Array]:
    """Return inputs whose sums have different bits in another order."""
    random = np.random.default_rng(1)
    drawn = random.standard_normal((ranks, LENGTHS[-1])) * 2.0 ** random.integers(-6, 7, (ranks, LENGTHS[-1]))
    return [np.ascontiguousarray(one, np.float32) for one in drawn]


if __name__ == "__main__":
    main()
