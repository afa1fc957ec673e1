"""DeAR and DS-Sync against DDP where communication matters, in labs; and whether DS-Sync learns as DDP does.

    python benchmarks/training.py [--cases even,slow_host,thin_trunk,combined] [--modes ddp:256K,…]
        [--layers 8] [--width 256] [--compute 10ms|balanced] [--steps 16] [--rounds 2]
    python benchmarks/training.py --convergence [--seeds 5] [--steps 240]
        [--models cnn,transformer] [--at 120,150,180]
    python benchmarks/training.py --to-accuracy [--cases trunk,trunk_and_nic,uniform,switch]
        [--modes ddp:32K,…] [--seeds 5] [--steps 160]

For each case a lab is made and profiled, and ``ccctl training compare`` runs on its hosts, each mode
``--rounds`` times in turn. Compute is emulated: layers sleep for the time that a GPU would work; ``balanced``
makes this time in all as long as an all_reduce takes at the rate of the slowest link. Modes with buckets are
tuned: the best bucket size that was tried counts. A ratio is DDP's median iteration over another mode's:
above 1 DDP is slower. ``gained`` says where a mode stands between DDP (0 %) and the ideal (100 %). The ideal
is the larger of two times: of computing alone, measured, and of an all_reduce at the rate of the slowest
link. Predicted times are those of ``ccctl fusion`` with the profile's costs. Needs root, for the lab, and
torch.

``--to-accuracy`` measures seconds to the same accuracy on scikit-learn's digits, in labs like the three
settings of DS-Sync's Sec. V-A 5: eight hosts in two racks, where a background flow takes half of the trunk,
half of the trunk and of one host's NIC, or nothing; DeAR runs on one switch. As in the paper the target is
the lowest of DDP's best accuracies over the seeds, here within three quarters of the iterations. All modes
have buckets of 32 KiB, which means one bucket for each layer but the last two. A ratio is DDP's seconds over
another mode's with the same seed; printed are the median, the least and the most, because seeds are few.
Evaluations and the first iteration's connections are not counted.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from math import inf
from pathlib import Path
from statistics import geometric_mean, mean, median, stdev
from typing import Any

from lab_cases import CCCTL, inside, lab

from ccctl.arguments.networks import load_network
from probes.base import parse_seconds, parse_size
from synth.fusion.methods import fusion_plan
from synth.fusion.model import Model
from synth.fusion.network_costs import ring_costs
from synth.network import Network

RANKS = 4
EVEN = 'hosts = "h[1-4]"\nrate = "100Mbit/s"\n'
RACKS = 'racks = [["h1", "h2"], ["h3", "h4"]]\n'
SLOW = '[rates]\n"h4" = "25Mbit/s"\n'
# The settings of DS-Sync's Sec. V-A 5, at 1/1000 of its rate, as the model is so much smaller, and one switch
# for DeAR: (the lab, the ranks of racks, the modes). A background flow takes half.
_HALVES = 'racks = [["h1", "h2", "h3", "h4"], ["h5", "h6", "h7", "h8"]]\n'
_AVERAGING = "ddp:32K,ds-sync:32K,gossip"
SHARED = {
    "trunk": (_HALVES + 'trunk = "10Mbit/s"\n', "0-3/4-7", _AVERAGING),
    "trunk_and_nic": (
        'racks = [["h1", "h2", "h3", "h4", "h5"], ["h6", "h7", "h8"]]\ntrunk = "10Mbit/s"\n'
        '[rates]\n"h5" = "10Mbit/s"\n',
        "0-4/5-7",
        _AVERAGING,
    ),
    "uniform": (_HALVES + 'trunk = "20Mbit/s"\n', "0-3/4-7", _AVERAGING),
    "switch": ("", "", "ddp:32K,dear:32K"),
}
# Four layers compute for 120 ms in all: half of what an all_reduce of the model takes over the shared trunk.
COMPUTE = "10ms"
# Each lab, and the bytes per second of what limits an all_reduce on it.
CASES = {
    "even": (EVEN, 100e6 / 8),
    "slow_host": (EVEN + SLOW, 25e6 / 8),
    "thin_trunk": (EVEN + RACKS + 'trunk = "50Mbit/s"\n', 50e6 / 8),
    "combined": (EVEN + RACKS + 'trunk = "50Mbit/s"\n' + SLOW, 25e6 / 8),
}
MODES = (
    "none,ddp:256K,ddp:512K,ddp:1M,ddp,dear:256K,dear:512K,dear-nl,ds-sync:64K,ds-sync:256K,"
    "hierarchical,gossip"
)
PREDICTED = ("ddp", "dear", "dear-nl")


def labels(row: dict[str, Any]) -> tuple[str, str]:
    """Return (the mode, the mode with its bucket size)."""
    bucket = f":{row['bucket_bytes'] >> 10}K" if row["bucket_bytes"] else ""
    return row["mode"], row["mode"] + bucket


def best_of(rows: list[dict[str, Any]]) -> dict[str, tuple[str, float]]:
    """Return for each mode its best bucket size, and the median of the medians of its runs with it."""
    found: dict[str, tuple[str, float]] = {}
    times_s: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        times_s.setdefault(labels(row), []).append(row["iteration_s"])
    for (mode, label), runs_s in times_s.items():
        time_s = median(runs_s)
        print(
            f"    {label:14} {1e3 * time_s:7.1f} ms  of {' '.join(f'{1e3 * run_s:.1f}' for run_s in runs_s)}"
        )
        if mode not in found or time_s < found[mode][1]:
            found[mode] = (label, time_s)
    return found


def predicted_s(label: str, network: Network, model: Model, compute_s: float) -> float:
    """Return the iteration time that ``ccctl training fusion`` predicts on the measured network."""
    mode, _, bucket = label.partition(":")
    size_bytes = parse_size(bucket, "--modes") if bucket else 0
    return fusion_plan(model.taking(compute_s), ring_costs(network), mode, size_bytes).iteration_s


def all_reduce_s(case: str, model: Model) -> float:
    """Return the seconds of an all_reduce of the model in a lab at the rate of its slowest link."""
    return 2 * (RANKS - 1) / RANKS * model.total_bytes / CASES[case][1]


def compute_of(case: str, options: argparse.Namespace, model: Model) -> str:
    """Return the sleep of a layer in its forward pass; its backward pass sleeps twice as long."""
    if options.compute != "balanced":
        return str(options.compute)
    return f"{1e6 * all_reduce_s(case, model) / 3 / options.layers:.0f}us"


def workload(options: argparse.Namespace) -> Model:
    """Return the layers and tensors of the trained model; its times are only proportions."""
    from exec.training.workloads.models import build, shape_of

    model = build("mlp", options.layers, options.width, 0)
    return shape_of(model, parse_seconds("10ms", "--compute"), "mlp")


def in_lab(case: str, options: argparse.Namespace, compute: str) -> tuple[list[dict[str, Any]], Network]:
    """Return (the rows of ``ccctl training compare`` in one lab, the measured network)."""
    description, _ = CASES[case]
    with tempfile.TemporaryDirectory() as folder, lab(case, description, folder) as name:
        profile = f"{folder}/{case}.json"
        inside(name, *CCCTL, "profile", "-q", "-o", profile)
        modes = ",".join([options.modes or MODES] * options.rounds)
        words = f"training compare --mode {modes} --network {profile} --layers {options.layers}"
        words += f" --width {options.width} --compute {compute} --steps {options.steps} --warmup 4"
        words += f" --evaluate {options.steps}" + (" --racks 0-1/2-3" if "racks" in description else "")
        rows = json.loads(inside(name, *CCCTL, *words.split(), "--json"))["rows"]
        return rows, load_network(profile, None, None)[0]


def told(case: str, rows: list[dict[str, Any]], network: Network, model: Model) -> dict[str, float]:
    """Print the results of a lab; return the ratios to DDP by mode."""
    print(f"{case}: {RANKS} hosts, {model.total_bytes / 1e6:.2f} MB", flush=True)
    best = best_of(rows)
    ddp_s, compute_s = best["ddp"][1], best["none"][1]
    ideal_s = max(compute_s, all_reduce_s(case, model))
    print(f"  computing {1e3 * compute_s:.0f} ms, max(compute, communication) {1e3 * ideal_s:.0f} ms")
    for mode, (label, time_s) in best.items():
        gained = (ddp_s - time_s) / (ddp_s - ideal_s) if ddp_s > ideal_s else 0.0
        line = f"  {label:14} {1e3 * time_s:7.1f} ms  ddp / it {ddp_s / time_s:.2f}  gained {gained:.0%}"
        if mode in PREDICTED:
            share = predicted_s(label, network, model, compute_s) / time_s
            line += f"  predicted / measured {share:.2f}"
        print(line, flush=True)
    return {mode: ddp_s / time_s for mode, (_, time_s) in best.items()}


def trained(model: str, seed: int, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the rows of DDP and DS-Sync, trained on this host from one seed."""
    # To evaluate takes longer than to train.
    often = f"--warmup {max(1, options.steps // 10)} --evaluate {max(1, options.steps // 8)}"
    words = f"training compare --mode ddp,ds-sync -n {RANKS} --model {model} --seed {seed} --json"
    words += f" --steps {options.steps} {often}"
    done = subprocess.run([*CCCTL, *words.split()], stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(done.returncode)
    rows: list[dict[str, Any]] = json.loads(done.stdout)["rows"]
    return rows


def convergence(options: argparse.Namespace) -> None:
    """Train DDP and DS-Sync from several seeds on this host.

    Printed are the final accuracies, the accuracies of the ranks' own replicas on the way, and the number of
    iterations until 90 %.
    """
    for model in options.models.split(","):
        runs: dict[str, list[dict[str, Any]]] = {}
        for seed in range(options.seeds):
            for row in trained(model, seed, options):
                runs.setdefault(row["mode"], []).append(row)
                print(f"  {model}, seed {seed}, {row['mode']}: {row['accuracy']:.4f}", flush=True)
        for mode, rows in runs.items():
            print(f"{model}, {mode}: accuracy {spread_of([row['accuracy'] for row in rows])}")
            for step in map(int, options.at.split(",")):
                shares = [dict(zip(row["evaluated"], row["accuracies"], strict=True)) for row in rows]
                if all(step in share for share in shares):
                    print(f"  replicas after {step}: {spread_of([share[step] for share in shares])}")
            print(f"  90 % after {', '.join(map(reached, rows))}", flush=True)


def digits() -> str:
    """Return the file of scikit-learn's digits; end the benchmark without it."""
    found = importlib.util.find_spec("sklearn")
    if found is None or found.origin is None:
        sys.exit("scikit-learn is not installed, and its digits are trained on: pip install scikit-learn")
    return str(Path(found.origin).parent / "datasets/data/digits.csv.gz")


def to_accuracy(case: str, options: argparse.Namespace) -> None:
    """Print seconds and iterations to DDP's accuracy in one lab, and ratios to DDP's."""
    more, racks, modes = SHARED[case]
    runs: dict[str, list[dict[str, Any]]] = {}
    description = f'hosts = "h[1-8]"\nrate = "20Mbit/s"\n{more}'
    with tempfile.TemporaryDirectory() as folder, lab(case, description, folder) as name:
        profile = f"{folder}/{case}.json"
        inside(name, *CCCTL, "profile", "-q", "-o", profile)
        words = ["training", "compare", "--mode", options.modes or modes, "--network", profile]
        words += ["--racks", racks] if racks else []
        words += ["--data", digits(), "--compute", COMPUTE, "--steps", str(options.steps)]
        words += ["--evaluate", "4", "--batch", "8", "--warmup", "4", "--json"]
        for seed in range(options.seeds):
            for row in json.loads(inside(name, *CCCTL, *words, "--seed", str(seed)))["rows"]:
                runs.setdefault(row["mode"], []).append(row)
                figures = f"{row['iteration_s'] * 1e3:.0f} ms, best {max(row['accuracies']):.1%}"
                print(f"    seed {seed} {row['mode']}: {figures} {row['note']}", flush=True)
    # DDP's best in fewer iterations, so that modes that learn more slowly have some to reach it.
    target = min(best_within(row, 3 * options.steps // 4) for row in runs["ddp"])
    reached_s = {mode: [reached_in(row, target) for row in rows] for mode, rows in runs.items()}
    print(f"{case}: to {target:.1%}, {options.seeds} seeds")
    for mode, rows in runs.items():
        times_s = [one[1] for one in reached_s[mode]]
        ratios = sorted(ddp[1] / one_s for ddp, one_s in zip(reached_s["ddp"], times_s, strict=True))
        steps, iteration_s = (
            median(one[0] for one in reached_s[mode]),
            median(row["iteration_s"] for row in rows),
        )
        print(
            f"  ddp / {mode:8} {median(ratios):.2f} [{ratios[0]:.2f}, {ratios[-1]:.2f}]  "
            f"{median(times_s):.1f} s, {steps:.0f} iterations of {1e3 * iteration_s:.0f} ms",
            flush=True,
        )


def best_within(row: dict[str, Any], steps: int) -> float:
    """Return the best accuracy of a run up to an iteration."""
    curve = zip(row["evaluated"], row["accuracies"], strict=True)
    best: float = max(share for step, share in curve if step <= steps)
    return best


def reached_in(row: dict[str, Any], target: float) -> tuple[float, float]:
    """Return (iterations, seconds) until the mean accuracy of replicas is the target; infinite if never."""
    curve = zip(row["evaluated"], row["evaluated_s"], row["accuracies"], strict=True)
    return next(((step, time_s) for step, time_s, share in curve if share >= target), (inf, inf))


def spread_of(shares: list[float]) -> str:
    """Return mean and standard deviation in words."""
    return f"{mean(shares):.4f} ± {stdev(shares) if len(shares) > 1 else 0.0:.4f}"


def reached(row: dict[str, Any]) -> str:
    """Return the first iteration after which the ranks' own replicas classified 90 % correctly."""
    pairs = zip(row["evaluated"], row["accuracies"], strict=True)
    return str(next((step for step, share in pairs if share >= 0.9), "never"))


def main() -> None:
    """Print all ratios, and their geometric means over the labs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", default="")
    parser.add_argument("--modes", default="")
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--compute", default="10ms")
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--convergence", action="store_true")
    parser.add_argument("--to-accuracy", action="store_true")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--models", default="cnn,transformer")
    parser.add_argument("--at", default="120,150,180")
    options = parser.parse_args()
    print(f"load of this machine: {Path('/proc/loadavg').read_text().split()[0]} on {os.cpu_count()} cores")
    if options.convergence:
        options.steps = options.steps or 240
        convergence(options)
        return
    if options.to_accuracy:
        options.steps = options.steps or 160
        for case in (options.cases or ",".join(SHARED)).split(","):
            to_accuracy(case, options)
        return
    options.steps = options.steps or 16
    model = workload(options)
    ratios: dict[str, list[float]] = {}
    for case in (options.cases or ",".join(CASES)).split(","):
        rows, network = in_lab(case, options, compute_of(case, options, model))
        for mode, ratio in told(case, rows, network, model).items():
            ratios.setdefault(mode, []).append(ratio)
    for mode, found in ratios.items():
        if mode not in ("none", "ddp"):
            print(f"ddp / {mode}: geometric mean {geometric_mean(found):.2f}, least {min(found):.2f}")


if __name__ == "__main__":
    main()
