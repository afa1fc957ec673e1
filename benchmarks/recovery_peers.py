"""Pause of four ranks when one of them is killed: a ccctl session beside torchft, on this host.

Each trial kills one rank (SIGKILL) at a random moment of a job of all_reduces, 20 ms apart. Measured is the
longest later time between two results of a survivor, with both systems in turn. torchft's lighthouse counts a
replica as dead after a time without a heartbeat (5 s by default).

    python -P benchmarks/recovery_peers.py --torchft PYTHON [--trials 5] [--heartbeat-ms 5000,1000]

PYTHON is the interpreter of an environment with torch and torchft.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from adaptive_lab import Strike, recovery_s, run_inside

from exec.adaptive.iterations import Iterations, IterationsReport

RANKS, COMPUTING_S = 4, 0.02
PATIENCE_S = 60.0


def ours_s(size_bytes: int, victim: int, after_s: float) -> float:
    """Return the longest gap of the survivors of a session.

    The gap is NaN if a result was wrong or the session did not go on.
    """
    with tempfile.TemporaryDirectory() as place:
        strike = Strike(None, Path(place), "kill", victim, after_s)
        asked = Iterations(150, size_bytes // 4, computing_s=np.full((150, RANKS), COMPUTING_S))
        came = run_inside(None, Path(place), asked, "session", strike)
        if not isinstance(came, IterationsReport) or came.wrong or list(came.lost) != [victim]:
            print(f"  ours: {came if isinstance(came, str) else came.lost}")
            return float("nan")
        return recovery_s(came, strike.at_s)


@contextlib.contextmanager
def replicas(python: Path, size_bytes: int, heartbeat_ms: int) -> Iterator[list[subprocess.Popen[str]]]:
    """Yield four replicas of torchft with their lighthouse."""
    with socket.create_server(("127.0.0.1", 0)) as chosen:
        port = chosen.getsockname()[1]
    options = {"bind": f"127.0.0.1:{port}", "min_replicas": 2, "join_timeout_ms": 1000}
    options["heartbeat_timeout_ms"] = heartbeat_ms
    lighthouse = subprocess.Popen(
        [python.with_name("torchft_lighthouse"), *(f"--{name}={value}" for name, value in options.items())],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    environment = os.environ | {"TORCHFT_LIGHTHOUSE": f"http://127.0.0.1:{port}", "OMP_NUM_THREADS": "1"}
    script = Path(__file__).with_name("torchft_replica.py")
    started = [
        subprocess.Popen(
            [python, script, str(rank), str(size_bytes // 4), "1000000", str(COMPUTING_S)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        for rank in range(RANKS)
    ]
    try:
        yield started
    finally:
        for one in (*started, lighthouse):
            one.kill()
            one.wait()


def torchft_s(python: Path, size_bytes: int, heartbeat_ms: int, victim: int, after_s: float) -> float:
    """Return the longest gap of the first survivor of torchft; NaN if it does not go on within a minute."""
    with replicas(python, size_bytes, heartbeat_ms) as started:
        watched = started[0 if victim else 1]
        assert watched.stdout is not None
        os.set_blocking(watched.stdout.fileno(), True)
        begun_s, struck_s, last_s, longest_s = float("inf"), float("inf"), 0.0, 0.0
        deadline_s = time.monotonic() + PATIENCE_S
        for line in watched.stdout:
            _, at, members, value = line.split()
            at_s = float(at)
            if int(members) == RANKS:
                begun_s = min(begun_s, at_s)
            if at_s - begun_s > after_s and struck_s == float("inf"):
                struck_s = time.monotonic()
                started[victim].kill()
            if at_s > struck_s:
                longest_s = max(longest_s, at_s - last_s)
            last_s = at_s
            left = [rank for rank in range(RANKS) if rank != victim]
            if int(members) == len(left) and at_s > struck_s:
                return longest_s if float(value) == statistics.mean(left) else float("nan")
            if time.monotonic() > deadline_s:
                break
    return float("nan")


def main() -> None:
    """Print a row for each trial, then the medians and their ratios."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--torchft", type=Path, required=True, metavar="PYTHON")
    options.add_argument("--trials", type=int, default=5)
    options.add_argument("--bytes", type=int, default=1 << 18)
    options.add_argument("--heartbeat-ms", default="5000,1000")
    options.add_argument("--seed", type=int, default=0)
    asked = options.parse_args()
    heartbeats = [int(one) for one in asked.heartbeat_ms.split(",")]
    chance = random.Random(asked.seed)
    gaps: dict[str, list[float]] = {}
    for trial in range(asked.trials):
        victim, after_s = chance.randrange(RANKS), 0.2 + 1.5 * chance.random()
        row = {"ours": ours_s(asked.bytes, victim, after_s)}
        for heartbeat_ms in heartbeats:
            name = f"torchft, {heartbeat_ms} ms"
            row[name] = torchft_s(asked.torchft, asked.bytes, heartbeat_ms, victim, after_s)
        print(f"{trial}: rank {victim} killed: " + ", ".join(f"{name} {s:.2f} s" for name, s in row.items()))
        for name, seconds in row.items():
            gaps.setdefault(name, []).append(seconds)
    medians = {name: statistics.median(seconds) for name, seconds in gaps.items()}
    for name, median_s in medians.items():
        print(f"{name}: median {median_s:.2f} s, {median_s / medians['ours']:.1f} of ours")


if __name__ == "__main__":
    main()
