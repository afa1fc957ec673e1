"""The cost of a fault that `ccctl accept` predicts, beside the measured cost, in emulated clusters.

    sudo python -P benchmarks/accept_cost.py [--cases 8] [--seed 1] [--hosts 4:6] [--size 1M]
        [--keep FOLDER]

Each case is a random lab of network namespaces with one fault: a slow sender, a slow receiver, a slow pair or
a slow trunk. `ccctl accept` runs inside and predicts the time of an all_reduce with the fault and without it,
for ccctl's schedule and for the MPI library. This acceptance measures the time with the fault; a second one,
in the lab without the fault, measures the time without it. A line prints predicted over measured times: with
the fault, without it, and of their quotient, which is the cost. The last lines give the medians, and how many
are within 10 %. Needs root.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from probes.base import parse_size

sys.path.insert(0, str(Path(__file__).parent))

from accept_labs import Case, drawn, in_lab

KINDS = ("egress", "ingress", "pair", "trunk")
CLOSE = 0.1


@dataclass(frozen=True)
class Times:
    """Seconds of an all_reduce with and without the fault: predicted by ``accept``, and measured."""

    library: str
    algorithm: str
    with_s: float
    without_s: float
    measured_s: float
    sound_s: float

    @property
    def ratios(self) -> tuple[float, float, float]:
        """Predicted over measured: with the fault, without it, and of the cost."""
        one, other = self.with_s / self.measured_s, self.without_s / self.sound_s
        return one, other, one / other

    @property
    def told(self) -> str:
        """The times and ratios in words."""
        ratios = " ".join(f"{ratio:.2f}" for ratio in self.ratios)
        told = f"{1e3 * self.with_s:.0f} -> {1e3 * self.without_s:.0f} ms"
        then = f"{1e3 * self.measured_s:.0f} -> {1e3 * self.sound_s:.0f} ms"
        return f"{self.library} ({self.algorithm or 'simple'}): {told}, measured {then}, ratios {ratios}"


def main() -> None:
    """Print one line for each case, then the medians."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cases", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--hosts", default="4:6", help="fewest:most hosts")
    parser.add_argument("--size", default="1M")
    parser.add_argument("--keep", type=Path, help="folder for what the acceptances wrote")
    wanted = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    chance = random.Random(wanted.seed)
    fewest, most = map(int, wanted.hosts.split(":"))
    found: list[Times] = []
    for number in range(wanted.cases):
        case = drawn(chance, KINDS[number % len(KINDS)], chance.randint(fewest, most))
        kept = wanted.keep / f"{number}-{case.kind}" if wanted.keep else None
        times = measured(case, parse_size(wanted.size, "--size"), kept)
        found += times
        told = "; ".join(one.told for one in times) or "the fault was not priced"
        print(f"{number:2d} {case.kind:8s} {len(case.hosts)} hosts  {told}", flush=True)
    for library in dict.fromkeys(one.library for one in found):
        for at, name in enumerate(("with", "without", "cost")):
            ratios = [one.ratios[at] for one in found if one.library == library]
            close = sum(abs(ratio - 1) <= CLOSE for ratio in ratios)
            print(f"{library} {name}: median {median(ratios):.2f}, within 10 %: {close} of {len(ratios)}")


def measured(case: Case, size_bytes: int, kept: Path | None) -> list[Times]:
    """Return predicted and measured times by library; none if the fault was not named or not priced.

    The files of both acceptances are copied to ``kept``.
    """
    now = certificate_of(case, size_bytes, kept and kept / "with")
    rates = case.tables.pop("rates")
    sound = certificate_of(case, size_bytes, kept and kept / "without")
    case.tables["rates"] = rates
    culprit = next((one for one in now.get("culprits", ()) if one["kind"] == case.kind), None)
    if culprit is None:
        return []
    found = []
    for library, cost in (("ccctl", culprit["cost"]), ("mpi", culprit["library_cost"])):
        measured_s, sound_s = time_s(now, library, size_bytes), time_s(sound, library, size_bytes)
        if cost is not None and measured_s and sound_s:
            found.append(
                Times(library, cost["algorithm"], cost["with_s"], cost["without_s"], measured_s, sound_s)
            )
    return found


def certificate_of(case: Case, size_bytes: int, kept: Path | None) -> dict[str, Any]:
    """Return the body of the certificate of an acceptance in the lab; {} if there is none."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        in_lab(case, ["accept", "--size", str(size_bytes), "-q", "-o", str(place / "out")], place)
        certificate = place / "out/certificate.json"
        if not certificate.exists():
            return {}
        if kept is not None:
            shutil.copytree(place / "out", kept)
        body: dict[str, Any] = json.loads(certificate.read_text())["body"]
        return body


def time_s(body: dict[str, Any], library: str, size_bytes: int) -> float | None:
    """Return the measured time of an all_reduce in a certificate; None if there is none."""
    wanted = ("all_reduce", size_bytes, library)
    rows = {
        (row["collective"], row["size_bytes"], row["library"]): row["time_s"] for row in body.get("whole", ())
    }
    return rows.get(wanted)


if __name__ == "__main__":
    main()
