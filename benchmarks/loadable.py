"""Compare the schedules that runtimes can load with the best ones, in percent of the proven bound.

    python -P benchmarks/loadable.py [--networks dgx-h100:4,dgx-a100:2] [--collectives all_reduce,all_gather]
        [--sizes 64K,1M,64M] [--runtimes msccl,rccl,mscclpp] [--run]

Each cell has one row: the percent of the bound without the runtime's limits (free) and within them (loaded),
the number of operations of the plan or of instructions of the XML, the seconds of search, compilation and
proof, and the limit that forbids the fastest schedule. With ``--run``, each XML is read back, the reference
interpreter runs it, and wrong elements are counted; plans are not run. The last lines give, for each runtime,
how many cells load, and their mean and least share of the unrestricted speed.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import defaultdict

import numpy as np

from ccctl.arguments import load_network
from exec.program import Layout
from exec.program.expected_output import expected, given
from exec.program.interpreter import interpret
from probes.base import CcctlError, format_size, parse_size
from synth import Request, synthesize
from synth.collective import Kind, kind_of
from synth.msccl import read_xml, write_xml
from synth.network import Network
from synth.portfolio import RUNTIMES, Synthesis, cores

NETWORKS = "dgx-1:1,dgx-a100:1,dgx-a100:2,dgx-h100:1,dgx-h100:4,dgx-b200:1,mi300x:1"
KINDS = "all_reduce,all_gather,reduce_scatter,all_to_all"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--networks", default=NETWORKS)
    parser.add_argument("--collectives", default=KINDS)
    parser.add_argument("--sizes", default="64K,1M,64M")
    parser.add_argument("--runtimes", default=",".join(RUNTIMES))
    parser.add_argument("--run", action="store_true")
    wanted = parser.parse_args()
    print("network        collective      size  runtime  free %  loaded %  operations  seconds  wrong  limit")
    shares: dict[str, list[float]] = defaultdict(list)
    for name in wanted.networks.split(","):
        network = load_network(name, None, None)[0]
        for kind in map(kind_of, wanted.collectives.split(",")):
            for size in wanted.sizes.split(","):
                for runtime in wanted.runtimes.split(","):
                    share = row(name, network, kind, parse_size(size), runtime, run=wanted.run)
                    shares[runtime].append(share)
    for runtime, found in shares.items():
        loaded = [one for one in found if one]
        print(
            f"{runtime}: {len(loaded)} of {len(found)} cells load, at {statistics.mean(loaded):.1%} of the "
            f"unrestricted speed in the mean, {min(loaded):.1%} at least"
        )


def row(name: str, network: Network, kind: Kind, size_bytes: int, runtime: str, *, run: bool) -> float:
    """Print one cell; return the loaded schedule's share of the unrestricted speed, 0 if nothing loads."""
    began_s = time.perf_counter()
    head = f"{name:14s} {kind:14s} {format_size(size_bytes):>5s}  {runtime:7s}"
    try:
        found = synthesize(Request(network, kind, size_bytes=size_bytes, jobs=cores(), runtime=runtime))
    except CcctlError as error:
        print(f"{head}  {error.message.splitlines()[-1]}", flush=True)
        return 0.0
    seconds = time.perf_counter() - began_s
    outcome, loaded = found.listed.outcome, found.loaded
    assert outcome is not None
    assert loaded is not None
    size = loaded.plan.operations if loaded.plan else loaded.program.steps
    wrong = str(wrong_elements(found)) if run and loaded.plan is None else "-"
    print(
        f"{head}  {loaded.unrestricted_percent:6.1f}  {outcome.percent_of_optimal:8.1f}  {size:10d}  "
        f"{seconds:7.1f}  {wrong:>5s}  {loaded.limit[:60]}",
        flush=True,
    )
    return outcome.percent_of_optimal / loaded.unrestricted_percent


def wrong_elements(found: Synthesis) -> int:
    """Run the XML as read back in the interpreter; return the number of wrong elements."""
    assert found.loaded is not None
    program = read_xml(write_xml(found.loaded.program), "the file")
    layout, dtype = Layout(program, program.collective.chunks), np.dtype(np.float32)
    ranks = range(program.ranks)
    outputs = interpret(program, [given(layout, rank, dtype, "sum") for rank in ranks])
    return sum(int((outputs[rank] != expected(layout, rank, dtype, "sum")).sum()) for rank in ranks)


if __name__ == "__main__":
    main()
