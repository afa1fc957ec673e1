"""Explore schedules of the kernel's protocols in Relacy, and count the mutants that the schedules catch.

For each protocol, it prints the schedules of the real protocol in each scenario, then the number of mutants
that each scenario is the first to catch, the number that each kind of outcome gives away, and each mutant
that is equivalent with the proof. With --all it prints a line for each mutant. Needs g++ and Relacy's headers
(Debian package relacy-dev).

    python -P benchmarks/flag_mutants.py [--schedules 20000] [--all]
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "tests" / "helpers"))
from protocol_mutants import EQUIVALENT, mutants  # noqa: E402 - the mutants of the tests
from weak_memory import COMPILER, RELACY, explored, model, scenarios  # noqa: E402 - the models of the tests

PROTOCOLS = ("Simple", "LL", "LL128")
# The most schedules to run of each scenario on a mutant, as in the tests. Every mutant that is caught is
# caught within 268 schedules.
SCHEDULES_OF_A_MUTANT = 400
# The search of the smallest scenario covers every schedule with up to this many context switches. One more
# switch takes minutes.
SWITCHES = {"Simple": 3, "LL": 2, "LL128": 3}


def main() -> int:
    """Print the tables.

    Return 1 if a real protocol is wrong, or if a mutant is neither caught nor proven equivalent.
    """
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--schedules", type=int, default=20_000)
    options.add_argument("--all", action="store_true", help="a line for each mutant")
    asked = options.parse_args()
    if not (COMPILER and RELACY):
        print("flag_mutants: g++ and Relacy are needed; install g++ and relacy-dev", file=sys.stderr)
        return 69
    failures = 0
    for by in PROTOCOLS:
        failures += real_protocol(by, asked.schedules)
        failures += mutants_of(by, asked.all)
    return int(failures > 0)


def real_protocol(by: str, schedules: int) -> int:
    """Print a row for each scenario of the real protocol; return how many are wrong."""
    executable, wrong = model(by, mutants(by)), 0
    print(f"{by + ', the real protocol':32} {'search':>12} {'schedules':>10} {'s':>6}  outcome")
    searches = [(name, "random", schedules) for name in scenarios(by)]
    searches.append(("one place", str(SWITCHES[by]), 0))
    for name, search, most in searches:
        begun_s = time.monotonic()
        found = explored(executable, by, scenarios(by)[name], search=search, iterations=most)
        told = "random" if search == "random" else f"{search} switches"
        print(
            f"{name:32} {told:>12} {found.schedules:10} {time.monotonic() - begun_s:6.1f}  "
            f"{'right' if found.right else found.outcome}",
            flush=True,
        )
        wrong += not found.right
    return wrong


def mutants_of(by: str, each: bool) -> int:
    """Print which scenarios catch the mutants; return how many are neither caught nor proven equivalent."""
    executable, every = model(by, mutants(by)), mutants(by)
    first: Counter[str] = Counter()
    outcomes: Counter[str] = Counter()
    proofs: list[str] = []
    alive, most = 0, 0
    for mutant in every:
        for name, scenario in scenarios(by).items():
            found = explored(executable, by, scenario, mutant=mutant.number, iterations=SCHEDULES_OF_A_MUTANT)
            if not found.right:
                first[name] += 1
                outcomes[found.outcome.removesuffix(": -").removeprefix("USER ASSERT FAILED: ").lower()] += 1
                most = max(most, found.schedules)
                break
        proven = found.right and mutant.change in EQUIVALENT
        if proven:
            proofs.append(f"{mutant.number} {mutant.name}: {EQUIVALENT[mutant.change]}")
        alive += found.right and not proven
        if each or (found.right and not proven):
            fate = f"{name}: {found.outcome}" if not found.right else "equivalent" if proven else "ALIVE"
            print(f"{mutant.number:4} {mutant.kind:10} {fate:40.40} {mutant.name}")
    print(
        f"{by}: {len(every)} mutants, {sum(first.values())} caught within {most} schedules, "
        f"{len(proofs)} proven equivalent, {alive} alive"
    )
    print("  by scenario: " + ", ".join(f"{name} {count}" for name, count in first.most_common()))
    print("  by outcome: " + ", ".join(f"{name} {count}" for name, count in outcomes.most_common()))
    print("".join(f"  equivalent: {proof}\n" for proof in proofs))
    return alive


if __name__ == "__main__":
    sys.exit(main())
