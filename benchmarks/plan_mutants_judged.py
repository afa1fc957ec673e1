"""Judges mutants of MSCCL++ plans, and runs them in random orders to test the verdicts.

usage: python benchmarks/plan_mutants_judged.py FOLDER [MUTANTS] [RUNS] [SEED]

FOLDER holds plans as JSON. Each mutant is one change of a plan that the judge accepts: a signal dropped, a
nop dropped, a channel swapped, an offset moved. What the judge accepts is run RUNS times (default 40) in
orders drawn by chance: each of them must be right. What it rejects is run up to RUNS times until one is not,
which tells how much of that a run can show. "accepted, wrong" must be 0: else the exit status is 1.
"""

import json
import random
import sys
from collections import Counter
from pathlib import Path

from plan_mutants import MUTATIONS, mutant

from exec.runtimes.mscclpp import run_plan
from synth.mscclpp import ExecutionPlan, judge_plan, read_plan
from synth.mscclpp.well_formed import form

_ROWS = ("mutants", "accepted", "accepted, wrong", "rejected", "rejected by form", "rejected, shown")


def main(folder: str, mutants: int = 2000, runs: int = 40, seed: int = 1) -> int:
    """Judge, run and count; 1 where an accepted mutant went wrong."""
    plans: list[ExecutionPlan] = []
    for path in sorted(Path(folder).rglob("*.json")):
        plan = read_plan(json.loads(path.read_bytes()), str(path))
        if judge_plan(plan):
            print(f"{path.name}: rejected as it is, not mutated")
        else:
            plans.append(plan)
    draw, counts = random.Random(seed), Counter[tuple[str, str]]()
    for number in range(mutants):
        if sys.stderr.isatty():
            print(f"\r{number}", end="", file=sys.stderr)
        mutation = MUTATIONS[number % len(MUTATIONS)]
        plan = draw.choice(plans)
        while (changed := mutant(plan, mutation, draw)) in (None, plan):
            plan = draw.choice(plans)
        assert changed is not None
        for row in judged(changed, runs):
            counts[mutation, row] += 1
    print("".join(f"{name:>18}" for name in ("", *MUTATIONS, "all")))
    for row in _ROWS:
        cells = [counts[mutation, row] for mutation in MUTATIONS]
        print(f"{row:>18}" + "".join(f"{cell:>18}" for cell in (*cells, sum(cells))))
    return 1 if any(counts[mutation, "accepted, wrong"] for mutation in MUTATIONS) else 0


def judged(plan: ExecutionPlan, runs: int) -> list[str]:
    """Return the rows that a mutant counts in."""
    if not judge_plan(plan):
        wrong = any(not run_plan(plan, seed).right for seed in range(runs))
        return ["mutants", "accepted", *(["accepted, wrong"] if wrong else [])]
    if form(plan):
        return ["mutants", "rejected", "rejected by form"]
    shown = any(not run_plan(plan, seed).right for seed in range(runs))
    return ["mutants", "rejected", *(["rejected, shown"] if shown else [])]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], *map(int, sys.argv[2:])))
