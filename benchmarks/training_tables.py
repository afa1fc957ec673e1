"""DeAR's Table II and Figures 5 to 8 and 11, and the search for the best buffer: ours beside the paper's.

    python benchmarks/training_tables.py [TABLE ...]

Figures 14, 16 (with 17) and 19b are AdapCC's: see benchmarks/adapcc_training.py. `dssync` are DS-Sync's
Tables I to V and its lemma, `theorem` its Theorem IV.2: see benchmarks/dssync_tables.py.

Ours are simulated (synth.fusion), on a ring of 64 ranks. The paper prints no times of layers, so three inputs
are inferred. The results that follow from them check consistency; they are not a reproduction:

- Computation: the seconds of an iteration that equation 6 gives for the 10GbE column of Table II,
  at 1.25 GB/s, with t_bp = 2 t_ff. DenseNet-201 is saturated there, so it has the least value that fits.
  Layers have shares in proportion to their floating-point operations (benchmarks/model_shapes.py).
- 10GbE: 1.25 GB/s, and alpha from the paper's 4.5 ms for 1 MB and 3.9 ms for 0.5 MB: 26.2 us.
- 100GbIB: 5.81 GB/s, which BERT-Large's cell of Table II needs with the computation from its other cell; at
  12.5 GB/s that cell would be 64. Its alpha is not in the paper; 5 us is assumed.

The paper's bars are not read off: quoted are its tables and what its text says of a figure.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import cast

import adapcc_training
import dssync_tables
import numpy as np

from synth.fusion.costs import RingCosts, speedup_max
from synth.fusion.methods import Overheads, fusion_plan
from synth.fusion.model import Model, shape
from synth.fusion.plan import FusionPlan
from synth.fusion.tuning import STRATEGIES, Strategy, begun, best_plan

RANKS = 64
MIB = 1 << 20
ETHERNET = RingCosts(RANKS, 26.2e-6, 1 / 1.25e9)
INFINIBAND = RingCosts(RANKS, 5e-6, 1 / 5.81e9)
NETWORKS = {"10GbE": ETHERNET, "100GbIB": INFINIBAND}
MODELS = ("resnet-50", "densenet-201", "inception-v4", "bert-base", "bert-large")
# (S_max, S) of Table II.
TABLE_II = {
    "10GbE": ((61.6, 61.1), (64, 52.8), (59.8, 56.5), (25.5, 23.9), (12.1, 11.8)),
    "100GbIB": ((64, 61.6), (64, 54.0), (64, 57.2), (64, 49.6), (51.8, 37.5)),
}
# Each rank waits for the others before a part is sent; the paper says "significant latency" and no figure.
NEGOTIATION_S = 1e-3
# Up to 83 % (Sec. VI-D).
LARGEST_GAIN = 1.83
NEAR = 1.02
# Noise of one iteration, iterations of a trial, and trials after which a search has failed.
STEP_NOISE, STEPS, MOST_TRIALS = 0.01, 10, 21
GRID, DRAWN = 20, 40


@dataclass(frozen=True)
class OneHalf(RingCosts):
    """A ring of which one half costs nothing (Fig. 8: RS-only, AG-only)."""

    scatters: bool = True

    def reduce_scatter_s(self, size_bytes: float) -> float:
        """Return the time of equation 3, or 0."""
        return super().reduce_scatter_s(size_bytes) if self.scatters else 0.0

    def all_gather_s(self, size_bytes: float) -> float:
        """Return the time of equation 4, or 0."""
        return 0.0 if self.scatters else RingCosts.reduce_scatter_s(self, size_bytes)


def table2() -> None:
    """Print S_max by equation 6 with t_rs = t_ag = m / B, and the speed-up of DeAR with its best buffer."""
    print("\nTable II: 64 ranks          S_max  paper   DeAR  paper   of S_max  paper")
    for network, costs in NETWORKS.items():
        for name, (most, real) in zip(MODELS, TABLE_II[network], strict=True):
            model = shape(name)
            half_s = model.total_bytes * costs.beta_s_per_byte
            ours = speedup_max(RANKS, model.forward_total_s, model.backward_total_s, half_s, half_s)
            found = best_plan(model, costs, "dear").speedup
            print(
                f"{network:8} {name:14} {ours:9.1f} {most:6.1f} {found:6.1f} {real:6.1f} "
                f"{100 * found / ours:8.1f} % {100 * real / most:5.1f} %"
            )


def fig5() -> None:
    """Print the halves of an all_reduce beside the whole; the paper has about half, for all sizes."""
    print("\nFig. 5: 64 ranks, 10GbE     all_reduce  reduce_scatter  all_gather  both, ms (paper's text)")
    said = {500_000: "3.9", 1_000_000: "4.5"}
    for size in (1_000, 100_000, 500_000, 1_000_000, 10_000_000, 100_000_000):
        halves = ETHERNET.reduce_scatter_s(size), ETHERNET.all_gather_s(size)
        print(
            f"{size:>20,} B {1e3 * ETHERNET.all_reduce_s(size):14.2f} {1e3 * halves[0]:15.2f} "
            f"{1e3 * halves[1]:11.2f} {1e3 * sum(halves):9.2f}   {said.get(size, '')}"
        )


def fig6() -> None:
    """Print no-fusion figures over WFBP; the paper: DeAR 1.06 to 1.19, ByteScheduler mostly below 0.9."""
    print(
        f"\nFig. 6: without fusion, over WFBP (paper: DeAR 1.06-1.19); negotiation {1e3 * NEGOTIATION_S:g} ms"
    )
    for network, costs in NETWORKS.items():
        for name in MODELS:
            model, extra = shape(name), Overheads(negotiation_s=NEGOTIATION_S)
            base_s = fusion_plan(model, costs, "wfbp").iteration_s
            dear_s = fusion_plan(model, costs, "dear", 1).iteration_s
            byte_s = fusion_plan(model, costs, "bytescheduler", 0, extra).iteration_s
            print(f"{network:8} {name:14} DeAR {base_s / dear_s:5.2f}   ByteScheduler {base_s / byte_s:5.2f}")


def fig7() -> None:
    """Print figures with fusion over Horovod, at 25 MiB; the paper: 6 to 83 % on 10GbE, up to 15 % on IB."""
    print(
        "\nFig. 7: with fusion, over Horovod at 25 MiB (paper, DeAR over the others: 1.06-1.83, up to 1.15)"
    )
    for network, costs in NETWORKS.items():
        for name in MODELS:
            model = shape(name)
            base_s = fusion_plan(model, costs, "horovod", 25 * MIB).iteration_s
            times = {
                "DDP": fusion_plan(model, costs, "ddp").iteration_s,
                "MG-WFBP": fusion_plan(model, costs, "mg-wfbp").iteration_s,
                "DeAR": fusion_plan(model, costs, "dear").iteration_s,
                "DeAR, best buffer": best_plan(model, costs, "dear").iteration_s,
            }
            row = "   ".join(f"{what} {base_s / taken_s:5.2f}" for what, taken_s in times.items())
            print(f"{network:8} {name:14} {row}")


def regime() -> None:
    """Print the alpha at which DeAR with its best buffer has the paper's largest gain over Horovod."""
    print(f"\nAlpha for {LARGEST_GAIN:g} over Horovod at 25 MiB, 64 ranks, 1.25 GB/s (fitted: 26.2 us)")
    for name in MODELS:
        model, low_s, high_s = shape(name), ETHERNET.alpha_s, 1e-3
        while high_s > 1.02 * low_s:
            middle_s = (low_s * high_s) ** 0.5
            costs = RingCosts(RANKS, middle_s, ETHERNET.beta_s_per_byte)
            base_s = fusion_plan(model, costs, "horovod", 25 * MIB).iteration_s
            dear_s = best_plan(model, costs, "dear").iteration_s
            low_s, high_s = (low_s, middle_s) if base_s >= LARGEST_GAIN * dear_s else (middle_s, high_s)
        costs = RingCosts(RANKS, high_s, ETHERNET.beta_s_per_byte)
        dear_s = best_plan(model, costs, "dear").iteration_s
        others = (
            f"{what} {fusion_plan(model, costs, method).iteration_s / dear_s:.2f}"
            for what, method in (("DDP", "ddp"), ("MG-WFBP", "mg-wfbp"))
        )
        print(f"{name:14} {1e6 * high_s:6.0f} us; there over {', over '.join(others)}", flush=True)


