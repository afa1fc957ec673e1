"""Each published algorithm and ours on the same input, 30 seeds: medians, with intervals of the median.

    python benchmarks/published_and_ours.py [--seeds 30] [greedy|ilp|orbits|ski|trivance|scale ...]

A ratio is the published algorithm's figure over ours for the same seed; above 1 ours is better. The interval
is the 95 % interval of the median, by the ranks of the sorted ratios. Every schedule is checked.

- greedy: TACOS-Greedy (`tacos_published`) and `greedy`, one search each, one chunk a share of 64 MiB; times
  of schedules are simulated, seconds to find are processor time after all loops are compiled.
- ilp: TACOS-ILP from the diameter up (`tacos_ilp_published`) and `ilp`, which starts from greedy's schedules
  and the proven bound, on random networks of 6 ranks and links of two rates; both by HiGHS.
- orbits: `tacos_ilp_published` without and with the programs by orbits of `synth.tacos_ilp`, for an
  all_gather on networks with translations. Both are proven optimal, so schedules take equally long; both use
  the same solver.
- ski: AdapCC's rule with the cost for the ranks that are ready now, and ours, on 50 steps a seed; costs are
  simulated on two hosts of four GPUs. Ranks are late by an exponential time: single GPUs inside hosts (the
  paper's case), or whole hosts. The rules are replayed, not run. Compared are the times from the first rank's
  readiness to the full result; a second ratio is of always waiting over ours.
- trivance: all_reduces on tori, in the model of Trivance's simulations (arXiv 2602.17254): wires of 100 GB/s,
  1.5 µs a step and 0.2 µs a hop, two ports for each axis. Trivance's time is that of the faster of its two
  algorithms: for each step the latency, and the bytes on the busiest wire. Our time is simulated: a message
  holds all wires on its way, and a rank may send several during the latency of one. A second ratio is of the
  schedules of its steps (`--method trivance`) over ours, both simulated.
- scale: how far TACOS-ILP gets on Table I's networks in the 70 s in which the paper solves 64 ranks.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import comb, prod
from statistics import geometric_mean
from unittest.mock import patch

import numpy as np

from exec.stragglers import Arrivals, SimulatedCosts, replay_arrivals
from probes.base import format_size
from synth.check.schedule import check
from synth.collective import Kind, collective
from synth.errors import NotApplicableError
from synth.kernels import all_compiled
from synth.methods import greedy, ilp
from synth.network import Link, Network, build
from synth.networks.families import family
from synth.published import tacos_greedy, tacos_ilp
from synth.schedules import Schedule
from synth.simulation.schedule import replay

SIZE_BYTES, CHUNK_BYTES, ALPHA_S = 64 << 20, 1 << 20, 0.5e-6
GREEDY: tuple[tuple[str, tuple[float, ...], tuple[int, ...]], ...] = (
    ("mesh:5x5", (100.0,), ()),
    ("dragonfly:4x5", (400.0, 200.0), ()),
    ("switch_switch:8x4", (300.0, 25.0), (7, 1)),
    ("rfs:2x4x4", (200.0, 100.0, 50.0), (1,)),
    ("mesh:10x10", (100.0,), ()),
)
ORBITS: tuple[tuple[str, tuple[float, ...], tuple[int, ...]], ...] = (
    *((spec, (100.0,), ()) for spec in ("ring:6", "ring:8", "torus:3x3", "torus:3x4", "torus:4x4")),
    *((spec, (100.0,), ()) for spec in ("torus:5x5", "torus:2x2x2", "switch:6", "switch:8")),
    ("fully_connected:8", (100.0,), ()),
    *((spec, (200.0, 100.0, 50.0), (1,)) for spec in ("rfs:2x4x1", "rfs:2x4x2")),
)
HOSTS, GPUS, STEPS = 2, 4, 50
# Trivance's tori, and the sizes up to which it is ahead of others; its wires and latencies.
TORI = ("4x4x4", "8x8", "16x16")
TORUS_BYTES = tuple(1 << power for power in (12, 14, 16, 18, 20, 22, 23))
WIRE_BYTES_PER_S, STEP_S, HOP_S = 100e9, 1.5e-6, 0.2e-6
# The time in which the paper's solver has an all_reduce of 64 ranks.
SCALE_S = 70


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Return (median, low, high) with the 95 % interval of the median, by the ranks of the sorted values."""
    ordered = sorted(values)
    count = len(ordered)
    below, at = 0.0, 0
    while at < count // 2 and (below := below + comb(count, at) / 2**count) <= 0.025:
        at += 1
    at = max(0, at - 1)
    return float(np.median(ordered)), ordered[at], ordered[count - 1 - at]


