"""DS-Sync's Tables I to V, its Lemma IV.1 and its Theorem IV.2: ours beside the paper's, row by row.

    python benchmarks/dssync_tables.py
    python benchmarks/training_tables.py theorem

Nothing is measured in the tables: `synth.groups.costs` predicts times, and only ratios are compared, so no
rate has to be inferred. The paper gives no alpha, no rates that its transfers reached (its ring takes 2.6
times as long as 20 Gbit/s let it, if WideResNet-28-10 has 36.5 million parameters of 4 bytes), no share of
the background flows, and no number of parameter servers. Here alpha is 0, a background flow takes half of the
link or NIC that it shares, and each rank is a parameter server. The trunk carries as much as one host: the
paper calls this 1, but its gossip and ASP are slowed by oversubscription.

Tables I and II are formulas. Ours are those of Table I wherever a group averages by a ring. For a ring of
two, Table II prints 2·S·beta2 and Table I S·beta2; for a ring of G − 1 ranks, Table II prints 2(G − 1)
latencies and Table I 2(G − 2). The PS of Table II divides the bytes across the trunk by P as if each server
had its own trunk; our servers share it. Accuracies and numbers of iterations are not reproduced.

Theorem IV.2 is run: f(x) = sum of t²/(1 + t²), t = x - c, over 16 dimensions. This function is smooth with L
= 2, not convex, and has its least value 0 at c. Each rank has f plus its own linear term (these terms add up
to 0) and noise in each gradient, so sigma is known. Step size and bound are those of Lian et al. 2017
(Corollary 2), from which the theorem's bound is taken. Printed are means over K iterations and 20 runs of the
squared gradient of f, at the mean of all ranks (the theorem bounds this one) and at the worst rank, and the
slopes of both in K; 1/sqrt(K) is a slope of -0.5. Racks that never mix show that the experiment can fail.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from probes.base import Floats
from synth.check.groups import lemma_holds_from
from synth.errors import NotApplicableError
from synth.groups.artifact import Division
from synth.groups.consensus_rate import consensus, mixing_product
from synth.groups.costs import AveragingCosts
from synth.groups.patterns import RackLayout
from synth.groups.planner import PATTERNS, disagreement, pattern_named, plan_groups
from synth.network import Network

sys.path.append(str(Path(__file__).parents[1] / "tests" / "helpers"))
from racked_networks import racked

SIZE_BYTES, ALPHA_S, BETA, LAYERS = 146_000_000, 20e-6, 4e-10, 1
Row = tuple[str, float, float, float, float, float]
# (dataset, AR, hierarchical AR, ASP, gossip, DS-Sync), in ms.
TABLE_3 = (
    ("Cifar10", 540.1, 790.2, 567.3, 772.8, 338.1),
    ("Cifar100", 545.6, 801.5, 573.8, 778.3, 341.8),
    ("ImageNet", 825.7, 1078.2, 690.2, 834.5, 412.5),
    ("SQuAD", 3260.7, 4213.2, 2741.7, 2805.5, 1636.6),
)
TABLE_4 = (
    ("Cifar10", 525.1, 515.3, 561.2, 764.1, 331.7),
    ("Cifar100", 531.6, 523.5, 581.5, 768.3, 336.1),
    ("ImageNet", 823.1, 685.2, 701.9, 812.9, 407.4),
    ("SQuAD", 3129.3, 2801.5, 2783.1, 2913.1, 1633.4),
)
TABLE_5 = (
    ("Cifar10", 266.1, 390.8, 637.3, 376.9, 200.1),
    ("Cifar100", 271.3, 395.1, 641.2, 374.8, 198.1),
    ("ImageNet", 441.0, 506.6, 785.5, 405.3, 249.2),
    ("SQuAD", 1631.8, 2233.4, 3146.9, 1502.6, 1060.2),
)


def racks_of(sizes: Sequence[int], across: float, *, slow_rank: int = -1, alpha_s: float = 0.0) -> Network:
    """Return racks behind a trunk of ``across`` times a host's beta each way; a slow rank has twice it."""
    return racked(
        sizes, inside=BETA, across=across * BETA, alpha_s=alpha_s, slow_ranks=[slow_rank], slowness=2.0
    )


def table_1() -> Iterator[str]:
    """Print the formulas of Table I on one switch of eight, beside the cost model."""
    ranks, each_s, latency_s = 8, SIZE_BYTES * BETA, LAYERS * ALPHA_S
    costs = AveragingCosts(
        racks_of([ranks], 1.0, alpha_s=ALPHA_S), (tuple(range(ranks)),), SIZE_BYTES, LAYERS
    )
    rounds = 2 * (ranks - 1)
    tree_s = min(2 * (math.log2(ranks) + k) * (latency_s + each_s / k) for k in range(1, 5000))
    yield f"Table I, {ranks} ranks, one rate{'ours':>14}{'formula':>12}"
    for name, ours_s, paper_s in (
        ("PS, one on each rank", costs.parameter_server_s(), rounds * (latency_s + each_s / ranks)),
        ("ring", costs.ring_s(), rounds * (latency_s + each_s / ranks)),
        ("double tree, best k", costs.double_tree_s(), tree_s),
    ):
        yield f"  {name:28}{1e3 * ours_s:9.2f} ms{1e3 * paper_s:9.2f} ms"


