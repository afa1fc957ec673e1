"""Predicted and measured on one host, and whether what is chosen is the fastest: profile, synth, bench.

For each number of ranks, collective and size: `profile` once, `synth --race` and each plain algorithm by
name, then `bench` with all of them beside the MPI library. Prints a line for each: what was chosen, its
median, the fastest plain algorithm's, the prediction, and three ratios: ours over the best plain algorithm
(at most 1.05 is wanted), predicted over measured (0.8 to 1.25), the library over ours (at least 1).

    python -P benchmarks/one_host.py [--ranks 2,4] [--sizes 64K,1M,16M,64M] [--collectives all_reduce,…]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

_PLAIN = ("ring", "direct", "doubling", "halving_doubling", "tree")


def ccctl(*words: object) -> str | None:
    """What a command prints; None where it refuses."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "ccctl", *map(str, words)], capture_output=True, text=True, check=False
    )
    return done.stdout if done.returncode == 0 else None


def made(folder: Path, profile: Path, kind: str, size: str, budget_s: float) -> list[Path]:
    """The schedules of one size: the chosen one, then each plain algorithm that serves the collective."""
    asked = ("synth", "--network", profile, "--collective", kind, "--size", size, "-q")
    chosen = folder / "chosen.json"
    if ccctl(*asked, "--race", "--time-limit", budget_s, "-o", chosen) is None:
        raise SystemExit(f"synth --race failed for {kind} of {size}")
    found = [chosen]
    for name in _PLAIN:
        path = folder / f"{name}.json"
        path.unlink(missing_ok=True)
        if ccctl(*asked, "--method", name, "-o", path) is not None:
            found.append(path)
    return found


def line(ranks: int, kind: str, size: str, chosen: str, rows: list[dict[str, Any]]) -> str:
    """One line of the table; the first row is the chosen schedule's."""
    ours, plain = rows[0], rows[1:]
    ours_us = ours["out_of_place"]["time_us"]
    best = min(plain, key=lambda row: float(row["out_of_place"]["time_us"]))
    best_us = best["out_of_place"]["time_us"]
    library = next(iter(ours["peers_over_ours"].values()))
    return (
        f"{ranks:5} {kind:>14} {size:>5} {chosen:>17} {ours_us:10.0f} {best['program'].split()[0]:>17} "
        f"{best_us:10.0f} {ours['predicted_us']:10.0f} {ours_us / best_us:6.2f} "
        f"{ours['predicted_us'] / ours_us:6.2f} {library:6.2f}"
    )


def main() -> None:
    """Print one line for each world, collective and size."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--ranks", default="2,4")
    options.add_argument("--sizes", default="64K,1M,16M,64M")
    options.add_argument("--collectives", default="all_reduce")
    options.add_argument("--iters", type=int, default=20)
    options.add_argument("--time-limit", type=float, default=5.0, help="seconds of each synthesis")
    asked = options.parse_args()
    print(
        f"{'ranks':>5} {'collective':>14} {'size':>5} {'chosen':>17} {'ours (us)':>10} {'best plain':>17} "
        f"{'(us)':>10} {'predicted':>10} {'/plain':>6} {'p/m':>6} {'MPI/':>6}"
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for ranks in map(int, asked.ranks.split(",")):
            profile = folder / "profile.json"
            if ccctl("profile", "-n", ranks, "-o", profile, "-q") is None:
                raise SystemExit("profile failed")
            for kind in asked.collectives.split(","):
                for size in asked.sizes.split(","):
                    paths = made(folder, profile, kind, size, asked.time_limit)
                    how = ("-b", size, "-e", size, "--iters", asked.iters, "--placement", "out", "--json")
                    text = ccctl("bench", *paths, *how, "--vs", "mpi", "--profile", profile)
                    if text is None:
                        raise SystemExit(f"bench failed for {kind} of {size}")
                    chosen = json.loads(paths[0].read_text())["body"]["method"]
                    print(line(ranks, kind, size, chosen, json.loads(text)["rows"]), flush=True)


if __name__ == "__main__":
    main()