def fig8() -> None:
    """Print exposed communication on 10GbE; the paper: RS-only below AG-only, DeAR below Horovod."""
    print("\nFig. 8: exposed communication (paper: RS-only below AG-only, DeAR below Horovod)")
    print("10GbE, seconds              FF     BP     exposed: Horovod   DeAR  RS-only  AG-only")
    for name in MODELS:
        model = shape(name)
        halves = [OneHalf(RANKS, ETHERNET.alpha_s, ETHERNET.beta_s_per_byte, half) for half in (True, False)]
        exposed = [fusion_plan(model, ETHERNET, "horovod", 25 * MIB).exposed_s]
        exposed += [fusion_plan(model, costs).exposed_s for costs in (ETHERNET, *halves)]
        figures = " ".join(f"{one:8.3f}" for one in exposed)
        print(f"{name:20} {model.forward_total_s:9.3f} {model.backward_total_s:6.3f}          {figures}")


def fig11() -> None:
    """Print figures by batch size, as computation in proportion; the paper: DeAR the fastest at each."""
    print("\nFig. 11: 10GbE, samples/s of 64 ranks; computation in proportion to the batch")
    print("(paper: DeAR the fastest in all cases)")
    for name, full in (("resnet-50", 64), ("bert-base", 64)):
        whole = shape(name)
        compute_s = whole.forward_total_s + whole.backward_total_s
        for batch in (16, 32, 64):
            model = whole.taking(compute_s * batch / full)
            methods = {"Horovod": "horovod", "DDP": "ddp", "MG-WFBP": "mg-wfbp", "DeAR": "dear"}
            rates = {
                what: RANKS * batch / _fused(model, method).iteration_s for what, method in methods.items()
            }
            rates["DeAR, best"] = RANKS * batch / best_plan(model, ETHERNET, "dear").iteration_s
            print(
                f"{name:14} {batch:4}  " + "   ".join(f"{what} {rate:7.0f}" for what, rate in rates.items())
            )