def table_2() -> Iterator[str]:
    """Print Table II, the consistent formulas, and the cost model: 2 racks of 4, beta2 = 2 beta1."""
    racks, each = 2, 4
    ranks, b1, b2 = racks * each, BETA, 2 * BETA
    network = racks_of([each] * racks, 2.0, alpha_s=ALPHA_S)
    groups = plan_groups(network, SIZE_BYTES, layers=LAYERS).groups
    costs = AveragingCosts(network, groups.racks, SIZE_BYTES, LAYERS)
    a, s = LAYERS * ALPHA_S, SIZE_BYTES
    ring = 2 * (ranks - 1) * (a + s * b2 / ranks)
    across, within = (racks - 1) * each * s * b2, (each - 1) * s * b1
    servers = 2 * (ranks - 1) * a + 2 * (across + within) / ranks
    levels = 2 * (each + racks - 2) * a + 2 * (each - 1) / each * s * b1 + 2 * (racks - 1) / racks * s * b2
    tree = min(2 * (math.log2(ranks) + k) * (a + s * b2 / k) for k in range(1, 5000))
    inner = 2 * (each - 2) / (each - 1) * s * b1
    printed = max(2 * a + 2 * s * b2, 2 * (each - 1) * a + inner)
    right = max(2 * a + s * b2, 2 * (each - 2) * a + inner)
    yield f"Table II, 2 racks of 4, beta2 = 2 beta1{'ours':>10}{'printed':>12}{'consistent':>13}"
    for name, ours_s, printed_s, consistent_s in (
        ("PS, P = N", costs.parameter_server_s(), servers, servers),
        ("ring", costs.ring_s(), ring, ring),
        ("double tree, best k", costs.double_tree_s(), tree, tree),
        ("hierarchical", costs.hierarchical_s(), levels, levels),
        ("gossip (printed: at least)", costs.gossip_s(), 2 * a + 4 * s * b2, 2 * a + 4 * s * b2),
        ("DS-Sync", groups.predicted_s, printed, right),
    ):
        cells = "".join(f"{1e3 * value_s:9.2f} ms" for value_s in (ours_s, printed_s, consistent_s))
        yield f"  {name:34}{cells}"
    gain = costs.ring_s() / groups.predicted_s
    yield f"  DS-Sync against the ring: printed {ring / printed:.2f}x, ours {gain:.2f}x"


def times(
    title: str, network: Network, racks: tuple[tuple[int, ...], ...], paper: Sequence[Row]
) -> Iterator[str]:
    """Print for each dataset the times of each method over the ring's (AR), ours and the paper's."""
    groups = plan_groups(network, SIZE_BYTES, racks=racks).groups
    peers = AveragingCosts(network, racks, SIZE_BYTES).peers_s()
    ours = (peers["hierarchical"], peers["asp"], peers["gossip"], groups.predicted_s)
    yield f"{title}{'ours':>8}" + "".join(f"{row[0]:>10}" for row in paper) + "   (times over AR's)"
    for at, name in enumerate(("hierarchical AR", "ASP (paper: more than)", "gossip", "DS-Sync")):
        cells = "".join(f"{row[at + 2] / row[1]:10.2f}" for row in paper)
        yield f"  {name:34}{ours[at] / peers['ring']:8.2f}{cells}"


def lemma() -> Iterator[str]:
    """Print rho, distance, and the squared error of the worst rank against rho^k, over 200 random starts."""
    yield f"Lemma IV.1{'period':>34}{'rho':>9}{'distance':>10}{'proven from':>13}{'worst/bound':>13}"
    for racks, each in ((2, 4), (4, 8), (3, 3), (2, 2), (4, 2)):
        layout = RackLayout(tuple(tuple(range(r * each, (r + 1) * each)) for r in range(racks)))
        for name in PATTERNS:
            try:
                iterations = pattern_named(name, layout)
            except NotApplicableError:
                continue
            yield judged(f"{racks} x {each} {name}", racks * each, iterations)


