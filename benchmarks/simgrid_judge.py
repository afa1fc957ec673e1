"""Our simulator beside SimGrid, on random schedules and networks.

    python -P benchmarks/simgrid_judge.py [--cases 200] [--seed 1]

Each case is a connected network of 2 to 12 ranks with links of unequal alpha and beta, of which some hold
their links for alpha too, a collective of 1 byte to 1 MiB a chunk, and one of nine methods; each schedule is
checked. The table has the ratio of SimGrid's time to ours in three groups: no shared ports; sends that take
turns at ports; ports shared evenly and in no order, as on networks that queue and for all streams. "An
arrival apart" is the largest difference of the arrival of one send, as a part of the whole time.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from synth.check.schedule import check
from synth.collective import KINDS, Kind, collective
from synth.errors import NotApplicableError
from synth.methods import bidirectional, direct, doubling, forest, greedy, hierarchical, paths, ring, tree
from synth.network import Link, Network, build
from synth.schedules import Schedule
from synth.simulation.schedule import replay
from synth.simulation.simgrid import replay_in_simgrid, takes_turns

METHODS: tuple[Callable[..., Schedule], ...] = tuple(
    each.synthesize
    for each in (bidirectional, direct, doubling, forest, greedy, hierarchical, paths, ring, tree)
)
AGREE = 0.01


@dataclass(frozen=True)
class Compared:
    """One schedule in SimGrid: its time as a multiple of ours, and the largest difference of an arrival."""

    network: str
    method: str
    kind: str
    ratio: float
    apart: float


def drawn_network(draw: random.Random, *, ports: bool, queues: bool = False) -> Network:
    """Return a ring of ranks in random order with random links added.

    With ports, two ranks form a host and share a NIC.
    """
    ranks = draw.randint(2, 12)
    order = draw.sample(range(ranks), ranks)
    pairs = {(a, b) for a, b in zip(order, order[1:] + order[:1], strict=True)}
    density = draw.choice((0.0, 0.2, 1.0))
    pairs |= {(a, b) for a in range(ranks) for b in range(ranks) if a != b and draw.random() < density}
    links = [
        Link(
            a,
            b,
            draw.choice((0.0, 5e-7, 2e-6, 1e-5)),
            1 / draw.choice((1e9, 12.5e9, 25e9, 50e9, 300e9)),
            (f"out {a // 2}", f"in {b // 2}") if ports and a // 2 != b // 2 else (),
        )
        for a, b in sorted(pairs)
    ]
    hosts = [f"h{rank // 2}" for rank in range(ranks)]
    network = build(f"random ({ranks} ranks)", hosts, links, hold_alpha=not queues and draw.random() < 0.25)
    return replace(network, queues=queues)


def drawn_schedule(draw: random.Random, network: Network) -> Schedule:
    """Return a collective by a method that can run it on the network; greedy runs all."""
    while True:
        kinds: tuple[Kind, ...] = tuple(kind for kind in KINDS if kind not in ("custom", "several"))
        shape = collective(draw.choice(kinds), network.ranks, draw.choice((1, 2, 5)))
        try:
            found = draw.choice(METHODS)(network, shape, draw.choice((1, 4096, 65536, 1 << 20)), seed=1)
        except NotApplicableError:
            continue
        if not found.sends:
            continue
        assert check(found) == []
        return found


def compared(schedule: Schedule, *, turns: bool) -> Compared:
    """Run both simulators on one schedule."""
    ours, theirs = replay(schedule), replay_in_simgrid(schedule, turns=turns)
    apart = float(np.abs(theirs.arrival_s - ours.arrival_s).max()) / ours.time_s
    ratio = theirs.time_s / ours.time_s
    return Compared(schedule.network.name, schedule.method, schedule.collective.kind, ratio, apart)


def group(cases: int, seed: int, *, ports: bool, queues: bool = False, turns: bool) -> list[Compared]:
    """Return ``cases`` compared schedules, each on a separate network."""
    draw = random.Random(seed)
    found: list[Compared] = []
    while len(found) < cases:
        schedule = drawn_schedule(draw, drawn_network(draw, ports=ports, queues=queues))
        if not turns or takes_turns(schedule):
            found.append(compared(schedule, turns=turns))
    return found


def main() -> None:
    """Print the table, and each case of a group with one model that differs by more than 1 %."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--cases", type=int, default=200, help="schedules of each group")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    print("| networks | schedules | within 1 % | ratio, least | median | most | an arrival apart, most |")
    print("|---|---|---|---|---|---|---|")
    wrong: list[Compared] = []
    for name, ports, queues, turns in (
        ("no shared ports", False, False, True),
        ("ports, in turns", True, False, True),
        ("ports shared evenly", True, False, False),
        ("ports that queue, shared evenly", True, True, False),
    ):
        found = group(asked.cases, asked.seed, ports=ports, queues=queues, turns=turns)
        ratios = np.array([one.ratio for one in found])
        near = int((np.abs(ratios - 1) <= AGREE).sum())
        apart = f"{max(one.apart for one in found):.2g}" if turns else "–"
        print(
            f"| {name} | {len(found)} | {near} | {ratios.min():.4f} | {np.median(ratios):.4f} "
            f"| {ratios.max():.4f} | {apart} |",
            flush=True,
        )
        if turns:
            wrong += [one for one in found if max(abs(one.ratio - 1), one.apart) > AGREE]
    for one in wrong:
        print(f"- {one.kind} by {one.method} on {one.network}: {one.ratio:.4f}, {one.apart:.2g} apart")


if __name__ == "__main__":
    main()
