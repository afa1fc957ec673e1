"""Our collectives in emulated clusters against the libraries' own, and against what was predicted.

    python -P benchmarks/lab_cases.py [--cases slow_host,trunk] [--collectives all_reduce] [--sizes 8M]
        [--rounds 2] [--mpich PYTHON] [--gloo PYTHON] [--algorithms]

For each case a lab is made, profiled and synthesized for, as an operator would. Then ours, Open MPI and,
from environments of their own, MPICH (``--mpich``: a Python with mpich and mpi4py) and gloo (``--gloo``: one
with torch) run in turn, in rounds of a run to warm up and a timed one. A ratio is a library's median time
over ours: above 1 we are faster. With ``--algorithms`` every algorithm of all_reduce that a library offers
runs, too. Needs root, for the lab.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from statistics import median

from ccctl.arguments.units import format_size, parse_size

PEER = Path(__file__).with_name("lab_peer.py")
CCCTL = (sys.executable, "-P", "-m", "ccctl")
HETEROGENEOUS = {
    "slow_host": 'hosts = "h[1-4]"\nrate = "100Mbit/s"\n[rates]\n"h4" = "25Mbit/s"\n',
    "two_slow_hosts": 'hosts = "h[1-6]"\nrate = "100Mbit/s"\n[rates]\n"h5" = "30Mbit/s"\n"h6" = "50Mbit/s"\n',
    "slow_pair": 'hosts = "h[1-4]"\nrate = "100Mbit/s"\n[rates]\n"h1 -> h2" = "10Mbit/s"\n',
    "slow_pair_back": 'hosts = "h[1-4]"\nrate = "100Mbit/s"\n[rates]\n"h2 -> h1" = "10Mbit/s"\n',
    "thin_trunk": (
        'hosts = "h[1-4]"\nrate = "100Mbit/s"\nracks = [["h1", "h2"], ["h3", "h4"]]\ntrunk = "50Mbit/s"\n'
    ),
}
HOMOGENEOUS = {
    "even_4": 'hosts = "h[1-4]"\nrate = "100Mbit/s"\n',
    "even_8": 'hosts = "h[1-8]"\nrate = "100Mbit/s"\n',
}
OPENMPI_ALGORITHMS = {
    "nonoverlapping": 2,
    "recursive_doubling": 3,
    "ring": 4,
    "segmented_ring": 5,
    "rabenseifner": 6,
}
MPICH_ALGORITHMS = ("recursive_doubling", "ring", "reduce_scatter_allgather")


@dataclass
class Measured:
    """One case, collective and size: ours and the peers' seconds, and what was predicted."""

    case: str
    predicted_s: float
    method: str
    ours_s: list[float] = field(default_factory=list)
    peers_s: dict[str, list[float]] = field(default_factory=dict)

    def ratio(self, names: list[str]) -> float:
        """The fastest of these peers over ours."""
        return min(median(self.peers_s[name]) for name in names) / median(self.ours_s)

    @property
    def defaults(self) -> list[str]:
        return [name for name in self.peers_s if " " not in name]


@contextmanager
def lab(name: str, description: str, folder: str) -> Iterator[str]:
    """The lab while it is up."""
    path, full = Path(folder, f"{name}.toml"), f"bench-{name.replace('_', '-')}"
    path.write_text(f'name = "{full}"\n{description}')
    subprocess.run([*CCCTL, "lab", "up", "-q", path], check=True)
    try:
        yield full
    finally:
        subprocess.run([*CCCTL, "lab", "down", "-q", "--lab", full], check=True)


def inside(lab_name: str, *command: str, host: str = "h1", **variables: str) -> str:
    """What a command in a host of the lab prints."""
    on = ["lab", "run", "--lab", lab_name, "--on", host, "--", *command]
    done = subprocess.run([*CCCTL, *on], env=os.environ | variables, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.stderr}")
    return done.stdout


def times_s(printed: str) -> list[float]:
    """The list that ``lab_peer.py`` prints."""
    found: list[float] = json.loads(printed[printed.index("[") : printed.index("]") + 1])
    return found


def peers(options: argparse.Namespace, kind: str) -> dict[str, tuple[str, dict[str, str]]]:
    """For each peer its Python and its environment; a default is a name without an algorithm."""
    found: dict[str, tuple[str, dict[str, str]]] = {"openmpi": (sys.executable, {})}
    several = options.algorithms and kind == "all_reduce"
    if several:
        for name, number in OPENMPI_ALGORITHMS.items():
            rules = {"OMPI_MCA_coll_tuned_use_dynamic_rules": "1"}
            rules["OMPI_MCA_coll_tuned_allreduce_algorithm"] = str(number)
            found[f"openmpi {name}"] = (sys.executable, rules)
    if options.mpich:
        found["mpich"] = (options.mpich, {})
        for name in MPICH_ALGORITHMS if several else ():
            found[f"mpich {name}"] = (options.mpich, {"MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM": name})
    if options.gloo and kind != "all_to_all":
        found["gloo"] = (options.gloo, {"GLOO_SOCKET_IFNAME": "eth0"})
    return found