def judged(name: str, ranks: int, iterations: tuple[Division, ...]) -> str:
    """Return one row of the lemma's table."""
    if disagreement(ranks, iterations):
        return f"  {name:36}{len(iterations):6}{1:9.4f}{1:10.4f}{'never agree':>13}"
    found = consensus(ranks, iterations)
    period = mixing_product(ranks, iterations)
    first = lemma_holds_from(period, found.rho)
    start = np.random.default_rng(7).normal(size=(ranks, 200))
    values, worst = start, 0.0
    for k in range(1, 6):
        values = period @ values
        error = ((values - start.mean(axis=0)) ** 2).max(axis=0) / (start**2).sum(axis=0)
        if found.rho and first is not None and k >= first:
            worst = max(worst, float(error.max()) / found.rho**k)
    return (
        f"  {name:36}{len(iterations):6}{found.rho:9.4f}{found.distance:10.4f}"
        f"{'-' if first is None else first:>13}{worst:13.3f}"
    )


# Theorem IV.2: dimensions, runs, iterations, and the deviations of a rank's slope and of its noise.
DIMENSIONS, RUNS, ITERATIONS, OWN_SLOPE, NOISE = 16, 20, (256, 1024, 4096), 1.0, 2.0
SMOOTHNESS = 2.0


def descended(ranks: int, period: Sequence[Floats], steps: int) -> tuple[float, float, float]:
    """Return the squared gradient (at the mean, at the worst rank), and the theorem's bound."""
    dice = np.random.default_rng(5)
    target = dice.normal(size=DIMENSIONS)
    slopes = dice.normal(size=(ranks, 1, DIMENSIONS))
    slopes *= OWN_SLOPE / np.sqrt((slopes**2).sum(axis=2).mean())
    slopes -= slopes.mean(axis=0)
    sigma = math.sqrt(float((slopes**2).sum(axis=2).mean()) + NOISE**2)
    start = float((target**2 / (1 + target**2)).sum())
    rate = 1 / (2 * SMOOTHNESS + sigma * math.sqrt(steps / ranks))

    def gradient(x: Floats) -> Floats:
        t = x - target
        return 2 * t / (1 + t * t) ** 2

    x = np.zeros((ranks, RUNS, DIMENSIONS))
    mean = worst = 0.0
    for step in range(steps):
        mean += float((gradient(x.mean(axis=0)) ** 2).sum(axis=1).mean())
        own = gradient(x)
        worst += float((own**2).sum(axis=2).mean(axis=1).max())
        noise = dice.normal(size=x.shape) * NOISE / math.sqrt(DIMENSIONS)
        x = np.tensordot(period[step % len(period)], x - rate * (own + slopes + noise), axes=1)
    bound = 8 * start * SMOOTHNESS / steps + (8 * start + 4 * SMOOTHNESS) * sigma / math.sqrt(steps * ranks)
    return mean / steps, worst / steps, bound


def theorem() -> None:
    """Print gradients over K for one group of all (BSP), DS-Sync's pattern, and racks that never mix."""
    print(f"Theorem IV.2{'K = ':>36}" + "".join(f"{steps:>10}" for steps in ITERATIONS) + "     slope")
    for racks, each in ((2, 4), (4, 8)):
        ranks = racks * each
        layout = RackLayout(tuple(tuple(range(r * each, (r + 1) * each)) for r in range(racks)))
        patterns: dict[str, Sequence[Division]] = {
            "one group (BSP)": ((tuple(range(ranks)),),),
            "representatives (DS-Sync)": pattern_named("representatives", layout),
            "racks that never mix": (layout.racks,),
        }
        for name, divisions in patterns.items():
            period = [mixing_product(ranks, (division,)) for division in divisions]
            found = np.array([descended(ranks, period, steps) for steps in ITERATIONS]).T
            for what, values in zip(("mean", "worst rank", "bound"), found, strict=True):
                if what == "bound" and not name.startswith("one group"):
                    continue
                slope = np.polyfit(np.log(ITERATIONS), np.log(values), 1)[0]
                cells = "".join(f"{value:10.4f}" for value in values)
                print(f"  {f'{racks} x {each} {name}, {what}':46}{cells}{slope:10.2f}", flush=True)


def main(*arguments: str) -> None:
    """Print all tables, after the inputs that had to be inferred."""
    if arguments:
        sys.exit(f"usage: dssync_tables.py, found {' '.join(arguments)}")
    assert __doc__
    print("\n" + __doc__[__doc__.index("Nothing is measured in the tables") :])
    parts = (
        table_1(),
        table_2(),
        times(
            "Table III, 5 + 3, trunk and NIC shared",
            racks_of([5, 3], 2.0, slow_rank=4),
            ((0, 1, 2, 3, 4), (5, 6, 7)),
            TABLE_3,
        ),
        times("Table IV, 4 + 4, trunk shared", racks_of([4, 4], 2.0), ((0, 1, 2, 3), (4, 5, 6, 7)), TABLE_4),
        times("Table V, 4 + 4, nothing shared", racks_of([4, 4], 1.0), ((0, 1, 2, 3), (4, 5, 6, 7)), TABLE_5),
        lemma(),
    )
    for part in parts:
        for line in part:
            print(line)
        print()


if __name__ == "__main__":
    main(*sys.argv[1:])
