"""Times MPI libraries in labs of uneven networks: ranks as they come against the order of ``ccctl order``.

    python -P benchmarks/order_lab.py [--cases slow_pair,thin_trunk] [--size 4M] [--rounds 3] [--mpich PYTHON]

For each case a lab is made and profiled, ``ccctl order`` writes a hostfile for the algorithm, and the
library's own all_reduce runs by turns in both orders. A ratio is the median time as they come over that in
our order; ``predicted`` is what ``ccctl order`` said of it. The libraries are told by variables which
algorithm to take. Needs root, for the lab.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from itertools import permutations
from math import prod
from pathlib import Path
from statistics import median

import numpy as np

from ccctl.arguments.units import parse_size

sys.path.insert(0, str(Path(__file__).parent))

from lab_cases import (
    CCCTL,
    MPICH_ALGORITHMS,
    OPENMPI_ALGORITHMS,
    PEER,
    inside,
    lab,
    times_s,
)


def drawn_pairs(hosts: int, seed: int) -> str:
    """Each pair of hosts with a rate of its own."""
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
    "six_random": drawn_pairs(6, 1),
    "even": 'hosts = "h[1-4]"\nrate = "100Mbit/s"\n',
}
MPICH_NAMES = {"rabenseifner": "reduce_scatter_allgather"}


def variables(library: str, algorithm: str) -> dict[str, str]:
    """What makes a library take an algorithm."""
    if library == "openmpi":
        return {
            "OMPI_MCA_coll_tuned_use_dynamic_rules": "1",
            "OMPI_MCA_coll_tuned_allreduce_algorithm": str(OPENMPI_ALGORITHMS[algorithm]),
        }
    name = MPICH_NAMES.get(algorithm, algorithm)
    assert name in MPICH_ALGORITHMS
    return {"MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM": name}


def written(profile: str, goal: str, size: str, form: str) -> tuple[dict[str, object], str]:
    """(what ``ccctl order`` told, the file that it wrote)."""
    path = f"{profile}.{goal.replace(':', '.')}.{form}"
    given = ["order", profile, "--for", goal, "--size", size, "--to", form, "-o", path, "--json"]
    done = subprocess.run([*CCCTL, *given], check=True, capture_output=True, text=True)
    return json.loads(done.stdout), path


def main() -> None:
    """Print one line for each case and algorithm, then the means."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--for", dest="goals", default="openmpi:ring,openmpi:rabenseifner")
    parser.add_argument("--size", default="4M")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--mpich", default="", help="a Python with MPICH and mpi4py")
    options = parser.parse_args()
    size_bytes = parse_size(options.size, "--size")
    matters, every, off = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        for case in options.cases.split(","):
            with lab(f"order-{case}", CASES[case], folder) as name:
                profile = f"{folder}/{case}.json"
                inside(name, *CCCTL, "profile", "-q", "-o", profile)
                hosts = CASES[case].count("h[1-6]") * 2 + 4
                for goal in options.goals.split(","):
                    library, _, algorithm = goal.partition(":")
                    python = options.mpich if library == "mpich" else sys.executable
                    form, flag = ("machinefile", "-f") if library == "mpich" else ("hostfile", "--hostfile")
                    told, path = written(profile, goal, options.size, form)
                    came, ours = [], []
                    launcher = str(Path(python).with_name("mpiexec"))
                    run = [python, str(PEER), "mpi", "all_reduce", str(size_bytes), "1"]
                    for _ in range(options.rounds):
                        for seconds, more in ((came, []), (ours, [flag, path])):
                            given = [launcher, *more, "-n", str(hosts), *run]
                            seconds += times_s(inside(name, *given, **variables(library, algorithm)))
                    ratio = median(came) / median(ours)
                    gain = float(str(told["gain"]))
                    every.append(ratio)
                    off.append(abs(gain / ratio - 1))
                    if told["changed"]:
                        matters.append(ratio)
                    print(
                        f"{case:15} {goal:28} as they come {median(came):.3f} s "
                        f"(predicted {told['as_it_comes_s']:.3f})  ours {median(ours):.3f} s "
                        f"({told['predicted_s']:.3f})  ratio {ratio:.2f}  predicted {gain:.2f}",
                        flush=True,
                    )
    if matters:
        print(f"where the order changes: geometric mean {prod(matters) ** (1 / len(matters)):.2f}")
    print(f"all: least {min(every):.2f}; predicted gain: median {median(off):.0%} off, worst {max(off):.0%}")


if __name__ == "__main__":
    main()