def _fused(model: Model, method: str) -> FusionPlan:
    return fusion_plan(model, ETHERNET, method, 0 if method == "mg-wfbp" else 25 * MIB)


@dataclass(frozen=True)
class Case:
    """DeAR training of a model on a ring; equal cases share their computed results."""

    name: str
    costs: RingCosts
    compute_factor: float = 1.0

    @cached_property
    def model(self) -> Model:
        whole = shape(self.name)
        return whole.taking((whole.forward_total_s + whole.backward_total_s) * self.compute_factor)

    def iteration_s(self, buffer_bytes: int) -> float:
        """Return seconds of an iteration."""
        return fusion_plan(self.model, self.costs, "dear", buffer_bytes).iteration_s

    @cached_property
    def best_s(self) -> float:
        """Return the shortest iteration over 200 buffers of the range."""
        sizes = np.geomspace(MIB, 100 * MIB, 200).astype(int).tolist()
        return min(self.iteration_s(size) for size in sizes)


def drawn(count: int) -> list[Case]:
    """Return the five models in turn, each with a random network, ranks and computation."""
    rng = np.random.default_rng(3)
    found = []
    for at in range(count):
        ranks = round(2 ** rng.uniform(2, 8))
        alpha_s, bits_per_s = np.exp(rng.uniform(np.log([2e-6, 1e9]), np.log([1e-4, 1e11])))
        costs = RingCosts(ranks, float(alpha_s), 8 / float(bits_per_s))
        found.append(Case(MODELS[at % len(MODELS)], costs, float(2 ** rng.uniform(-1, 1))))
    return found


