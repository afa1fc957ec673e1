"""Time a library's all_reduce in an emulated cluster, without and with the table of ``ccctl tune``.

    python -P benchmarks/tune_lab.py [--for openmpi,mpich] [--case slow_pair] [--sizes 4K,64K,1M]
        [--rounds 3] [--mpich PYTHON]

``ccctl tune`` measures and writes the table inside the lab. Then the unmodified library runs by turns without
the table, with it, and with its control variable set to the algorithm that the table names. The last two
times agree if the library loads the table. ``--mpich`` is a Python with MPICH, mpi4py and ccctl's
dependencies. Needs root, for the lab.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from statistics import median

from probes.base import format_size, parse_size

sys.path.insert(0, str(Path(__file__).parent))

from lab_cases import HETEROGENEOUS, HOMOGENEOUS, OPENMPI_ALGORITHMS, PEER, inside, lab, times_s

from exec.library_rules import mpich

ITERATIONS = 5


def loaded(library: str, path: str) -> dict[str, str]:
    """Return the variables with which a library loads its table."""
    if library == "mpich":
        return mpich.environment(["all_reduce"], path)
    return {
        "OMPI_MCA_coll_tuned_use_dynamic_rules": "1",
        "OMPI_MCA_coll_tuned_priority": "100",
        "OMPI_MCA_coll_tuned_dynamic_rules_filename": path,
    }


def forced(library: str, algorithm: str) -> dict[str, str] | None:
    """Return the variables that select one algorithm of a library; None for its own choice."""
    if algorithm == "own":
        return None
    if library == "mpich":
        return {
            "MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM": algorithm,
            "MPIR_CVAR_DEVICE_COLLECTIVES": "percoll",
            "MPIR_CVAR_ALLREDUCE_DEVICE_COLLECTIVE": "0",
        }
    if algorithm not in OPENMPI_ALGORITHMS:
        return None
    return {
        "OMPI_MCA_coll_tuned_use_dynamic_rules": "1",
        "OMPI_MCA_coll_tuned_allreduce_algorithm": str(OPENMPI_ALGORITHMS[algorithm]),
    }


def main() -> None:
    """Print one line for each library and size."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--for", dest="libraries", default="openmpi")
    parser.add_argument("--case", default="slow_pair")
    parser.add_argument("--sizes", default="4K,64K,1M")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--mpich", default="")
    options = parser.parse_args()
    sizes = [parse_size(size, "--sizes") for size in options.sizes.split(",")]
    description = (HETEROGENEOUS | HOMOGENEOUS)[options.case]
    hosts = description.partition("h[1-")[2].partition("]")[0]
    with tempfile.TemporaryDirectory() as folder, lab(f"tune-{options.case}", description, folder) as name:
        for library in options.libraries.split(","):
            python = options.mpich if library == "mpich" else sys.executable
            path = f"{folder}/{library}.table"
            given = ["tune", "--for", library, "-n", hosts, "--sizes", f"{min(sizes)}:{max(sizes)}"]
            told = inside(name, python, "-P", "-m", "ccctl", *given, "--budget", "3", "-o", path, "--json")
            rows = json.loads(told)["collectives"]["all_reduce"]
            for size in sizes:
                # The table's choice, of the largest measured size that is not above this one.
                algorithm = [row["algorithm"] for row in rows if row["size_bytes"] <= size][-1]
                ways = {"as it comes": {}, "with the table": loaded(library, path)}
                alone = forced(library, algorithm)
                if alone is not None:
                    ways["told"] = alone
                seconds: dict[str, list[float]] = {way: [] for way in ways}
                launcher = str(Path(python).with_name("mpiexec"))
                run = [
                    launcher,
                    "-n",
                    hosts,
                    python,
                    str(PEER),
                    "mpi",
                    "all_reduce",
                    str(size),
                    str(ITERATIONS),
                ]
                for _ in range(options.rounds):
                    for way, variables in ways.items():
                        seconds[way] += times_s(inside(name, *run, **variables))
                medians = {way: median(found) for way, found in seconds.items()}
                shown = "  ".join(f"{way} {found * 1e3:.2f} ms" for way, found in medians.items())
                ratio = medians["as it comes"] / medians["with the table"]
                print(
                    f"{options.case} {library:8} {format_size(size):>5} {algorithm:28} {shown}  {ratio:.2f}"
                )


if __name__ == "__main__":
    main()
