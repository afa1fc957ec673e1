"""What TACOS-ILP proves, and how long it takes: whole processes, CPU seconds with the solver's.

    python benchmarks/ilp_cases.py [FILTER]

The peers' figures: SCCL by Z3, measured once on a machine of two cores; TACOS-ILP by Gurobi as published.
A link is held for alpha too where the peer counts steps, so that a time is a number of steps.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path

MESH = ("--alpha", "0.5us", "--bandwidth", "50GiB/s", "--chunk", "1M")
STEPS = ("--hold-alpha", "--alpha", "0.7us", "--bandwidth", "25GB/s", "--chunk", "1M")
# (case, arguments, chunks a rank, what a peer needs)
CASES: tuple[tuple[str, tuple[str, ...], int, str], ...] = (
    ("mesh 3x3 all_gather", ("--network", "mesh:3x3", *MESH), 1, "TACOS-ILP: Fig. 20, no time given"),
    ("mesh 3x3 all_gather", ("--network", "mesh:3x3", *MESH), 2, "-"),
    ("ring 8 all_gather", ("--network", "ring:8", *STEPS), 1, "SCCL 0.2 s"),
    ("DGX-1 all_gather", ("--network", "dgx-1", "--hold-alpha", "--chunk", "1M"), 1, "SCCL 0.3 s (2 steps)"),
    (
        "DGX-1 all_gather",
        ("--network", "dgx-1", "--hold-alpha", "--chunk", "1M"),
        6,
        "SCCL 102.5 s (7 steps)",
    ),
    ("DGX-1 all_to_all", ("--network", "dgx-1", "--hold-alpha", "--chunk", "1M"), 1, "SCCL 17.6 s (3 steps)"),
    (
        "mesh 4x4 less 2 all_gather",
        ("--network", "mesh:4x4", "--without", "rank:5,rank:10", *MESH),
        1,
        "TACOS-ILP 4.9 s",
    ),
    (
        "mesh 4x4 less 2 reduce_scatter",
        ("--network", "mesh:4x4", "--without", "rank:5,rank:10", *MESH),
        1,
        "TACOS-ILP 4.9 s",
    ),
)


def synthesized(arguments: tuple[str, ...]) -> tuple[dict[str, object], float, float]:
    """Return (summary, wall seconds, CPU seconds) of one ccctl synth."""
    command = [sys.executable, "-P", "-m", "ccctl", "synth", *arguments, "--method", "ilp", "--json"]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "summary.json"
        begun_s = time.perf_counter()
        into_file = (os.POSIX_SPAWN_OPEN, 1, str(path), os.O_WRONLY | os.O_CREAT, 0o600)
        pid = os.posix_spawn(command[0], command, os.environ, file_actions=[into_file])
        _, status, usage = os.wait4(pid, 0)
        if status:
            sys.exit(f"{' '.join(command)} failed")
        wall_s = time.perf_counter() - begun_s
        return json.loads(path.read_text()), wall_s, usage.ru_utime + usage.ru_stime


def main(wanted: str = "") -> None:
    """Print a row for each case whose name contains ``wanted``."""
    print(
        f"{'case':32}{'chunks':>7}{'best':>13}{'bound':>13}  {'status':10}{'wall':>8}{'CPU':>8}  peer\n"
        f"{'':32}{'a rank':>7}{'us':>13}{'us':>13}"
    )
    synthesized(("--network", "ring:2", *STEPS))
    for name, arguments, chunks, peer in CASES:
        if wanted not in name:
            continue
        kind = name.split()[-1]
        summary, wall_s, cpu_s = synthesized((*arguments, "--collective", kind, "--chunks", str(chunks)))
        best, bound = (float(str(summary[key])) * 1e6 for key in ("time_s", "bound_s"))
        print(
            f"{name:32}{chunks:7}{best:13.3f}{bound:13.3f}  {summary['status']!s:10}"
            f"{wall_s:7.1f}s{cpu_s:7.1f}s  {peer}",
            flush=True,
        )


if __name__ == "__main__":
    main(*sys.argv[1:2])
