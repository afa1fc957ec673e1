"""Plan random demands on random networks: percent of the proven bound, and time against the usual method.

    python -P benchmarks/demands.py [--kind uneven] [--cases 60] [--seed 1] [--most-ranks 32]

Each case draws a network, one of MPI's v-collectives, and the sizes of its blocks: Zipf-skewed, one giant
block, most blocks empty, or uniform. A row gives the percent of the bound, by how much whole chunks exceed
the blocks of the busiest rank, the time of the same collective with all blocks padded to the largest over
ours (padded / ours), the chunks, and the processor seconds of the search.

With ``--kind redistribution`` tensors move between random layouts on random ranks. The usual method is to
send each part directly from a holder to each target (direct / ours).

With ``--kind step`` two or three random groups run side by side on hosts behind NICs of random rates, or on a
random mesh. A row gives the percent of the time without latency and with perfect sharing, and the time of
plans that ignore the other groups over ours. It also tells which part the prices
of the plan would upgrade by 1 GB/s, and which part saves most when each is upgraded in turn, with all groups
planned again and simulated; then the saving of the first over that of the second, and by how much later the
step ends with the first than with the second. The new plans follow the routes of the linear program that
also names the candidates of the prices; with ``--thorough`` all methods plan the upgraded steps, in minutes.

With ``--kind replan`` each row is a network of 64 or 512 ranks, for which a planner plans as many random
demand matrices of an all_to_all as ``--cases`` says. A row gives the mean and least percent of the bound, the
times of direct sends and of FAST over ours, and the processor milliseconds of a plan, warm. FAST (Lei et al.,
arXiv 2505.09764) balances the NICs of each host, then sends between hosts in permutations. Its time here is
the least that this order of work can take: the moves of balancing, then the busiest host; later moves within
hosts count as free. The time of our plans is by their rates; the proven schedules of `ccctl synth` take 0.5 %
more than the bound.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ccctl.arguments import load_network
from probes.base import Floats, Indices, UsageError
from synth import CollectiveRequest, DemandPlanner, Request, Schedule, synthesize
from synth.bounds import parts_of, upgraded
from synth.collective import UNEVEN_KINDS, Kind
from synth.kernels import all_compiled
from synth.network import Link, Network, build
from synth.portfolio import uneven_request
from synth.redistribution import MeshLayout, Moved, direct_time_s, redistribution
from synth.side_by_side import StepGroup, routed, side_by_side
from synth.simulation import replay_together

# About n ranks: r is a power of two near the root of n, c = n / r, d = log2(n), h = n / 8.
FAMILIES = (
    "ring:{n}",
    "switch:{n}",
    "torus:{r}x{c}",
    "mesh:{r}x{c}",
    "hypercube:{d}",
    "fat_tree:{r}x{c}/2",
    "dragonfly:{r}x{c}",
    "fully_connected:{n}",
    "ring_fc_switch:2x{r}x{h}",
)
MACHINES = ("dgx-1:1", "dgx-a100:{h}", "dgx-h100:{h}", "mi300x:1", "dgx-h100:{h}/rail/2")
REPLANNED = {
    64: ("dgx-h100:8", "dgx-h100:8/rail/2", "fat_tree:16x4/2", "fat_tree:8x8/4"),
    512: ("dgx-h100:64", "dgx-h100:64/rail/2", "fat_tree:16x32/2", "fat_tree:8x8x8/2"),
}
SHAPES = ("zipf", "giant", "sparse", "even")
STEP_KINDS: tuple[Kind, ...] = ("all_reduce", "all_gather", "all_to_all", "reduce_scatter")
BUSIEST_BYTES = 64 << 20
# On more ranks the time of padded blocks takes longer to find than ours.
MOST_PADDED_RANKS = 64


def main() -> None:
    """Print the table and its summary."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kind", choices=("uneven", "redistribution", "step", "replan"), default="uneven")
    parser.add_argument("--cases", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--thorough", action="store_true", help="plan upgraded steps by all methods")
    parser.add_argument("--most-ranks", type=int, default=32)
    wanted = parser.parse_args()
    kinds = {
        "uneven": uneven_cases,
        "redistribution": redistribution_cases,
        "step": step_cases,
        "replan": replan_cases,
    }
    kinds[wanted.kind](wanted)


def uneven_cases(wanted: argparse.Namespace) -> None:
    """Print the rows of uneven collectives, and their summary."""
    rng = np.random.default_rng(wanted.seed)
    percents, ratios, seconds = [], [], []
    print(
        "network               collective      blocks  ranks  % bound  rounding %  padded/ours  chunks  CPU s"
    )
    for number in range(wanted.cases):
        name, network = drawn_network(rng, wanted.most_ranks)
        kind = UNEVEN_KINDS[number % len(UNEVEN_KINDS)]
        shape = str(rng.choice(SHAPES))
        sizes = drawn_sizes(kind, network.ranks, shape, rng)
        began_s = time.process_time()
        try:
            percent, own_s, rounding, chunks = planned(network, kind, sizes)
        except UsageError as error:
            print(f"{name:<22}{kind:<16}{shape:<8}{network.ranks:>5}  refused: {error.message}", flush=True)
            continue
        took_s = time.process_time() - began_s
        if not own_s:
            continue  # The only block with data is already where it belongs.
        ratio = padded_s(network, kind, sizes) / own_s if network.ranks <= MOST_PADDED_RANKS else None
        print(
            f"{name:<22}{kind:<16}{shape:<8}{network.ranks:>5}{percent:>9.1f}{100 * rounding:>12.1f}"
            f"{'' if ratio is None else f'{ratio:.2f}':>13}{chunks:>8}{took_s:>7.1f}",
            flush=True,
        )
        percents.append(percent)
        ratios += [] if ratio is None else [ratio]
        seconds.append(took_s)
    print(
        f"{len(percents)} cases: {statistics.mean(percents):.1f} % of the bound in the mean, "
        f"{min(percents):.1f} at least; padded / ours {statistics.geometric_mean(ratios):.2f} (geometric "
        f"mean), {min(ratios):.2f} at least; {statistics.median(seconds):.1f} CPU s in the median, "
        f"{max(seconds):.1f} at most"
    )


def redistribution_cases(wanted: argparse.Namespace) -> None:
    """Print the rows of redistributions, and their summary."""
    rng = np.random.default_rng(wanted.seed)
    percents: list[float] = []
    ratios: list[float] = []
    seconds: list[float] = []
    print("network               ranks  from  to  tensors  blocks  % bound  direct/ours  chunks  CPU s")
    while len(percents) < wanted.cases:
        name, network = drawn_network(rng, wanted.most_ranks)
        source, target = drawn_layout(network.ranks, rng), drawn_layout(network.ranks, rng)
        moved = [
            Moved((int(rng.integers(64, 4096)), int(rng.integers(64, 4096))), 2, source, target, count)
            for count in rng.integers(1, 9, int(rng.integers(1, 5))).tolist()
        ]
        plan = redistribution(network.ranks, moved)
        if not plan.size_bytes:
            continue  # Every rank holds already what it must have.
        began_s = time.process_time()
        try:
            one, size_bytes = plan.request()
        except UsageError as error:
            print(f"{name:<22}{network.ranks:>5}  refused: {error.message}", flush=True)
            continue
        found = synthesize(Request(network, "custom", size_bytes=size_bytes, collectives=(one,), jobs=0))
        took_s = time.process_time() - began_s
        outcome = found.schedule.outcome
        assert outcome is not None
        direct_s = direct_time_s(found.listed)
        ratio = f"{direct_s / outcome.time_s:>13.2f}" if direct_s else f"{'no links':>13}"
        print(
            f"{name:<22}{network.ranks:>5}{len(source.ranks):>6}{len(target.ranks):>4}"
            f"{sum(one.count for one in moved):>9}{len(plan.size_bytes):>8}{outcome.percent_of_optimal:>9.1f}"
            f"{ratio}{found.schedule.whole.chunks:>8}{took_s:>7.1f}",
            flush=True,
        )
        percents.append(outcome.percent_of_optimal)
        ratios += [direct_s / outcome.time_s] if direct_s else []
        seconds.append(took_s)
    print(
        f"{len(percents)} cases: {statistics.mean(percents):.1f} % of the bound in the mean, "
        f"{min(percents):.1f} at least; direct / ours {statistics.geometric_mean(ratios):.2f} (geometric "
        f"mean of {len(ratios)}), "
        f"{min(ratios):.2f} to {max(ratios):.2f}; {statistics.median(seconds):.1f} CPU s in the median, "
        f"{max(seconds):.1f} at most"
    )


def drawn_layout(ranks: int, rng: np.random.Generator) -> MeshLayout:
    """Return a layout of matrices on some of the ranks: a mesh of two axes, each cut or replicated."""
    count = int(rng.integers(1, ranks + 1))
    chosen = tuple(rng.permutation(ranks)[:count].tolist())
    rows = int(rng.choice([one for one in range(1, count + 1) if count % one == 0]))
    cuts = [None if axis == 2 else int(axis) for axis in rng.integers(0, 3, 2)]
    return MeshLayout(chosen, (rows, count // rows), tuple(cuts))


def step_cases(wanted: argparse.Namespace) -> None:
    """Print the rows of steps of several groups, and their summary."""
    rng = np.random.default_rng(wanted.seed)
    percents, ratios, shares, later = [], [], [], []
    print(
        "network     groups  % of sharing  unaware/ours  first named        best               "
        "first/best  later %  CPU s"
    )
    for _ in range(wanted.cases):
        began_s = time.process_time()
        name, network = drawn_slow_network(rng)
        groups = drawn_groups(network.ranks, rng)
        found = side_by_side(network, groups)
        ends_s = {
            part.name: end_s(upgraded(network, part, 1e9), groups, found.schedules, wanted.thorough)
            for part in parts_of(network)
        }
        best = min(ends_s, key=ends_s.__getitem__)
        first = found.prices[0].part.name if found.prices else "none"
        first_s = ends_s.get(first, found.together_s)
        # A saving below a hundredth of the step is the planner's noise.
        least_s = 0.01 * found.together_s
        saved_s = max(found.together_s - ends_s[best], least_s)
        shares.append(max(0.0, found.together_s - first_s) / saved_s if saved_s > least_s else 1.0)
        later.append(first_s / ends_s[best] - 1)
        percents.append(100 * found.least_s / found.together_s)
        ratios.append(found.ignoring_s / found.together_s)
        print(
            f"{name:<12}{len(groups):>6}{percents[-1]:>14.1f}{ratios[-1]:>14.2f}  {first:<19}{best:<19}"
            f"{shares[-1]:>10.2f}{100 * later[-1]:>9.1f}{time.process_time() - began_s:>7.1f}",
            flush=True,
        )
    right = sum(share >= 0.95 for share in shares)
    close = sum(one <= 0.01 for one in later)
    print(
        f"{len(shares)} steps: {statistics.mean(percents):.1f} % of perfect sharing in the mean, "
        f"{min(percents):.1f} at least; unaware / ours {statistics.geometric_mean(ratios):.3f}; the part "
        f"named first saves as much as the best (within 5 %) in {right}, {statistics.mean(shares):.2f} of "
        f"it in the mean; the step ends at most 1 % later than with the best in {close}"
    )


def drawn_slow_network(rng: np.random.Generator) -> tuple[str, Network]:
    """Return hosts behind NICs, or a mesh of links; rates are random from 1 to 8 GB/s."""
    rates = rng.choice([1e9, 2e9, 4e9, 8e9], 8)
    if rng.random() < 0.6:
        ranks = int(rng.integers(3, 7))
        pairs = [(a, b) for a in range(ranks) for b in range(ranks) if a != b]
        ports = {(a, b): (f"nic{a} egress", f"nic{b} ingress") for a, b in pairs}
        rate = {(a, b): float(min(rates[a], rates[b])) for a, b in pairs}
    else:
        ranks, rate, ports = 6, {}, {}
        for a, b in [(0, 1), (1, 2), (3, 4), (4, 5), (0, 3), (1, 4), (2, 5)]:
            rate[a, b] = rate[b, a] = float(rng.choice(rates))
    links = [Link(a, b, 5e-6, 1 / rate[a, b], ports.get((a, b), ())) for a, b in rate]
    network = build("hosts" if ports else "mesh", [f"h{rank}" for rank in range(ranks)], links)
    return f"{network.name} {ranks}", upgraded(network, None, 0.0)


def drawn_groups(ranks: int, rng: np.random.Generator) -> list[StepGroup]:
    """Return two or three groups with random ranks, kinds, sizes and releases."""
    found = []
    for number in range(int(rng.integers(2, 4))):
        members = tuple(sorted(rng.permutation(ranks)[: int(rng.integers(2, ranks + 1))].tolist()))
        kind = STEP_KINDS[int(rng.integers(len(STEP_KINDS)))]
        size_bytes, release_s = int(rng.choice([4, 8, 16])) << 20, float(rng.choice([0.0, 0.0, 2e-3]))
        request = CollectiveRequest(kind, members[0], members)
        found.append(StepGroup(f"g{number}", request, size_bytes, release_s))
    return found


def end_s(network: Network, groups: list[StepGroup], schedules: Sequence[Schedule], thorough: bool) -> float:
    """Return the end of the step on an upgraded network, by the best of the old plans and of new ones.

    Without new plans, the part that saves most would be the one that limits the old plans. ``thorough``: the
    groups are also planned by all methods.
    """
    if thorough:
        return min(end_s(network, groups, schedules, False), side_by_side(network, groups).together_s)
    release_s = [group.release_s for group in groups]
    moved = [replace(schedule, network=network, outcome=None) for schedule in schedules]
    old_s = max(timing.time_s for timing in replay_together(network, moved, release_s))
    return min(old_s, max(routed(network, groups)[1]))


def replan_cases(wanted: argparse.Namespace) -> None:
    """Print a row for each network and shape of demand."""
    print("network               blocks  % bound  least  direct/ours  FAST/ours  CPU ms p50   p99")
    percents = []
    for ranks, names in REPLANNED.items():
        taken_ms = []
        for name in names:
            costs = ("1us", "25GB/s") if name.startswith("fat_tree") else (None, None)
            network = load_network(name, *costs)[0]
            planner = DemandPlanner(network)
            for shape in SHAPES:
                rng = np.random.default_rng([wanted.seed, ranks])
                rows = [replanned_demand(planner, network, shape, rng) for _ in range(wanted.cases + 1)][1:]
                percent, direct, fast, ms = (np.array(column) for column in zip(*rows, strict=True))
                percents += percent.tolist()
                taken_ms += ms.tolist()
                balanced = f"{statistics.geometric_mean(fast):>11.2f}" if name.startswith("dgx") else " " * 11
                print(
                    f"{name:<22}{shape:<8}{percent.mean():>7.1f}{percent.min():>7.1f}"
                    f"{statistics.geometric_mean(direct):>13.2f}{balanced}{np.median(ms):>12.1f}"
                    f"{np.quantile(ms, 0.99):>6.1f}",
                    flush=True,
                )
        p50, p99 = np.quantile(taken_ms, [0.5, 0.99])
        print(f"{ranks} ranks: {p50:.1f} ms in the median, {p99:.1f} p99 of {len(taken_ms)} plans")
    print(f"{statistics.mean(percents):.1f} % of the bound in the mean, {min(percents):.1f} at least")


def replanned_demand(
    planner: DemandPlanner, network: Network, shape: str, rng: np.random.Generator
) -> tuple[float, float, float, float]:
    """Return (percent of the bound, direct / ours, FAST / ours, processor ms) of a random demand."""
    demand = np.array(drawn_sizes("all_to_all", network.ranks, shape, rng), float)
    demand = demand.reshape(network.ranks, -1)
    began_s = time.process_time()
    with all_compiled():
        plan = planner.plan(demand)
    took_s = time.process_time() - began_s
    fast = fast_s(network, demand) / plan.time_s
    return plan.percent_of_optimal, plan.direct_s / plan.time_s, fast, 1e3 * took_s


def fast_s(network: Network, demand: Floats) -> float:
    """Return the least time of FAST's order of work on equal hosts of as many NICs as ranks."""
    host = network.host_of
    hosts = int(host.max()) + 1
    size = network.ranks // hosts
    of_host = (host[:, None] == np.arange(hosts)).astype(float)
    out = demand @ of_host
    out[np.arange(network.ranks), host] = 0.0
    between = of_host.T @ out
    even = between[host] / size
    surplus = np.maximum(out - even, 0.0).sum(axis=1).max()
    missing = np.maximum(even - out, 0.0).sum(axis=1).max()
    inside = network.within_host
    inside_s = float(network.beta_s_per_byte[inside].min()) if inside.any() else 0.0
    across_s = float(network.beta_s_per_byte[~inside].min()) / size
    busiest = max(between.sum(axis=0).max(), between.sum(axis=1).max())
    return float(max(surplus, missing) * inside_s + busiest * across_s)


def drawn_network(rng: np.random.Generator, most_ranks: int) -> tuple[str, Network]:
    """Return a network of 4 to ``most_ranks`` ranks, the logarithm of whose number is about uniform."""
    while True:
        about = 2 ** rng.uniform(2, np.log2(most_ranks))
        rows = 2 ** int(np.log2(about) / 2)
        sizes = {"n": about, "r": rows, "c": about / rows, "d": np.log2(about), "h": about / 8}
        whole = {key: max(1, round(size)) for key, size in sizes.items()}
        if rng.random() < 0.4:
            name, rates = str(rng.choice(MACHINES)).format(**whole), None
        else:
            name = str(rng.choice(FAMILIES)).format(**whole)
            levels = name.count("_", 0, name.index(":")) + 1 if name.startswith("ring_fc") else 1
            rates = ",".join(str(rng.choice([12, 25, 50, 100])) for _ in range(levels)) + "GB/s"
        try:
            network = load_network(name, f"{rng.choice([1, 2, 5])}us" if rates else None, rates)[0]
        except UsageError:
            continue  # A family needs more ranks.
        if 4 <= network.ranks <= most_ranks:
            return name, network


def drawn_sizes(kind: Kind, ranks: int, shape: str, rng: np.random.Generator) -> list[int]:
    """Return sizes of the blocks; a rank's larger buffer is about 64 MiB."""
    blocks = ranks**2 if kind == "all_to_all" else ranks
    weight = {
        "zipf": rng.permutation(1 / (1.0 + np.arange(blocks)) ** 1.2),
        "giant": np.where(np.arange(blocks) == rng.integers(blocks), 4.0 * ranks, 1.0),
        "sparse": (rng.random(blocks) < 0.25) * rng.random(blocks),
        "even": 0.5 + rng.random(blocks),
    }[shape]
    if not weight.any():
        weight[0] = 1.0
    whole = weight.sum() / (ranks if kind == "all_to_all" else 1)
    sizes: Indices = np.round(weight / whole * BUSIEST_BYTES).astype(np.int64)
    return [int(size) for size in sizes]


def planned(network: Network, kind: Kind, sizes: list[int]) -> tuple[float, float, float, int]:
    """Return (percent of the bound, simulated seconds, growth by whole chunks, chunks)."""
    one, size_bytes = uneven_request(kind, network.ranks, sizes)
    found = synthesize(Request(network, "custom", size_bytes=size_bytes, collectives=(one,), jobs=0))
    outcome = found.listed.outcome
    assert outcome is not None and one.sets is not None
    rounding = size_bytes / int(one.sets.buffer_bytes().max()) - 1
    return outcome.percent_of_optimal, outcome.time_s, rounding, found.schedule.whole.chunks


def padded_s(network: Network, kind: Kind, sizes: list[int]) -> float:
    """Return the time of the collective with equal blocks, all as large as the largest."""
    whole_bytes = max(sizes) * network.ranks
    found = synthesize(Request(network, kind, size_bytes=whole_bytes, jobs=0))
    outcome = found.listed.outcome
    assert outcome is not None
    return outcome.time_s


if __name__ == "__main__":
    main()