def told(values: Sequence[float]) -> str:
    """Return a cell: the median and its interval."""
    median, low, high = interval(values)
    return f"{median:6.3f} [{low:.3f}, {high:.3f}]"


def judged(made: Schedule) -> float:
    """Return the simulated seconds; end the benchmark if the schedule is wrong."""
    if found := check(made):
        sys.exit(f"{made.method}: {found[0]}")
    return replay(made).time_s


def timed(make: Callable[[], Schedule]) -> tuple[float, float]:
    """Return (simulated seconds, processor seconds to find it)."""
    begun_s = time.process_time()
    made = make()
    used_s = time.process_time() - begun_s
    return judged(made), used_s


def greedies(seeds: int) -> Iterator[str]:
    """Yield a line for each network and collective."""
    kinds: tuple[Kind, ...] = ("all_gather", "all_reduce")
    for spec, rates, unwind in GREEDY:
        network = family(spec, [ALPHA_S], [rate * 1e9 for rate in rates], hold_alpha=True, unwind=unwind)
        for kind in kinds:
            shape = collective(kind, network.ranks, network.ranks if kind == "all_reduce" else 1)
            size = SIZE_BYTES // network.ranks
            times, found = [], []
            for seed in (0, *range(seeds)):
                there, there_s = timed(
                    partial(tacos_greedy.synthesize, network, shape, size, seed=seed, starts=1)
                )
                ours, ours_s = timed(
                    partial(greedy.synthesize, network, shape, size, seed=seed, time_limit_s=0.0)
                )
                times.append(there / ours)
                found.append(there_s / max(ours_s, 1e-6))
            # The first run compiles.
            times, found = times[1:], found[1:]
            yield f"{spec + ' ' + kind:36}{told(times):>26}{told(found):>30}"


def random_network(seed: int) -> Network:
    """Return 6 ranks on a ring, both ways, with random links added, each of 100 or 50 GB/s at random."""
    dice = np.random.default_rng(seed)
    pairs = {(at, (at + 1) % 6) for at in range(6)} | {((at + 1) % 6, at) for at in range(6)}
    pairs |= {(int(a), int(b)) for a, b in dice.integers(0, 6, (6, 2)) if a != b}
    links = [Link(a, b, 0.0, 1e-11 * int(dice.integers(1, 3))) for a, b in sorted(pairs)]
    return build(f"random:{seed}", [f"n{rank}" for rank in range(6)], links, hold_alpha=True)


def programs(seeds: int) -> Iterator[str]:
    """Yield one line: times and processor seconds of both searches over random networks."""
    times, found, proven = [], [], [0, 0]
    for seed in range(seeds):
        network, shape = random_network(seed), collective("all_gather", 6, 1)
        made: list[tuple[float, float]] = []
        for at, method in enumerate((tacos_ilp.synthesize, ilp.synthesize)):
            begun_s = time.process_time()
            schedule = method(network, shape, CHUNK_BYTES, seed=seed, solver="highs", time_limit_s=20.0)
            used_s = time.process_time() - begun_s
            made.append((judged(schedule), used_s))
            proven[at] += schedule.outcome is not None and schedule.outcome.status == "optimal"
        times.append(made[0][0] / made[1][0])
        found.append(made[0][1] / max(made[1][1], 1e-6))
    name = f"random:6 all_gather ({proven[0]}/{proven[1]} proven)"
    yield f"{name:36}{told(times):>26}{told(found):>30}"


def orbits() -> Iterator[str]:
    """Yield the ratios of each network, and the mean and least ratio of processor seconds."""
    gains = []
    for spec, rates, unwind in ORBITS:
        network = family(spec, [ALPHA_S], [rate * 1e9 for rate in rates], hold_alpha=True, unwind=unwind)
        shape = collective("all_gather", network.ranks, 1)
        make = partial(tacos_ilp.synthesize, network, shape, CHUNK_BYTES, solver="highs")
        with patch.object(tacos_ilp, "by_orbits", return_value=("unknown", [])):
            whole, whole_s = timed(make)
        made, made_s = timed(make)
        gains.append(whole_s / made_s)
        yield f"{spec:36}{whole / made:26.3f}{gains[-1]:30.1f}"
    yield f"{len(gains)} networks: geometric mean {geometric_mean(gains):.1f}, least {min(gains):.2f}"


