"""The cost of a fault by `ccctl accept`, beside the time that an all_reduce then takes, in emulated clusters.

    sudo python -P benchmarks/accept_cost.py [--cases 8] [--seed 1] [--hosts 4:6] [--size 1M]

Each case is a random lab of network namespaces with one fault: a slow sender, a slow receiver, a slow pair or
a slow trunk. `ccctl accept` runs inside and prices the fault: the time of an all_reduce with it and without.
The same all_reduce is measured in this lab, and in the lab without the fault, by ccctl and the MPI library. A
line prints predicted over measured times: with the fault, without it, and of their quotient, which is the
cost. The last lines give the medians, and how many are within 10 %. Needs root.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from probes.base import parse_size

sys.path.insert(0, str(Path(__file__).parent))

from accept_labs import CCCTL, Case, drawn

KINDS = ("egress", "ingress", "pair", "trunk")
CLOSE = 0.1


@dataclass(frozen=True)
class Times:
    """Predicted seconds of an all_reduce with and without the fault, and measured ones by library."""

    algorithm: str
    with_s: float
    without_s: float
    measured_s: dict[str, float]
    sound_s: dict[str, float]

    def ratios(self, library: str) -> tuple[float, float, float]:
        """Return predicted over measured: with the fault, without it, and of the cost."""
        one = self.with_s / self.measured_s[library]
        other = self.without_s / self.sound_s[library]
        return one, other, one / other


def main() -> None:
    """Print one line for each case, then the medians."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cases", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--hosts", default="4:6", help="fewest:most hosts")
    parser.add_argument("--size", default="1M")
    wanted = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    chance = random.Random(wanted.seed)
    fewest, most = map(int, wanted.hosts.split(":"))
    found: list[Times] = []
    for number in range(wanted.cases):
        case = drawn(chance, KINDS[number % len(KINDS)], chance.randint(fewest, most), number)
        times = measured(case, number, parse_size(wanted.size, "--size"))
        if times is None:
            print(f"{number:2d} {case.kind:8s} the fault was not priced", flush=True)
            continue
        found.append(times)
        told = [
            f"{library}: {one:.2f} {other:.2f} {cost:.2f}"
            for library in times.measured_s
            for one, other, cost in [times.ratios(library)]
        ]
        print(
            f"{number:2d} {case.kind:8s} {len(case.hosts)} hosts  {times.algorithm or 'simple'}: "
            f"{1e3 * times.with_s:.0f} ms with, {1e3 * times.without_s:.0f} ms without; "
            f"predicted/measured {'; '.join(told)}",
            flush=True,
        )
    for library in found[0].measured_s if found else ():
        for at, name in enumerate(("with", "without", "cost")):
            ratios = [one.ratios(library)[at] for one in found]
            close = sum(abs(ratio - 1) <= CLOSE for ratio in ratios)
            print(f"{library} {name}: median {median(ratios):.2f}, within 10 %: {close} of {len(ratios)}")


def measured(case: Case, number: int, size_bytes: int) -> Times | None:
    """Return predicted and measured times of a case; None if the fault was not named or not priced."""
    size = str(size_bytes)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        in_lab(case, number, ["accept", "--size", size, "-q", "-o", str(place / "out")], place)
        certificate = place / "out/certificate.json"
        if not certificate.exists():
            return None
        body = json.loads(certificate.read_text())["body"]
    priced = [one["cost"] for one in body["culprits"] if one["cost"] is not None]
    if not priced:
        return None
    now = {
        row["library"]: row["time_s"]
        for row in body["whole"]
        if row["collective"] == "all_reduce" and row["size_bytes"] == size_bytes
    }
    sound = replace(case, text=without_fault(case.text))
    with tempfile.TemporaryDirectory() as folder:
        words = f"bench --sizes {size} --placement out --iters 10 --vs mpi --json -q".split()
        said = in_lab(sound, number, words, Path(folder))
    [row] = json.loads(said)["rows"]
    times = {"ccctl": row["time_us"] * 1e-6, **{name: us * 1e-6 for name, us in row["peers"].items()}}
    common = [name for name in now if name in times]
    return Times(
        priced[0].get("algorithm", ""),
        priced[0]["with_s"],
        priced[0]["without_s"],
        {name: now[name] for name in common},
        {name: times[name] for name in common},
    )


def without_fault(text: str) -> str:
    """Return a lab's description without its fault: no rates of single parts, and a wide trunk."""
    kept = [line for line in text.partition("[rates]")[0].splitlines() if not line.startswith("trunk")]
    if any(line.startswith("racks") for line in kept):
        rate = next(line for line in kept if line.startswith("rate")).partition('"')[2].partition("Mbit")[0]
        hosts = json.loads(next(line for line in kept if line.startswith("hosts")).partition("=")[2])
        kept.append(f'trunk = "{float(rate) * (len(hosts) // 2):.4g}Mbit/s"')
    return "\n".join(kept) + "\n"


def in_lab(case: Case, number: int, words: list[str], place: Path) -> str:
    """Run a command of ccctl inside the lab of a case, and return what it printed."""
    (place / "lab.toml").write_text(case.text)
    name = f"acc{number}"
    up = subprocess.run([*CCCTL, "lab", "up", "lab.toml"], cwd=place, capture_output=True, text=True)
    if up.returncode:
        raise SystemExit(f"{case.text}\n{up.stderr}")
    try:
        command = [*CCCTL, "lab", "run", "--lab", name, "--", *CCCTL, *words]
        return subprocess.run(command, cwd=place, capture_output=True, text=True).stdout
    finally:
        subprocess.run([*CCCTL, "lab", "down", "--lab", name], cwd=place, capture_output=True)


if __name__ == "__main__":
    main()
