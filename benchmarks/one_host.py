"""Predicted and measured times on one host, and whether the fastest is chosen: profile, synth, bench.

For each number of ranks `profile` runs once. For each collective `synth --sizes … --race` keeps the fastest
at each size, and `synth` makes each plain algorithm by name. Then one `bench` runs all of them in turn,
beside the libraries. Prints a line for each size: the choice, its median, the fastest plain algorithm's
median, the prediction of the chosen schedule, and ratios: ours over the best plain algorithm (at most 1.05 is
wanted), predicted over measured (0.8 to 1.25), each library over ours (at least 1). If a library's own
collective was chosen, nothing is predicted. ``mem`` is a lower bound over our time: the copies and sums that
the collective needs, on all cores, at the costs that ``profile`` measured. ``win`` is the same with the
buffers in the window.

    python -P benchmarks/one_host.py [--ranks 2,4] [--sizes 64K,1M,16M,64M] [--collectives all_reduce,…]
        [--vs mpi,gloo] [-o rows.jsonl]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from probes.base import parse_size

_PLAIN = ("ring", "direct", "doubling", "halving_doubling", "tree")
_COLLECTIVES = "all_reduce,all_gather,reduce_scatter,all_to_all,broadcast"


def ccctl(*words: object) -> str | None:
    """Return the output of a command; None if it fails."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "ccctl", *map(str, words)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        print(done.stderr.strip().splitlines()[0] if done.stderr else "", file=sys.stderr)
    return done.stdout if done.returncode == 0 else None


def made(folder: Path, profile: Path, kind: str, sizes: list[str], budget_s: float) -> list[Path]:
    """Return the selection of the race, then each plain algorithm that can run the collective."""
    asked = ("synth", "--network", profile, "--collective", kind, "-q")
    chosen = folder / "chosen.json"
    swept = f"{sizes[0]}:{sizes[-1]}"
    if ccctl(*asked, "--sizes", swept, "-f", 4, "--race", "--time-limit", budget_s, "-o", chosen) is None:
        raise SystemExit(f"synth --race failed for {kind}")
    found = [chosen]
    for name in _PLAIN:
        path = folder / f"{name}.json"
        path.unlink(missing_ok=True)
        if ccctl(*asked, "--size", sizes[-1], "--method", name, "-o", path) is not None:
            found.append(path)
    return found


def memory_us(profile: dict[str, Any], kind: str, ranks: int, size_bytes: int) -> float:
    """Return the microseconds of the copies and sums that every algorithm needs, on all cores."""
    [memory] = profile["memory"]
    size = np.log(size_bytes)
    copy_s, add_s = (
        float(np.interp(size, np.log(memory["sizes_bytes"]), memory[f"{what}_s_per_byte"]))
        for what in ("copy", "add")
    )
    others = (ranks - 1) / ranks
    each_s = {
        "all_reduce": others * (add_s + copy_s),
        "reduce_scatter": others * add_s,
        "all_gather": copy_s,
        "all_to_all": copy_s,
        "broadcast": copy_s,
    }[kind] * size_bytes
    return float(1e6 * each_s * max(1.0, ranks / memory["cores"]))