def hosts() -> Network:
    """Return two hosts of four GPUs: 300 GB/s inside, a NIC of 12.5 GB/s each."""
    ranks = range(HOSTS * GPUS)
    links = [
        Link(a, b, 5e-6, 1 / 300e9)
        if a // GPUS == b // GPUS
        else Link(a, b, 15e-6, 1 / 12.5e9, (f"out {a // GPUS}", f"in {b // GPUS}"))
        for a in ranks
        for b in ranks
        if a != b
    ]
    return build("2 hosts of 4 GPUs", [f"n{rank // GPUS}" for rank in ranks], links)


def arrivals(whole: bool, mean_s: float, seed: int) -> Arrivals:
    """Return steps in which one GPU of each host, or all GPUs of a host, are late by an exponential time."""
    dice = np.random.default_rng(seed)
    moments_s = np.zeros((STEPS, HOSTS * GPUS))
    for step in range(STEPS):
        for host in range(HOSTS):
            first = host * GPUS
            at = slice(first, first + GPUS) if whole else first + int(dice.integers(GPUS))
            moments_s[step, at] = dice.exponential(mean_s)
    return Arrivals.of(moments_s)


def rentals(seeds: int) -> Iterator[str]:
    """Yield a line for each case: the published rule over ours, and waiting over ours."""
    from synth import Request, synthesize

    network = hosts()
    schedule = synthesize(
        Request(network, "all_reduce", size_bytes=SIZE_BYTES, method="hierarchical", jobs=0)
    ).schedule
    assert isinstance(schedule, Schedule)
    costs = SimulatedCosts(schedule)
    for whole in (False, True):
        for mean_s in (costs.whole_s / 2, 2 * costs.whole_s, 8 * costs.whole_s):
            rules, waits = [], []
            for seed in range(seeds):
                found = replay_arrivals(arrivals(whole, mean_s, seed), costs, cycle_s=costs.whole_s / 20)
                done = {
                    name: one.completion_s.sum()
                    for name, one in found.policies.items()
                    if one.completion_s is not None
                }
                rules.append(done["break_even_published"] / done["break_even_extra"])
                waits.append(done["always_wait"] / done["break_even_extra"])
            name = f"{'whole hosts' if whole else 'single GPUs'} late, mean {mean_s / costs.whole_s:g} C"
            yield f"{name:36}{told(rules):>26}{told(waits):>30}"