def gloo_times_s(lab_name: str, python: str, kind: str, size_bytes: int, hosts: int) -> list[float]:
    """One process on each host; the first prints."""
    address = inside(lab_name, "hostname", "-I").split()[0]
    given = [python, str(PEER), "gloo", kind, str(size_bytes), "1"]
    started = []
    for rank in reversed(range(hosts)):
        on = ["lab", "run", "--lab", lab_name, "--on", f"h{rank + 1}", "--", *given]
        command = [*CCCTL, *on, str(rank), str(hosts), address]
        environment = os.environ | {"GLOO_SOCKET_IFNAME": "eth0"}
        started.append(
            subprocess.Popen(
                command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
        )
    printed = [process.communicate()[0] for process in started]
    return times_s(printed[-1])


def ours_s(lab_name: str, schedule: str, size_bytes: int) -> tuple[float, float]:
    """(measured, predicted) seconds of one timed run after one to warm up."""
    size = str(size_bytes)
    given = ["bench", schedule, "-b", size, "-e", size, "--iters", "1", "-w", "1", "--placement", "out"]
    summary = json.loads(inside(lab_name, *CCCTL, *given, "--json"))
    row = summary["rows"][0]
    if row["wrong"]:
        sys.exit(f"{schedule}: {row['wrong']} elements are wrong")
    return row["p50_us"] / 1e6, row["predicted_us"] / 1e6


def measure(
    case: str, lab_name: str, profile: str, kind: str, size_bytes: int, options: argparse.Namespace
) -> Measured:
    """Synthesize, then run everyone in turn."""
    schedule = f"{profile}.{kind}.{size_bytes}.json"
    synth = ["synth", "--network", profile, "--collective", kind, "--size", str(size_bytes), "-o", schedule]
    done = subprocess.run([*CCCTL, *synth, "--json"], check=True, capture_output=True, text=True)
    hosts = json.loads(done.stdout)["ranks"]
    found = Measured(case, 0.0, json.loads(done.stdout)["method"])
    for _ in range(options.rounds):
        mine_s, found.predicted_s = ours_s(lab_name, schedule, size_bytes)
        found.ours_s.append(mine_s)
        for name, (python, variables) in peers(options, kind).items():
            if name == "gloo":
                taken_s = gloo_times_s(lab_name, python, kind, size_bytes, hosts)
            else:
                launcher = str(Path(python).with_name("mpiexec"))
                given = [launcher, "-n", str(hosts), python, str(PEER), "mpi", kind, str(size_bytes), "1"]
                taken_s = times_s(inside(lab_name, *given, **variables))
            found.peers_s.setdefault(name, []).extend(taken_s)
    return found


def told(found: Measured, kind: str, size_bytes: int) -> None:
    """One line as soon as it is measured."""
    mine_s = median(found.ours_s)
    others = "  ".join(
        f"{name} {median(taken_s):.2f} ({median(taken_s) / mine_s:.2f}x)"
        for name, taken_s in found.peers_s.items()
    )
    print(
        f"{found.case:15} {kind:10} {format_size(size_bytes):>4}  ours {mine_s:.2f} s by {found.method}, "
        f"predicted {found.predicted_s:.2f} ({found.predicted_s / mine_s:.2f})  {others}",
        flush=True,
    )


def summed_up(label: str, ratios: list[float]) -> None:
    """Geometric mean and least of some ratios."""
    if ratios:
        print(f"{label}: geometric mean {prod(ratios) ** (1 / len(ratios)):.2f}, least {min(ratios):.2f}")


def main() -> None:
    """Print one line for each measurement, then the figures over all of them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cases", default=",".join([*HETEROGENEOUS, *HOMOGENEOUS]))
    parser.add_argument("--collectives", default="all_reduce")
    parser.add_argument("--sizes", default="8M")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--mpich", default="")
    parser.add_argument("--gloo", default="")
    parser.add_argument("--algorithms", action="store_true")
    options = parser.parse_args()
    every: list[tuple[str, Measured]] = []
    with tempfile.TemporaryDirectory() as folder:
        for case in options.cases.split(","):
            with lab(case, (HETEROGENEOUS | HOMOGENEOUS)[case], folder) as name:
                profile = f"{folder}/{case}.json"
                inside(name, *CCCTL, "profile", "-q", "-o", profile)
                for kind in options.collectives.split(","):
                    for size in options.sizes.split(","):
                        size_bytes = parse_size(size, "--sizes")
                        found = measure(case, name, profile, kind, size_bytes, options)
                        told(found, kind, size_bytes)
                        every.append((kind, found))
    for kind in dict.fromkeys(kind for kind, _ in every):
        for label, cases in (("heterogeneous", HETEROGENEOUS), ("homogeneous", HOMOGENEOUS)):
            chosen = [found for one, found in every if one == kind and found.case in cases]
            summed_up(f"{kind}, {label}, defaults / ours", [found.ratio(found.defaults) for found in chosen])
            if options.algorithms and kind == "all_reduce":
                summed_up(f"{kind}, {label}, best algorithm / ours", [f.ratio([*f.peers_s]) for f in chosen])
    off = sorted(abs(found.predicted_s / median(found.ours_s) - 1) for _, found in every)
    print(f"predicted / measured: median {median(off):.0%} off, worst {off[-1]:.0%}")


if __name__ == "__main__":
    main()
