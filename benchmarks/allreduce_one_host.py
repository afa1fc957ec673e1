"""Our ring all_reduce against the MPI library's own, on this host, in the same run.

Prints, for 2 and 4 ranks and each size, the library's median time over ours: above 1 we are
faster. Both run in turn on the same buffers; every element of both is checked.

    python -P benchmarks/allreduce_one_host.py [--iters N] [--ranks 2,4] [--sizes 1K,64K,1M,16M,64M]
"""

from __future__ import annotations

import argparse

from ccctl.launch import World, run_ranks
from ccctl.sizes import format_size, parse_size
from exec.bench import BenchRequest
from exec.report import Report
from synth.collective import collective
from synth.compiler.lower import lower
from synth.families import family
from synth.methods.ring import synthesize


def measure(ranks: int, sizes: list[int], iterations: int) -> Report:
    """The report of one world: float32, out of place and in place."""
    network = family(f"ring:{ranks}", [1e-6], [5e9])
    schedule = synthesize(network, collective("all_reduce", ranks, ranks), 1 << 20)
    request = BenchRequest(
        program=lower(schedule),
        counts=tuple(size // 4 for size in sizes),
        predicted_s=(None,) * len(sizes),
        dtype="float32",
        redop="sum",
        warmup=3,
        iterations=iterations,
        placements=(False, True),
        peers=("mpi",),
    )
    report: Report = run_ranks("exec.bench:bench_task", request, World(ranks), label="bench")
    return report


def main() -> None:
    """Print one line for each world and size."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--iters", type=int, default=20)
    options.add_argument("--ranks", default="2,4")
    options.add_argument("--sizes", default="1K,64K,1M,16M,64M")
    asked = options.parse_args()
    sizes = [parse_size(size, "--sizes") for size in asked.sizes.split(",")]
    print(
        f"{'ranks':>5} {'size':>6} {'ours (us)':>12} {'library (us)':>12} {'library / ours':>14} {'wrong':>6}"
    )
    for ranks in map(int, asked.ranks.split(",")):
        report = measure(ranks, sizes, asked.iters)
        for row in report.rows:
            ours, theirs = row.out_of_place, row.peers["mpi"]
            assert ours is not None
            wrong = (ours.wrong or 0) + (theirs.wrong or 0)
            times = f"{ours.p50_s * 1e6:12.1f} {theirs.p50_s * 1e6:12.1f} {theirs.p50_s / ours.p50_s:14.2f}"
            print(f"{ranks:5} {format_size(row.size_bytes):>6} {times} {wrong:6}")
        print(f"      {report.library}")


if __name__ == "__main__":
    main()
