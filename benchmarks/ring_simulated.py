"""A ring all_reduce simulated on the measured network, beside its measured time: TACOS's Figure 18 on CPUs.

    python -P benchmarks/ring_simulated.py [-n 4] [--sizes 256K:32M]
    ccctl lab run -- python -P benchmarks/ring_simulated.py

The paper simulates rings on V100s and compares them with measured times. Here the ranks are processes, on one
host or on the hosts of a lab. Their links are profiled, and the ring's schedule is simulated on the profile
and run. A row has the ratio of both times, the last line the mean and the largest relative difference.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import mean

from probes.base import format_size

_TIMEOUT_S = "120"


def stdout_of(*words: str) -> str:
    """Return the stdout of a ccctl command; exit with its stderr if it fails."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "ccctl", *words], capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"ccctl {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


def main() -> None:
    """Print the table."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("-n", type=int, default=0, help="ranks on this host; 0: those that ccctl chooses")
    options.add_argument("--sizes", default="256K:32M")
    options.add_argument("--factor", default="2")
    options.add_argument("--iters", default="20")
    asked = options.parse_args()
    world = ["-n", str(asked.n)] if asked.n else []
    with tempfile.TemporaryDirectory(prefix="ccctl-ring-") as folder:
        profile, ring = (str(Path(folder) / name) for name in ("profile.json", "ring.json"))
        stdout_of("profile", *world, "--timeout", _TIMEOUT_S, "-o", profile)
        stdout_of("synth", "--network", profile, "--method", "ring", "--size", "8M", "-o", ring)
        benched = (
            "--sizes",
            asked.sizes,
            "-f",
            asked.factor,
            "--iters",
            asked.iters,
            "--timeout",
            _TIMEOUT_S,
        )
        rows = json.loads(stdout_of("bench", ring, *world, "--profile", profile, *benched, "--json"))["rows"]
    print(f"{'size':>8}{'simulated':>14}{'measured':>14}{'ratio':>8}")
    ratios = []
    for row in rows:
        simulated_us, measured_us = float(row["predicted_us"]), float(row["time_us"])
        ratios.append(simulated_us / measured_us)
        times = f"{simulated_us:11.0f} us{measured_us:11.0f} us"
        print(f"{format_size(row['size_bytes']):>8}{times}{ratios[-1]:8.2f}")
    off = [abs(ratio - 1) for ratio in ratios]
    print(f"off by {mean(off):.1%} in the mean, {max(off):.1%} at most; the paper: 5.21 % in the mean")


if __name__ == "__main__":
    main()
