"""Our collectives in emulated clusters, beside the libraries' own and beside predictions.

    python -P benchmarks/lab_cases.py [--cases slow_host,trunk] [--random 10 --seed 1] [--sizes 8M]
        [--collectives all_reduce] [--rounds 2] [--iterations 1] [--wires mpi,sockets,ucx] [--mpich PYTHON]
        [--gloo PYTHON] [--algorithms] [--counts skewed,giant,zeros]

For each case a lab is made, profiled and synthesized for, as an operator would. ``--random`` draws labs of
three to eight hosts with random rates, racks and slow pairs, the same for a seed, and prints each. Then ours
over each kind of ``--wires`` (the first is ``ours`` in ratios), Open MPI, MPICH and gloo run in turn, in
rounds of a run to warm up and ``--iterations`` timed ones. ``--mpich`` is a Python with mpich and mpi4py,
``--gloo`` one with torch. A ratio is a library's median time over ours: above 1 ours is faster. With
``--algorithms`` every algorithm of all_reduce that a library offers runs, too. With ``--counts`` blocks are
uneven, and libraries run their v-collectives. Needs root, for the lab.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise, product
from pathlib import Path
from statistics import geometric_mean, median

import numpy as np

from ccctl.arguments import load_network
from probes.base import format_size, parse_size

PEER = Path(__file__).with_name("lab_peer.py")
CCCTL = (sys.executable, "-P", "-m", "ccctl")
HETEROGENEOUS = {
    "slow_host_2": 'hosts = "h[1-2]"\nrate = "100Mbit/s"\n[rates]\n"h2" = "40Mbit/s"\n',
    "slow_host": 'hosts = "h[1-4]"\nrate = "100Mbit/s"\n[rates]\n"h4" = "25Mbit/s"\n',
    "two_slow_hosts": 'hosts = "h[1-6]"\nrate = "100Mbit/s"\n[rates]\n"h5" = "30Mbit/s"\n"h6" = "50Mbit/s"\n',
    "slow_hosts_8": 'hosts = "h[1-8]"\nrate = "100Mbit/s"\n[rates]\n"h3" = "40Mbit/s"\n"h8" = "60Mbit/s"\n',
    "slow_pair": 'hosts = "h[1-4]"\nrate = "100Mbit/s"\n[rates]\n"h1 -> h2" = "10Mbit/s"\n',
    "slow_pair_back": 'hosts = "h[1-4]"\nrate = "100Mbit/s"\n[rates]\n"h2 -> h1" = "10Mbit/s"\n',
    "uneven_nics": (
        'hosts = "h[1-6]"\nrate = "100Mbit/s"\n[rates]\n"h2" = "200Mbit/s"\n"h4" = "50Mbit/s"\n'
        '"h6" = "50Mbit/s"\n'
    ),
    "thin_trunk": (
        'hosts = "h[1-4]"\nrate = "100Mbit/s"\nracks = [["h1", "h2"], ["h3", "h4"]]\ntrunk = "50Mbit/s"\n'
    ),
}
HOMOGENEOUS = {
    "even_2": 'hosts = "h[1-2]"\nrate = "100Mbit/s"\n',
    "even_4": 'hosts = "h[1-4]"\nrate = "100Mbit/s"\n',
    "even_6": 'hosts = "h[1-6]"\nrate = "100Mbit/s"\n',
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
    """One case, collective and size: the seconds of ours and of the peers, and the prediction."""

    case: str
    bound_s: float
    predicted_s: float
    method: str
    seconds: str
    by_wires_s: dict[str, list[float]] = field(default_factory=dict)
    peers_s: dict[str, list[float]] = field(default_factory=dict)

    @property
    def ours_s(self) -> list[float]:
        """The seconds over the first kind of wires."""
        return next(iter(self.by_wires_s.values()))

    def ratio(self, names: list[str]) -> float:
        """Return the time of the fastest of these peers over ours."""
        return min(median(self.peers_s[name]) for name in names) / median(self.ours_s)

    @property
    def defaults(self) -> list[str]:
        return [name for name in self.peers_s if " " not in name]


@contextmanager
def lab(name: str, description: str, folder: str) -> Iterator[str]:
    """Yield the lab while it is up."""
    path, full = Path(folder, f"{name}.toml"), f"bench-{name.replace('_', '-')}"
    path.write_text(f'name = "{full}"\n{description}')
    subprocess.run([*CCCTL, "lab", "up", "-q", path], check=True)
    try:
        yield full
    finally:
        subprocess.run([*CCCTL, "lab", "down", "-q", "--lab", full], check=True)


def inside(lab_name: str, *command: str, host: str = "h1", **variables: str) -> str:
    """Return the output of a command in a host of the lab."""
    on = ["lab", "run", "--lab", lab_name, "--on", host, "--", *command]
    done = subprocess.run([*CCCTL, *on], env=os.environ | variables, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.stderr}")
    return done.stdout


def times_s(printed: str) -> list[float]:
    """Return the list of seconds that ``lab_peer.py`` printed."""
    found: list[float] = json.loads(printed[printed.index("[") : printed.index("]") + 1])
    return found


def peers(options: argparse.Namespace, kind: str) -> dict[str, tuple[str, dict[str, str]]]:
    """Return each peer's Python and environment; a name without an algorithm is the library's default."""
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
    if options.gloo:
        found["gloo"] = (options.gloo, {"GLOO_SOCKET_IFNAME": "eth0"})
    return found


def gloo_times_s(
    lab_name: str, python: str, kind: str, size: str, hosts: Sequence[str], iterations: int
) -> list[float]:
    """Run gloo with one process on each of ``hosts``, in this order; return the seconds of each iteration."""
    address = inside(lab_name, "hostname", "-I", host=hosts[0]).split()[0]
    given = [python, str(PEER), "gloo", kind, size, str(iterations)]
    started = []
    for rank, host in reversed(list(enumerate(hosts))):
        on = ["lab", "run", "--lab", lab_name, "--on", host, "--", *given]
        command = [*CCCTL, *on, str(rank), str(len(hosts)), address]
        environment = os.environ | {"GLOO_SOCKET_IFNAME": "eth0"}
        started.append(
            subprocess.Popen(
                command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
        )
    outputs = [process.communicate() for process in started]
    for process, (_, errors) in zip(started, outputs, strict=True):
        if process.returncode:
            sys.exit(f"gloo: {errors}")
    return times_s(outputs[-1][0])


def drawn(chance: np.random.Generator) -> str:
    """Return a random lab: hosts of unequal rates, racks behind trunks, pairs that are slow one way."""
    count = int(chance.integers(3, 9))
    hosts = [f"h{host}" for host in range(1, count + 1)]
    rates = [
        f'"{host}" = "{rate}Mbit/s"'
        for host, rate in zip(hosts, chance.choice([100, 100, 100, 60, 40, 25], count), strict=True)
        if rate < 100
    ]
    slow = {}
    for _ in range(int(chance.integers(0, 3))):
        src, dst = chance.choice(hosts, 2, replace=False)
        slow[src, dst] = f'"{src} -> {dst}" = "{chance.choice([10, 20, 40])}Mbit/s"'
    rates += slow.values()
    text = f'hosts = "h[1-{count}]"\nrate = "100Mbit/s"\n'
    if count > 3 and chance.random() < 0.5:
        cuts = sorted(chance.choice(np.arange(1, count), int(chance.integers(1, 3)), replace=False))
        racks = [hosts[low:high] for low, high in pairwise([0, *cuts, count])]
        text += f'racks = {json.dumps(racks)}\ntrunk = "{chance.choice([40, 60, 90])}Mbit/s"\n'
    return text + ("[rates]\n" + "\n".join(rates) + "\n" if rates else "")


def ours_s(lab_name: str, schedule: str, size_bytes: int, wires: str, iterations: int) -> tuple[float, float]:
    """Return (measured, predicted) seconds: the median of the timed runs, after an untimed one."""
    size = str(size_bytes)
    given = ["bench", schedule, "-b", size, "-e", size, "-w", "1", "--iters", str(iterations)]
    given += ["--placement", "out", "--wires", "mpi" if wires == "mpi" else "sockets"]
    data = {"CCCTL_WIRES": "ucx" if wires == "ucx" else "tcp"}
    summary = json.loads(inside(lab_name, *CCCTL, *given, "--json", **data))
    row = summary["rows"][0]
    if row["wrong"]:
        sys.exit(f"{schedule}: {row['wrong']} elements are wrong")
    return row["p50_us"] / 1e6, row["predicted_us"] / 1e6


def counts_bytes(shape: str, kind: str, size_bytes: int, hosts: int) -> list[list[int]]:
    """Return the bytes of each block of an uneven collective, whole kilobytes; a row for each source.

    Only an all_to_all has several rows. ``shape`` is skewed (as 1, 1/2, 1/3 …), giant (one block has 60 %) or
    zeros (every second block is empty).
    """
    rank = np.arange(hosts * hosts if kind == "all_to_all" else hosts)
    share = {
        "skewed": 1 / (1 + rank),
        "giant": np.where(rank == 1, 0.6, 0.4 / (len(rank) - 1)),
        "zeros": (rank % 2 == 0) * 1.0,
    }[shape]
    if kind == "all_to_all":
        share = np.random.default_rng(1).permutation(share)
    blocks = np.rint(share / share.sum() * size_bytes / 1024).astype(int) * 1024
    found: list[list[int]] = blocks.reshape(-1, hosts).tolist()
    return found


def measure(
    case: str,
    lab_name: str,
    profile: str,
    kind: str,
    size_bytes: int,
    shape: str,
    options: argparse.Namespace,
) -> Measured:
    """Synthesize, then run ours and all peers in turn."""
    begun_s = time.monotonic()
    schedule = f"{profile}.{kind}.{shape}.{size_bytes}.json"
    asked, size = ["--size", str(size_bytes)], str(size_bytes)
    if shape:
        rows = counts_bytes(shape, kind, size_bytes, load_network(profile, None, None)[0].ranks)
        size, counts = json.dumps(rows), Path(f"{schedule}.csv")
        counts.write_text("\n".join(",".join(map(str, row)) for row in rows))
        asked = ["--counts", str(counts)]
    synth = ["synth", "--network", profile, "--collective", kind, *asked, "-o", schedule]
    done = subprocess.run([*CCCTL, *synth, "--json"], check=True, capture_output=True, text=True)
    summary = json.loads(done.stdout)
    took, size_bytes = f"synth {time.monotonic() - begun_s:.0f} s", summary["size_bytes"]
    hosts = summary["ranks"]
    named = [f"h{number}" for number in range(1, hosts + 1)]
    found = Measured(case, summary["bound_s"], 0.0, summary["method"], took)
    for _ in range(options.rounds):
        for wires in options.wires.split(","):
            mine_s, found.predicted_s = ours_s(lab_name, schedule, size_bytes, wires, options.iterations)
            found.by_wires_s.setdefault(wires, []).append(mine_s)
        for name, (python, variables) in peers(options, kind).items():
            if name == "gloo":
                taken_s = gloo_times_s(lab_name, python, kind, size, named, options.iterations)
            else:
                launcher = str(Path(python).with_name("mpiexec"))
                given = [launcher, "-n", str(hosts), python, str(PEER), "mpi", kind, size]
                given.append(str(options.iterations))
                taken_s = times_s(inside(lab_name, *given, **variables))
            found.peers_s.setdefault(name, []).extend(taken_s)
    return found


def told(found: Measured, kind: str, size_bytes: int) -> None:
    """Print one line for a measurement."""
    mine_s = median(found.ours_s)
    others = "  ".join(
        f"{name} {median(taken_s):.3g} ({median(taken_s) / mine_s:.2f}x)"
        for name, taken_s in found.peers_s.items()
    )
    ours = "  ".join(
        f"ours over {wires} {median(taken_s):.3g} s ({found.bound_s / median(taken_s):.0%})"
        for wires, taken_s in found.by_wires_s.items()
    )
    print(
        f"{found.case:15} {kind:17} {format_size(size_bytes):>4}  bound {found.bound_s:.3g}  {ours} "
        f"by {found.method}, {found.seconds}, "
        f"predicted {found.predicted_s:.3g} ({found.predicted_s / mine_s:.2f})  {others}",
        flush=True,
    )


def summed_up(label: str, ratios: list[float]) -> None:
    """Print the geometric mean and the least of some ratios."""
    if ratios:
        print(f"{label}: geometric mean {geometric_mean(ratios):.2f}, least {min(ratios):.2f}")


def main() -> None:
    """Print one line for each measurement, then the figures over all of them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cases", help="of the named labs; all of them without --random")
    parser.add_argument("--random", type=int, default=0, help="labs drawn at random")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=1, help="the first of the random labs to run")
    parser.add_argument("--iterations", type=int, default=1, help="timed ones in each round")
    parser.add_argument("--wires", default="mpi")
    parser.add_argument("--collectives", default="all_reduce")
    parser.add_argument("--sizes", default="8M")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--mpich", default="")
    parser.add_argument("--gloo", default="")
    parser.add_argument("--algorithms", action="store_true")
    parser.add_argument("--counts", default="", help="uneven blocks: skewed, giant, zeros")
    options = parser.parse_args()
    every: list[tuple[str, Measured]] = []
    labs = HETEROGENEOUS | HOMOGENEOUS
    if options.cases is not None or options.random:
        labs = {case: labs[case] for case in (options.cases or "").split(",") if case}
    chance = np.random.default_rng(options.seed)
    random = {f"random_{options.seed}_{number}": drawn(chance) for number in range(1, options.random + 1)}
    labs |= dict(list(random.items())[options.first - 1 :])
    with tempfile.TemporaryDirectory() as folder:
        for case, description in labs.items():
            if case in random:
                print(" ".join(description.split()), flush=True)
            with lab(case, description, folder) as name:
                profile = f"{folder}/{case}.json"
                begun_s = time.monotonic()
                inside(name, *CCCTL, "profile", "-q", "-o", profile)
                print(f"{case}: profile {time.monotonic() - begun_s:.0f} s", flush=True)
                for kind in options.collectives.split(","):
                    for size, shape in product(options.sizes.split(","), options.counts.split(",")):
                        size_bytes = parse_size(size, "--sizes")
                        found = measure(case, name, profile, kind, size_bytes, shape, options)
                        told(found, f"{kind} {shape}".strip(), size_bytes)
                        every.append((kind, found))
    for kind in dict.fromkeys(kind for kind, _ in every):
        for label, cases in (
            ("heterogeneous", HETEROGENEOUS),
            ("homogeneous", HOMOGENEOUS),
            ("random", random),
        ):
            chosen = [found for one, found in every if one == kind and found.case in cases]
            for wires in options.wires.split(","):
                shares = [found.bound_s / median(found.by_wires_s[wires]) for found in chosen]
                summed_up(f"{kind}, {label}, bound / ours over {wires}", shares)
            summed_up(f"{kind}, {label}, defaults / ours", [found.ratio(found.defaults) for found in chosen])
            if options.algorithms and kind == "all_reduce":
                summed_up(f"{kind}, {label}, best algorithm / ours", [f.ratio([*f.peers_s]) for f in chosen])
    off = sorted(abs(found.predicted_s / median(found.ours_s) - 1) for _, found in every)
    print(f"predicted / measured: median {median(off):.0%} off, worst {off[-1]:.0%}")


if __name__ == "__main__":
    main()
