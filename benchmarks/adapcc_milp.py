"""Solve AdapCC's published integer program (Sec. IV-D) on a few ranks, and simulate the solution.

    python benchmarks/adapcc_milp.py [FILTER]

For each case M, the time by equation 4 with the solver's status, the seconds of solving, and the simulated
time of the program that carries out the solution; in this program every chunk that is not aggregated is a
separate chunk. Then for each part S_m, C_m, the root and the ranks that aggregate (a = 1). Equation 5 counts
every chunk at the pace of the slowest hop after the first has arrived, which is one chunk more than a
pipeline has. It also shares links as if all flows were active all the time. The simulation knows who sends
when, so its time may be shorter or longer.

`late` has a rank whose link has 400 us of latency, while a kernel takes 50 us: waiting costs more than load.
"""

from __future__ import annotations

import sys
import time
from itertools import product

from synth.check.program import judge
from synth.network import Link, Network, build
from synth.published.adapcc_algorithm import strategy_algorithm
from synth.published.adapcc_milp import Choice, PublishedStrategy, Question, solve
from synth.simulation.program import Costs, simulate_program

MB = 1_000_000
SIZE_BYTES = 12 * MB
CHUNKS = (1 * MB, MB // 4)
TIME_LIMIT_S = 120.0


def connected(ranks: int, slow: float) -> Network:
    """Return a full mesh of 10 GB/s; the links of the last rank are ``slow`` times slower."""
    links = [
        Link(a, b, 5e-6, (slow if ranks - 1 in (a, b) else 1.0) * 1e-10)
        for a, b in product(range(ranks), repeat=2)
        if a != b
    ]
    return build(f"{ranks} ranks", [f"n{rank}" for rank in range(ranks)], links)


def behind(late_s: float, fast: float) -> Network:
    """Return ranks 2 and 3 behind rank 1, whose link to the root is ``fast`` times as fast as theirs."""
    links = [Link(1, 0, 5e-6, 1e-10 / fast), Link(2, 1, 5e-6, 1e-10), Link(3, 1, late_s, 1e-10)]
    return build("behind one", [f"n{rank}" for rank in range(4)], links)


def choices(sub_collectives: int) -> tuple[Choice, ...]:
    """Return equal parts, each with every chunk size."""
    part = SIZE_BYTES // sub_collectives
    return tuple(Choice(part, chunk_bytes) for chunk_bytes in CHUNKS)


def uneven() -> tuple[Choice, ...]:
    """Return a quarter, half or three quarters of the tensor."""
    return tuple(Choice(SIZE_BYTES * quarters // 4, CHUNKS[1]) for quarters in (1, 2, 3))


CASES: tuple[tuple[str, Question], ...] = (
    ("even", Question(behind(5e-6, 1.0), "reduce", SIZE_BYTES, 1, choices(1))),
    ("late", Question(behind(400e-6, 100.0), "reduce", SIZE_BYTES, 1, choices(1), kernel_s=50e-6)),
    ("slow rank", Question(connected(3, 4.0), "reduce", SIZE_BYTES, 1, choices(1))),
    ("slow rank", Question(connected(3, 4.0), "reduce", SIZE_BYTES, 2, choices(2))),
    ("slow rank", Question(connected(3, 4.0), "reduce", SIZE_BYTES, 3, choices(3)[:1])),
    ("slow rank", Question(connected(3, 4.0), "reduce", SIZE_BYTES, 4, choices(4)[:1])),
    ("uneven parts", Question(connected(3, 2.0), "reduce", SIZE_BYTES, 2, uneven())),
    ("slow rank", Question(connected(3, 4.0), "broadcast", SIZE_BYTES, 2, choices(2))),
    ("slow rank", Question(connected(3, 4.0), "all_to_all", SIZE_BYTES, 1, choices(1))),
)


def simulated_s(found: PublishedStrategy) -> float:
    """Return the time of the program that carries out a solution; exit if the checker refuses the program."""
    algorithm, unit_bytes = strategy_algorithm(found)
    made = algorithm()
    if findings := judge(made):
        sys.exit(f"{found.question.network.name}: {findings[0]}")
    return simulate_program(made, found.question.network, unit_bytes, Costs(step_s=0.0)).time_s


def main(wanted: str = "") -> None:
    """Print the cases whose name or collective contains ``wanted``."""
    for name, question in CASES:
        if wanted not in f"{name} {question.kind}":
            continue
        begun_s = time.perf_counter()
        found = solve(question, time_limit_s=TIME_LIMIT_S)
        taken_s = time.perf_counter() - begun_s
        print(
            f"{name:14}{question.kind:12}M={question.sub_collectives}{found.time_s * 1e6:10.1f} us "
            f"{found.status:9}{taken_s:6.1f} s   simulated {simulated_s(found) * 1e6:9.1f} us"
        )
        for part in found.parts:
            where = ", ".join(map(str, sorted(part.aggregates))) or "nowhere"
            print(
                f"    S_m {part.choice.size_bytes / MB:g} MB, C_m {part.choice.chunk_bytes / MB:g} MB, "
                f"root {'-' if part.root is None else part.root}, a = 1 at {where}"
            )


if __name__ == "__main__":
    main(*sys.argv[1:2])
