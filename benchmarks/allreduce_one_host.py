"""Our all_reduce on one host against the libraries' own, in the same run.

Prints, for each number of ranks and each size, with the data in private memory and with the data in the
window that the ranks share, the library's median time over ours: above 1 we are faster. All run in turn on
the same buffers; every element of all of them is checked.

    python -P benchmarks/allreduce_one_host.py [--iters N] [--ranks 2,4] [--sizes 1M,16M,64M] [--vs mpi,gloo]
"""

from __future__ import annotations

import argparse
from importlib.util import find_spec

from exec.benchmark.report import Report
from exec.benchmark.runner import BenchRequest, Contender
from exec.launcher.run import World, run_ranks
from probes.base import format_size, parse_size
from synth.collective import collective
from synth.compiler.lowering import lower
from synth.methods.ring import synthesize
from synth.networks.families import family

# (library, size): what the ratio must reach with private memory, and in the window; 0 where nothing is asked.
_GOALS = {
    ("mpi", 64 << 20): (2.0, 3.0),
    ("mpi", 16 << 20): (1.3, 0.0),
    ("mpi", 1 << 20): (0.9, 0.0),
    ("mpi", 4 << 10): (1 / 3, 0.0),
    ("gloo", 64 << 20): (2.0, 0.0),
    ("gloo", 16 << 20): (2.0, 0.0),
    ("gloo", 1 << 20): (2.0, 0.0),
}


def measure(ranks: int, sizes: list[int], iterations: int, peers: tuple[str, ...], *, window: bool) -> Report:
    """Return the report of one world: float32, out of place."""
    network = family(f"ring:{ranks}", [1e-6], [5e9])
    schedule = synthesize(network, collective("all_reduce", ranks, ranks), 1 << 20)
    request = BenchRequest(
        contenders=(Contender("ring", lower(schedule)),),
        counts=tuple(size // 4 for size in sizes),
        dtype="float32",
        redop="sum",
        warmup=3,
        iterations=iterations,
        placements=(False,),
        peers=peers,
        window=window,
    )
    report: Report = run_ranks("exec.benchmark.runner:bench_all_task", (request,), World(ranks))
    return report


def lines(report: Report, ranks: int, *, window: bool) -> list[str]:
    """Return a line for each size and library."""
    found = []
    for row in report.rows:
        ours = row.out_of_place
        assert ours is not None
        for name, theirs in row.peers.items():
            goal = _GOALS.get((name, row.size_bytes), (0.0, 0.0))[window]
            ratio = theirs.p50_s / ours.p50_s
            wrong = (ours.wrong or 0) + (theirs.wrong or 0)
            where = "window" if window else "private"
            found.append(
                f"{ranks:5} {format_size(row.size_bytes):>6} {where:>8} {name:>6} {ours.p50_s * 1e6:12.1f} "
                f"{theirs.p50_s * 1e6:12.1f} {ratio:8.2f} {f'{goal:.2f}' if goal else '-':>6} {wrong:6}"
            )
    return found


def main() -> None:
    """Print one line for each world, size, kind of memory and library."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--iters", type=int, default=20)
    options.add_argument("--ranks", default="2,4")
    options.add_argument("--sizes", default="4K,64K,1M,16M,64M")
    options.add_argument("--vs", default="mpi,gloo" if find_spec("torch") else "mpi")
    asked = options.parse_args()
    sizes = [parse_size(size, "--sizes") for size in asked.sizes.split(",")]
    print(
        f"{'ranks':>5} {'size':>6} {'memory':>8} {'peer':>6} {'ours (us)':>12} {'theirs (us)':>12} "
        f"{'ratio':>8} {'goal':>6} {'wrong':>6}"
    )
    for ranks in map(int, asked.ranks.split(",")):
        for window in (False, True):
            report = measure(ranks, sizes, asked.iters, tuple(asked.vs.split(",")), window=window)
            print(*lines(report, ranks, window=window), sep="\n", flush=True)
        print(f"      {report.library}")


if __name__ == "__main__":
    main()