def wired_torus(sizes: Sequence[int]) -> Network:
    """Return a torus in which a message along an axis goes the shorter way and holds each wire on it."""
    ranks, links, stride = prod(sizes), [], 1
    for axis, size in enumerate(sizes):
        for rank in range(ranks):
            place = rank // stride % size
            for way in (1, -1):
                wires: list[str] = []
                for hops in range(1, size // 2 + 1):
                    before, to = ((place + way * at) % size for at in (hops - 1, hops))
                    wires.append(f"{rank + (before - place) * stride} {axis} {way}")
                    alpha_s, there = STEP_S + HOP_S * hops, rank + (to - place) * stride
                    links.append(Link(rank, there, alpha_s, 1 / WIRE_BYTES_PER_S, tuple(wires)))
        stride *= size
    return build("x".join(map(str, sizes)), [f"n{rank}" for rank in range(ranks)], links)


def trivance_s(sizes: Sequence[int], size_bytes: int) -> float:
    """Return the time of the faster of Trivance's algorithms, by the model of its paper.

    Each axis has a part of the buffer that begins with it. A step takes its latency plus the bytes on a wire:
    the bytes of a message times the messages that pass the wire, one for each hop.
    """
    axes, ranks = len(sizes), prod(sizes)
    part, latency_s, whole_s, halves_s = size_bytes / axes, 0.0, 0.0, 0.0
    steps = []
    for size in sizes:
        width, distances = 1, []
        while width < size:
            distances.append(min(width, (size - width + 1) // 2))
            width *= 3
        steps.append(distances)
    for distance in (one for distances in steps for one in distances):
        latency_s += STEP_S + HOP_S * distance
        whole_s += distance * part / WIRE_BYTES_PER_S
    # The all_gather, farthest steps first, axes in turn; ``held`` are the offsets that have the data.
    held = [{0} for _ in sizes]
    for step in reversed(range(max(map(len, steps)))):
        for axis in reversed(range(axes)):
            if step >= len(steps[axis]):
                continue
            distance, before = steps[axis][step], prod(map(len, held))
            moves = (0, distance, -distance)
            held[axis] = {(at + by) % sizes[axis] for at in held[axis] for by in moves}
            blocks = (prod(map(len, held)) - before) / 2
            halves_s += distance * blocks * part / ranks / WIRE_BYTES_PER_S
    assert prod(map(len, held)) == ranks
    return min(latency_s + whole_s, 2 * (latency_s + halves_s))


def tori() -> Iterator[str]:
    """Yield for each torus and size the times of Trivance, and of its steps simulated, over ours."""
    from synth import Request, synthesize

    for spec in TORI:
        sizes = [int(word) for word in spec.split("x")]
        network = wired_torus(sizes)
        for size_bytes in TORUS_BYTES:
            made: list[Schedule] = []
            for method in ("auto", "trivance"):
                request = Request(network, "all_reduce", size_bytes=size_bytes, method=method, jobs=0)
                found = synthesize(request).schedule
                assert isinstance(found, Schedule)
                made.append(found)
            ours_s, again_s = map(judged, made)
            name = f"{spec} {format_size(size_bytes)}, {made[0].method}"
            yield f"{name:36}{trivance_s(sizes, size_bytes) / ours_s:26.3f}{again_s / ours_s:30.3f}"


def scale(limit_s: int) -> Iterator[str]:
    """Yield how far TACOS-ILP gets on the paper's Ring_FullyConnected_Switch within ``limit_s`` each."""
    solved = 0
    for nodes in (1, 2, 4, 8):
        spec = f"rfs:2x4x{nodes}"
        network = family(spec, [ALPHA_S], [200e9, 100e9, 50e9], hold_alpha=True, unwind=(1,))
        shape = collective("all_reduce", network.ranks, network.ranks)
        # Steps of one fast hop: the paper gives no factor.
        step_s = float(network.travel_s(CHUNK_BYTES).min())
        begun_s = time.perf_counter()
        try:
            made = tacos_ilp.synthesize(
                network, shape, CHUNK_BYTES, time_limit_s=limit_s, solver="highs", time_step_s=step_s
            )
        except NotApplicableError as refused:
            yield f"{network.ranks} ranks: {refused}"
            break
        outcome, took_s = made.outcome, time.perf_counter() - begun_s
        assert outcome is not None and outcome.gap is not None
        how = f"stopped {outcome.gap:.0%} above the undecided horizon" if outcome.gap else "solved"
        greedy_s = judged(greedy.synthesize(network, shape, CHUNK_BYTES))
        yield (
            f"{network.ranks} ranks: {how} as {made.method}, {took_s:.0f} s, "
            f"{greedy_s / judged(made):.3f} times as fast as one greedy"
        )
        solved = solved if outcome.gap else network.ranks
    yield f"solved up to {solved} ranks"


PARTS: dict[str, tuple[Callable[[int], Iterator[str]], str, str]] = {
    "greedy": (greedies, "schedule's time", "time to find"),
    "ilp": (programs, "schedule's time", "time to find"),
    "orbits": (lambda seeds: orbits(), "schedule's time", "time to find"),
    "ski": (rentals, "published / ours", "waiting / ours"),
    "trivance": (lambda seeds: tori(), "published / ours", "its steps / ours"),
    "scale": (lambda seeds: scale(SCALE_S), "TACOS-ILP", f"{SCALE_S} s each"),
}


def main(arguments: Sequence[str] = ()) -> None:
    """Print the requested tables."""
    parser = argparse.ArgumentParser(description="Published algorithms against ours.")
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], metavar="PART")
    parser.add_argument("--seeds", type=int, default=30)
    asked = parser.parse_args(list(arguments))
    for name in asked.parts or PARTS:
        lines, first, second = PARTS[name]
        print(f"{name + ': published / ours':36}{first:>26}{second:>30}")
        with all_compiled():
            for line in lines(asked.seeds):
                print(line, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
