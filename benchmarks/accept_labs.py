"""Faults in emulated clusters: does `ccctl accept` name them, and nothing else?

    sudo python -P benchmarks/accept_labs.py [--cases 20] [--seed 1] [--hosts 4:8] [--budget 40s]
        [--kinds egress,loss]

Each case is a random lab of network namespaces: hosts on one switch or in two racks, all with the same random
rate, and one fault or none. `ccctl accept` runs inside, and its certificate is compared with the fault. A
case is *right* if exactly that fault is named, by its kind and its hosts; of a trunk, only the kind is
compared. The last lines count by kind. Needs root.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

CCCTL = (sys.executable, "-P", "-m", "ccctl")
KINDS = ("none", "egress", "ingress", "pair", "one_way_pair", "trunk", "latency", "loss", "mtu")
# Rates at which two cores carry the traffic of eight hosts without being the limit themselves.
RATES_MBIT = (50, 100, 200)


@dataclass(frozen=True)
class Case:
    """One lab: its description in TOML, and the kind and the parts of the fault in it."""

    kind: str
    parts: tuple[str, ...]
    hosts: tuple[str, ...]
    text: str


@dataclass(frozen=True)
class NamedFault:
    """A fault that the certificate names: its kind, its part, and the hosts of that part."""

    kind: str
    part: str
    hosts: tuple[str, ...]


@dataclass
class Count:
    """The results of the cases with one kind of fault."""

    cases: int = 0
    right: int = 0


def main() -> None:
    """Print one line for each case, then the counts."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cases", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--hosts", default="4:8", help="fewest:most hosts")
    parser.add_argument("--budget", default="40s")
    parser.add_argument("--kinds", default=",".join(KINDS))
    wanted = parser.parse_args()
    # A lab is removed also if the script is told to end.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    chance = random.Random(wanted.seed)
    fewest, most = map(int, wanted.hosts.split(":"))
    kinds = wanted.kinds.split(",")
    counts: dict[str, Count] = defaultdict(Count)
    for number in range(wanted.cases):
        case = drawn(chance, kinds[number % len(kinds)], chance.randint(fewest, most), number)
        began_s = time.monotonic()
        told = accepted(case, number, wanted.budget)
        if told is None:
            print(f"{number:3d} {case.kind:12s} this kernel cannot emulate it", flush=True)
            continue
        right = is_right(case, told)
        count = counts[case.kind]
        count.cases += 1
        count.right += right
        print(
            f"{number:3d} {case.kind:12s} {' '.join(case.parts):24s} {len(case.hosts)} hosts "
            f"{'right' if right else 'WRONG'} {time.monotonic() - began_s:5.0f} s  {told}",
            flush=True,
        )
    for kind, count in counts.items():
        print(f"{kind:12s} {count.right} of {count.cases}")
    total = sum(count.cases for count in counts.values())
    print(f"all          {sum(count.right for count in counts.values())} of {total}")


def drawn(chance: random.Random, kind: str, count: int, number: int) -> Case:
    """Return a lab of ``count`` hosts with one fault of ``kind``."""
    rate = chance.choice(RATES_MBIT)
    hosts = tuple(f"n{at + 1}" for at in range(count))
    level = chance.uniform(0.3, 0.75)
    bad, other = chance.sample(hosts, 2)
    lines = [f'name = "acc{number}"', f"hosts = {json.dumps(hosts)}", f'rate = "{rate}Mbit/s"']
    racked = kind == "trunk" or chance.random() < 0.3
    if racked:
        cut = count // 2
        trunk: float = rate * min(cut, count - cut)
        if kind == "trunk":
            # Slower than a single host, so that every link across shows it.
            trunk = rate * level
        lines += [f"racks = {json.dumps([hosts[:cut], hosts[cut:]])}", f'trunk = "{trunk:.4g}Mbit/s"']
    slow = f"{rate * level:.4g}Mbit/s"
    tables = {
        "egress": f'[rates]\n"{bad}.egress" = "{slow}"',
        "ingress": f'[rates]\n"{bad}.ingress" = "{slow}"',
        "pair": f'[rates]\n"{bad} -> {other}" = "{slow}"\n"{other} -> {bad}" = "{slow}"',
        "one_way_pair": f'[rates]\n"{bad} -> {other}" = "{slow}"',
        "latency": f'[delays]\n"{bad}.egress" = "{chance.uniform(1, 5):.2g}ms"',
        "loss": f'[losses]\n"{bad}.egress" = "{chance.uniform(1, 3):.2g}%"',
        "mtu": f'[mtu]\n"{bad}" = 576',
    }
    parts = {"none": (), "trunk": ("trunk",), "pair": (bad, other), "one_way_pair": (bad, other)}
    lines.append(tables.get(kind, ""))
    return Case(kind, parts.get(kind, (bad,)), hosts, "\n".join(lines) + "\n")


def accepted(case: Case, number: int, budget: str) -> list[NamedFault] | None:
    """Return the faults that `ccctl accept` names in the lab; None if the kernel cannot emulate it."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "lab.toml").write_text(case.text)
        up = subprocess.run([*CCCTL, "lab", "up", "lab.toml"], cwd=place, capture_output=True, text=True)
        if up.returncode == os.EX_UNAVAILABLE:
            return None
        if up.returncode:
            raise SystemExit(f"{case.text}\n{up.stderr}")
        try:
            command = [*CCCTL, "accept", "--budget", budget, "-q", "-o", "out"]
            run = subprocess.run(
                [*CCCTL, "lab", "run", "--lab", f"acc{number}", "--", *command],
                cwd=place,
                capture_output=True,
                text=True,
            )
        finally:
            subprocess.run([*CCCTL, "lab", "down", "--lab", f"acc{number}"], cwd=place, capture_output=True)
        certificate = place / "out" / "certificate.json"
        if not certificate.exists():
            return [NamedFault("no certificate", run.stderr[-300:], ())]
        culprits = json.loads(certificate.read_text())["body"]["culprits"]
    return [
        NamedFault(one["kind"], one["part"], tuple(one["hosts"]))
        for one in culprits
        if one["severity"] == "fault"
    ]


def is_right(case: Case, told: list[NamedFault]) -> bool:
    """Return whether exactly the injected fault is named. Of a trunk, only the kind is compared."""
    if case.kind == "none":
        return not told
    if len(told) != 1:
        return False
    [found] = told
    if case.kind == "trunk":
        return found.kind == "trunk"
    if case.kind == "mtu":
        return found.hosts == case.parts and "mtu" in found.part
    return set(case.parts) == set(found.hosts) and found.kind == case.kind


if __name__ == "__main__":
    main()
