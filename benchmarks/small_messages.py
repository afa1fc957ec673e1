"""Short messages on one host, beside Open MPI, MPICH and gloo: 4 B to 64 KiB, one table.

Each library is in the environment of one Python, because two MPI libraries do not go together. ``--with``
names these environments; the first library is in this script's own. In each environment the same programs run
in turn with the library, on the same buffers, with every element checked, so each library has ours beside it
in the same run. ``--rounds`` is the number of rounds over all environments; medians are of the rounds'
medians. A library's column is its time over ours: above 1 ours is faster. Ours is at each size the best of
the plain algorithms, by the median of all runs, as a race would choose. ``--aggregate`` times that many calls
as one, without a barrier between them.

    python -P benchmarks/small_messages.py [--with mpich=PYTHON] [--with gloo=PYTHON] [--ranks 2,4]
        [--sizes 4,16,…] [--collectives all_reduce,…] [--aggregate 1] [--rounds 3]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

from exec.benchmark.report import Report
from exec.benchmark.runner import BenchRequest, Contender
from exec.launcher.run import World, run_ranks
from probes.base import format_size, parse_size
from synth.collective import collective, kind_of
from synth.compiler.lowering import lower
from synth.errors import NotApplicableError
from synth.networks.families import family
from synth.portfolio.attempts import METHODS
from synth.program import Program

_PLAIN = ("ring", "direct", "doubling", "halving_doubling", "tree")
_COLLECTIVES = "all_reduce,all_gather,reduce_scatter,all_to_all,broadcast"


def programs(kind: str, ranks: int) -> dict[str, Program]:
    """Return each plain algorithm that serves the collective, with one chunk and with one for each rank."""
    network, found = family(f"fully_connected:{ranks}", [1e-6], [5e9]), {}
    for name in _PLAIN:
        for chunks in {1, ranks} if kind in ("all_reduce", "broadcast") else {1}:
            wanted = collective(kind_of(kind), ranks, chunks)
            try:
                found[f"{name} {chunks}"] = lower(METHODS[name].synthesize(network, wanted, 1 << 10))
            except NotApplicableError:
                continue
    return found


def measure(ranks: int, kind: str, asked: argparse.Namespace, library: str) -> dict[str, Any]:
    """Return medians in microseconds, of each program at each size and of the library, and wrong elements."""
    every = programs(kind, ranks)
    collective = next(iter(every.values())).collective
    blocks = collective.total_bytes(1) // collective.share
    counts = tuple(dict.fromkeys(max(1, size // 4 // blocks) for size in asked.sizes))
    request = BenchRequest(
        contenders=tuple(Contender(name, program) for name, program in every.items()),
        counts=counts,
        dtype="float32",
        redop="sum",
        warmup=10,
        iterations=asked.iters,
        placements=(False,),
        peers=(library,),
        aggregate=asked.aggregate,
    )
    report: Report = run_ranks("exec.benchmark.runner:bench_all_task", (request,), World(ranks))
    ours, theirs, wrong = defaultdict(dict), {}, 0
    for row in report.rows:
        assert row.out_of_place is not None
        ours[row.size_bytes][row.program] = row.out_of_place.p50_s * 1e6
        theirs[row.size_bytes] = row.peers[library].p50_s * 1e6
        wrong += row.out_of_place.wrong or 0
    return {"library": report.library, "ours": ours, "theirs": theirs, "wrong": wrong}


def measured_by(python: str, library: str, ranks: int, kind: str, words: list[str]) -> dict[str, Any]:
    """Return the measurements of this script in the environment of ``python``."""
    own = [python, "-P", __file__, "--alone", library, "--ranks", str(ranks), "--collectives", kind, *words]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run(own, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{python}: {done.stderr.strip()[-1000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def table(found: dict[str, list[dict[str, Any]]]) -> list[str]:
    """Return a line for each size: ours, the algorithm, each library over ours; then geometric means."""
    first = next(iter(found.values()))[0]
    lines, ratios = [], defaultdict(list)
    for size in first["ours"]:
        every = [one["ours"][size] for rounds in found.values() for one in rounds]
        best = min(every[0], key=lambda name: median(one[name] for one in every))
        cells = []
        for name, rounds in found.items():
            theirs_us = median(one["theirs"][size] for one in rounds)
            ours_us = median(one["ours"][size][best] for one in rounds)
            ratios[name].append(theirs_us / ours_us)
            cells.append(f"{ours_us:9.2f} {theirs_us:9.2f} {theirs_us / ours_us:6.2f}")
        lines.append(f"{format_size(int(size)):>6} {best:>19} " + "  ".join(cells))
    means = "  ".join(f"{'':19} {geometric_mean(ratios[name]):6.2f}" for name in found)
    wrong = sum(one["wrong"] for rounds in found.values() for one in rounds)
    return [*lines, f"{'':>6} {'geometric mean':>19} {means}", f"{wrong} wrong"]


def main() -> None:
    """Print one table for each world and collective."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--with", action="append", default=[], dest="others", metavar="LIBRARY=PYTHON")
    options.add_argument("--ranks", default="2,4")
    options.add_argument("--sizes", default="4,16,64,256,1K,4K,16K,64K")
    options.add_argument("--collectives", default="all_reduce", help=f"some of {_COLLECTIVES}")
    options.add_argument("--iters", type=int, default=200)
    options.add_argument("--aggregate", type=int, default=1)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--alone", help=argparse.SUPPRESS)
    asked = options.parse_args()
    words = ["--sizes", asked.sizes, "--iters", str(asked.iters), "--aggregate", str(asked.aggregate)]
    asked.sizes = [parse_size(size, "--sizes") for size in asked.sizes.split(",")]
    worlds = [(int(ranks), kind) for ranks in asked.ranks.split(",") for kind in asked.collectives.split(",")]
    if asked.alone:
        [(ranks, kind)] = worlds
        print(json.dumps(measure(ranks, kind, asked, asked.alone)))
        return
    pythons = {"mpi": sys.executable} | dict(other.split("=", 1) for other in asked.others)
    for ranks, kind in worlds:
        found: dict[str, list[dict[str, Any]]] = {name: [] for name in pythons}
        for _ in range(asked.rounds):
            for name, python in pythons.items():
                library = "gloo" if name == "gloo" else "mpi"
                found[name].append(measured_by(python, library, ranks, kind, words))
        heads = "  ".join(f"{'ours (us)':>9} {name[:9]:>9} {'ratio':>6}" for name in found)
        libraries = dict.fromkeys(rounds[0]["library"] for rounds in found.values())
        print(f"\n{ranks} ranks, {kind}: {', '.join(libraries)}")
        print(f"{'size':>6} {'algorithm':>19} {heads}", *table(found), sep="\n", flush=True)


if __name__ == "__main__":
    main()