def trials_needed(case: Case, strategy: str, seed: int, first_bytes: int) -> int:
    """Return the number of trials, each with noise, until a buffer within 2 % of the best."""
    rng = np.random.default_rng([seed, 1])
    # `grid` tries the point farthest from those tried; these take the same grid in another order.
    even = np.rint(np.linspace(MIB, 100 * MIB, GRID)).astype(int)
    order = {"ascending": even, "shuffled": rng.permutation(even)}.get(strategy)
    search = begun(
        "grid" if order is not None else cast(Strategy, strategy), first_bytes=first_bytes, seed=seed
    )
    while search.trials < MOST_TRIALS - 1:
        at = search.trials
        size = int(order[at - 1]) if order is not None and at else search.next_bytes()
        taken_s = case.iteration_s(size)
        if taken_s <= NEAR * case.best_s:
            return search.trials + 1
        noise = 1 + STEP_NOISE / np.sqrt(STEPS) * float(rng.standard_normal())
        search = search.then(size, taken_s * noise)
    return MOST_TRIALS


def bo(seeds: int) -> None:
    """Print mean and most trials until within 2 % of the best buffer, from 25 MiB and from random starts."""
    print(f"\nTrials until within 2 % of the best buffer, mean/most of {seeds} seeds (at most {MOST_TRIALS})")
    print("(text of the paper: 9 samples on DenseNet-201; BO several, grid and random tens)")
    paper = [Case(name, ETHERNET) for name in MODELS]
    for case in paper:
        _row(f"{case.name} on 10GbE", [case], seeds, "25 MiB")
    _row("mean of the five", paper, seeds, "25 MiB")
    _row("mean, from anywhere", paper, seeds, "anywhere")
    cases = drawn(DRAWN)
    hard = [case for case in cases if case.iteration_s(25 * MIB) > NEAR * case.best_s]
    print(
        f"{len(cases)} networks, ranks and computations at random; 25 MiB is near the best but on {len(hard)}"
    )
    _row("mean of those", hard, seeds, "25 MiB")
    _row("mean of all, from anywhere", cases, seeds, "anywhere")


def _row(what: str, cases: Sequence[Case], seeds: int, start: str) -> None:
    cells = []
    for strategy in (*STRATEGIES, "ascending", "shuffled"):
        counts = [
            trials_needed(case, strategy, seed, _first(start, seed))
            for case in cases
            for seed in range(100, 100 + seeds)
        ]
        cells.append(f"{strategy} {np.mean(counts):4.1f}/{max(counts):<2}")
    print(f"{what:28} " + "  ".join(cells), flush=True)


def _first(start: str, seed: int) -> int:
    return 25 * MIB if start == "25 MiB" else int(np.random.default_rng([seed, 2]).integers(1, 101)) * MIB


def _inputs(told: str | None, first: str) -> str:
    """Return what a module tells of the inputs that it infers, from the words ``first`` on."""
    assert told
    return told[told.index(first) :].strip()


TABLES: dict[str, Callable[[], None]] = {
    "table2": table2,
    "fig5": fig5,
    "fig6": fig6,
    "fig7": fig7,
    "regime": regime,
    "fig8": fig8,
    "fig11": fig11,
    "fig14": adapcc_training.fig14,
    "fig15": adapcc_training.fig15,
    "fig16": adapcc_training.fig16,
    "fig19b": adapcc_training.fig19b,
    "dssync": dssync_tables.main,
    "theorem": dssync_tables.theorem,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the named tables, or all."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tables", nargs="*", choices=[*TABLES, "bo"], metavar="TABLE")
    parser.add_argument("--seeds", type=int, default=8)
    asked = parser.parse_args(arguments)
    names = asked.tables or [*TABLES, "bo"]
    elsewhere = {*adapcc_training.__all__, "dssync", "theorem"}
    if {*names} - elsewhere:
        print(_inputs(__doc__, "Ours are simulated"))
    if {*names} & {*adapcc_training.__all__}:
        print("\n" + _inputs(adapcc_training.__doc__, "Four hosts"))
    for name in names:
        if name == "bo":
            bo(asked.seeds)
        else:
            TABLES[name]()


if __name__ == "__main__":
    main()