def row_of(
    ranks: int, kind: str, size: str, rows: list[dict[str, Any]], bound_us: float, window_us: float
) -> dict[str, Any]:
    """Return the figures of one size; ``rows`` are the chosen schedule, then plain ones.

    ``bound_us`` is the lower bound by memory, ``window_us`` the chosen schedule's time with buffers in the
    window.
    """
    ours, plain = rows[0], rows[1:]
    ours_us = ours["out_of_place"]["time_us"]
    best = min(plain, key=lambda row: float(row["out_of_place"]["time_us"]))
    predicted_us = ours["predicted_us"]
    return {
        "ranks": ranks,
        "collective": kind,
        "size": size,
        "chosen": ours["program"].rpartition(": ")[2],
        "ours_us": ours_us,
        "best_plain": best["program"].split()[0],
        "best_plain_us": best["out_of_place"]["time_us"],
        "predicted_us": predicted_us,
        "over_plain": ours_us / best["out_of_place"]["time_us"],
        "predicted_over_measured": predicted_us / ours_us if predicted_us is not None else None,
        "plain_predicted_over_measured": {
            row["program"].split()[0]: row["predicted_us"] / row["out_of_place"]["time_us"] for row in plain
        },
        "libraries": {name: peer_us / ours_us for name, peer_us in ours["peers"].items()},
        "memory_share": bound_us / ours_us,
        "memory_share_in_window": bound_us / window_us,
        "wrong": sum(row["out_of_place"]["wrong"] for row in rows),
    }


def line(row: dict[str, Any]) -> str:
    """Return one line of the table."""
    predicted = "-" if row["predicted_us"] is None else f"{row['predicted_us']:.0f}"
    near = "-" if row["predicted_us"] is None else f"{row['predicted_over_measured']:.2f}"
    libraries = " ".join(f"{name} {ratio:.2f}" for name, ratio in row["libraries"].items())
    return (
        f"{row['ranks']:5} {row['collective']:>14} {row['size']:>5} {row['chosen']:>17} "
        f"{row['ours_us']:10.0f} {row['best_plain']:>17} {row['best_plain_us']:10.0f} {predicted:>10} "
        f"{row['over_plain']:6.2f} {near:>6} {row['memory_share']:5.0%} {row['memory_share_in_window']:5.0%}"
        f"  {libraries}"
    )


def main() -> None:
    """Print one line for each world, collective and size."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--ranks", default="2,4")
    options.add_argument("--sizes", default="64K,1M,16M,64M")
    options.add_argument("--collectives", default=_COLLECTIVES)
    options.add_argument("--iters", type=int, default=20)
    options.add_argument("--time-limit", type=float, default=20.0, help="seconds of each synthesis")
    options.add_argument("--vs", default="mpi", help="libraries, as ccctl bench has them")
    options.add_argument("-o", "--output", type=Path, help="append each row to a file of JSON lines")
    asked = options.parse_args()
    sizes = asked.sizes.split(",")
    print(
        f"{'ranks':>5} {'collective':>14} {'size':>5} {'chosen':>17} {'ours (us)':>10} {'best plain':>17} "
        f"{'(us)':>10} {'predicted':>10} {'/plain':>6} {'p/m':>6} {'mem':>5} {'win':>5}  libraries over ours"
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for ranks in map(int, asked.ranks.split(",")):
            profile = folder / "profile.json"
            if ccctl("profile", "-n", ranks, "-o", profile, "-q") is None:
                raise SystemExit("profile failed")
            known = json.loads(profile.read_text())["body"]
            for kind in asked.collectives.split(","):
                paths = made(folder, profile, kind, sizes, asked.time_limit)
                how = ("--sizes", asked.sizes, "--iters", asked.iters, "--placement", "out", "--json")
                text = ccctl("bench", *paths, *how, "--vs", asked.vs, "--profile", profile)
                if text is None:
                    raise SystemExit(f"bench failed for {kind}")
                every = json.loads(text)["rows"]
                text = ccctl("bench", paths[0], *how, "--window")
                if text is None:
                    raise SystemExit(f"bench --window failed for {kind}")
                windows_us = [row["out_of_place"]["time_us"] for row in json.loads(text)["rows"]]
                for at, size in enumerate(sizes):
                    bound_us = memory_us(known, kind, ranks, parse_size(size, "--sizes"))
                    rows = every[at * len(paths) : (at + 1) * len(paths)]
                    found = row_of(ranks, kind, size, rows, bound_us, windows_us[at])
                    print(line(found), flush=True)
                    if asked.output:
                        with asked.output.open("a") as file:
                            file.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
