"""Time libraries in labs of uneven networks: with ranks in the given order and in that of ``ccctl order``.

    python -P benchmarks/order_lab.py [--cases slow_pair,six_random_2] [--for openmpi:ring,mpich,gloo]
        [--size 4M] [--rounds 3] [--iterations 1] [--mpich PYTHON] [--gloo PYTHON]

For each case a lab is made and profiled, ``ccctl order`` writes the order for the algorithm, and the
library's own all_reduce runs by turns in both orders. A ratio is the median time in the given order over the
median in our order; ``predicted`` is the ratio that ``ccctl order`` predicts. Variables select the algorithm
of MPI libraries; gloo has one. ``--mpich`` is a Python with MPICH and mpi4py, ``--gloo`` one with torch. If
our order is the given one, only this one runs. Needs root, for the lab.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

import numpy as np

from probes.base import parse_size

sys.path.insert(0, str(Path(__file__).parent))

from lab_cases import (
    CCCTL,
    MPICH_ALGORITHMS,
    OPENMPI_ALGORITHMS,
    PEER,
    gloo_times_s,
    inside,
    lab,
    times_s,
)


def drawn_pairs(hosts: int, seed: int) -> str:
    """Return each pair of hosts with a random rate."""
    chance = np.random.default_rng(seed)
    pairs = list(permutations(range(1, hosts + 1), 2))
    rates = chance.integers(10, 100, len(pairs))
    lines = (f'"h{src} -> h{dst}" = "{rate}Mbit/s"' for (src, dst), rate in zip(pairs, rates, strict=True))
    return f'hosts = "h[1-{hosts}]"\nrate = "100Mbit/s"\n[rates]\n' + "\n".join(lines) + "\n"


SLOW = 'hosts = "h[1-4]"\nrate = "100Mbit/s"\n[rates]\n"{}" = "10Mbit/s"\n'
CASES = {
    "slow_pair": SLOW.format("h1 -> h2"),
    "slow_pair_back": SLOW.format("h2 -> h1"),
    "thin_trunk": (
        'hosts = "h[1-6]"\nrate = "100Mbit/s"\n'
        'racks = [["h1", "h3", "h5"], ["h2", "h4", "h6"]]\ntrunk = "60Mbit/s"\n'
    ),
    **{f"six_random_{seed}": drawn_pairs(6, seed) for seed in (1, 2, 3)},
    "even": 'hosts = "h[1-4]"\nrate = "100Mbit/s"\n',
}
MPICH_NAMES = {"rabenseifner": "reduce_scatter_allgather"}


def variables(library: str, algorithm: str) -> dict[str, str]:
    """Return the variables that make a library use an algorithm."""
    if library == "openmpi":
        return {
            "OMPI_MCA_coll_tuned_use_dynamic_rules": "1",
            "OMPI_MCA_coll_tuned_allreduce_algorithm": str(OPENMPI_ALGORITHMS[algorithm]),
        }
    name = MPICH_NAMES.get(algorithm, algorithm)
    assert name in MPICH_ALGORITHMS
    return {"MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM": name}


def written(profile: str, goal: str, size: str) -> tuple[dict[str, Any], str]:
    """Return (the summary of ``ccctl order``, the file that it wrote for an MPI library)."""
    form = "machinefile" if goal.startswith("mpich") else "hostfile"
    path = f"{profile}.{goal.replace(':', '.')}.{form}"
    given = ["order", profile, "--for", goal, "--size", size, "--to", form, "-o", path, "--json"]
    done = subprocess.run([*CCCTL, *given], check=True, capture_output=True, text=True)
    return json.loads(done.stdout), path


@dataclass(frozen=True)
class Job:
    """A library's all_reduce in a lab."""

    lab: str
    goal: str
    python: str
    size_bytes: int
    iterations: int
    hosts: int

    def times_s(self, order: list[str] | None, path: str) -> list[float]:
        """Return the seconds of each iteration in an order, also written to a file; None: the given order."""
        library, _, algorithm = self.goal.partition(":")
        if library == "gloo":
            hosts = order or [f"h{number}" for number in range(1, self.hosts + 1)]
            size = str(self.size_bytes)
            return gloo_times_s(self.lab, self.python, "all_reduce", size, hosts, self.iterations)
        launcher = str(Path(self.python).with_name("mpiexec"))
        more = [] if order is None else ["-f" if library == "mpich" else "--hostfile", path]
        run = [self.python, str(PEER), "mpi", "all_reduce", str(self.size_bytes), str(self.iterations)]
        given = [launcher, *more, "-n", str(self.hosts), *run]
        return times_s(inside(self.lab, *given, **variables(library, algorithm or "ring")))


@dataclass(frozen=True)
class Row:
    """The result of one case and algorithm."""

    ratio: float
    gain: float
    changed: bool


def measure(case: str, job: Job, profile: str, size: str, rounds: int) -> Row:
    """Run both orders by turns and print their times."""
    told, path = written(profile, job.goal, size)
    came: list[float] = []
    ours: list[float] = []
    for _ in range(rounds):
        came += job.times_s(None, path)
        if told["changed"]:
            ours += job.times_s(told["hosts"], path)
    line = (
        f"{case:15} {job.goal:28} as they come {median(came):.3f} s (predicted {told['as_it_comes_s']:.3f})"
    )
    if not told["changed"]:
        print(f"{line}  stays as it comes", flush=True)
        return Row(1.0, 1.0, False)
    ratio = median(came) / median(ours)
    print(
        f"{line}  ours {median(ours):.3f} s ({told['predicted_s']:.3f})  "
        f"ratio {ratio:.2f}  predicted {told['gain']:.2f}",
        flush=True,
    )
    return Row(ratio, told["gain"], True)


def main() -> None:
    """Print one line for each case and algorithm, then the means."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--for", dest="goals", default="openmpi:ring,openmpi:rabenseifner")
    parser.add_argument("--size", default="4M")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--iterations", type=int, default=1, help="timed ones of each run")
    parser.add_argument("--mpich", default="", help="a Python with MPICH and mpi4py")
    parser.add_argument("--gloo", default="", help="a Python with torch")
    options = parser.parse_args()
    size_bytes = parse_size(options.size, "--size")
    pythons = {"openmpi": sys.executable, "mpich": options.mpich, "gloo": options.gloo}
    rows: dict[str, list[Row]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for case in options.cases.split(","):
            with lab(f"order-{case}", CASES[case], folder) as name:
                profile = f"{folder}/{case}.json"
                inside(name, *CCCTL, "profile", "-q", "-o", profile)
                hosts = 6 if "h[1-6]" in CASES[case] else 4
                for goal in options.goals.split(","):
                    python = pythons[goal.partition(":")[0]]
                    job = Job(name, goal, python, size_bytes, options.iterations, hosts)
                    row = measure(case, job, profile, options.size, options.rounds)
                    rows.setdefault(goal, []).append(row)
    for goal, found in rows.items():
        changed = [row for row in found if row.changed]
        if changed:
            mean = geometric_mean(row.ratio for row in changed)
            off = [abs(row.gain / row.ratio - 1) for row in changed]
            least = min(row.ratio for row in changed)
            print(
                f"{goal:28} order changed in {len(changed)} of {len(found)} cases: geometric mean "
                f"{mean:.2f}, least {least:.2f}; predicted gain: median {median(off):.0%} off, "
                f"worst {max(off):.0%}"
            )


if __name__ == "__main__":
    main()
