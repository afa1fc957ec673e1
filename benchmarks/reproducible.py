"""Print the price of a fixed order of sums, and whether results have the same bits on all networks.

    python -P benchmarks/reproducible.py [--sizes 1M,16M,256M] [--bits]

Each row plans one collective on one network twice: with sums in a fixed order, and in any order. The price is
the first time over the second, by the model of links. The percentages are of the proven bound of any order;
the bound of the fixed order is given as a multiple of this bound. With --bits the reference interpreter
computes the results of schedules for 2 to 16 ranks on several networks, of several sizes and chunks and
around a failed link, and their digests are compared.
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
from probes.base import parse_size
from synth import Request, synthesize
from synth.bounds import ORDER_BOUND
from synth.collective import Kind
from synth.compiler import lower
from synth.network import Network
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
# The ways to connect n ranks whose digests are compared.
SPECS = ("ring:{n}", "switch:{n}", "fully_connected:{n}", "mesh:{h}x2", "switch_switch:{h}x2", "torus:{h}x2")
ELEMENTS = 2000


def main() -> None:
    """Print the table of prices, or the count of digests."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sizes", default="1M,16M,256M")
    parser.add_argument("--networks", default=",".join(PRICED))
    parser.add_argument("--bits", action="store_true")
    wanted = parser.parse_args()
    if wanted.bits:
        compare_bits()
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


def compare_bits() -> None:
    """Compare the digests of all results for each number of ranks."""
    compared, different = 0, 0
    for ranks in range(2, 17):
        inputs = drawn_inputs(ranks)
        right: dict[int, str] = {}
        for network, options in cases(ranks):
            found = synthesize(network, "all_reduce", reproducible=True, **options)
            program = lower(found.listed)
            for elements in (1, 3, 100, ELEMENTS):
                for output in interpret(program, [one[:elements] for one in inputs]):
                    digest = hashlib.sha256(output.tobytes()).hexdigest()
                    compared += 1
                    different += digest != right.setdefault(elements, digest)
        print(f"{ranks:>2} ranks: {compared} results so far, {different} with other bits", flush=True)


def cases(ranks: int) -> Iterator[tuple[Network, dict[str, Any]]]:
    """Yield networks with sizes, chunks and failures."""
    for spec in SPECS:
        if "{h}" in spec and (ranks % 2 or ranks < 6):
            continue
        network = network_of(spec.format(n=ranks, h=ranks // 2))
        yield network, {"size_bytes": 512}
        yield network, {"size_bytes": 64 << 10}
        yield network, {"chunk_bytes": 256, "chunks": 1}
        yield network, {"chunk_bytes": 256, "chunks": 3 * ranks}
        if not spec.startswith("switch_switch") and ranks > 2:
            yield network, {"size_bytes": 8 << 10, "without": failures_of("link:0-1", network)}


def drawn_inputs(ranks: int) -> list[Array]:
    """Return inputs whose sums have different bits in another order."""
    random = np.random.default_rng(1)
    drawn = random.standard_normal((ranks, ELEMENTS)) * 2.0 ** random.integers(-6, 7, (ranks, ELEMENTS))
    return [np.ascontiguousarray(one, np.float32) for one in drawn]


if __name__ == "__main__":
    main()
