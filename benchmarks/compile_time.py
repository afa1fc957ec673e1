"""CPU seconds and peak memory of the compiler and the judge, each case in a process of its own.

    python benchmarks/compile_time.py [FILTER]

The peer's figures are those of Azure's fork of msccl-tools, measured once on a machine of two cores; it
neither verifies what it emits nor reads it again.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

EXAMPLES = Path(__file__).parents[1] / "examples"
# (example, parameters, seconds of the peer)
CASES = (
    ("two_step_alltoall", "nodes=8 gpus=8", 0.68),
    ("two_step_alltoall", "nodes=32 gpus=8", 15.4),
    ("three_step_alltoall", "nodes=32 gpus=8", 14.1),
    ("allpairs_alltoall", "ranks=256", 17.3),
    ("ring_allreduce", "ranks=128", 4.8),
    ("ring_allreduce", "ranks=256", 22.4),
    ("allpairs_allreduce", "ranks=32", 5.9),
    ("hierarchical_allreduce", "nodes=8 gpus=16", None),
    ("hierarchical_allreduce", "nodes=8 gpus=32", None),
    ("halving_doubling_allreduce", "ranks=128", 1.25),
)


def measured(*arguments: str) -> tuple[float, float]:
    """Return (CPU seconds, peak MiB) of one ccctl process."""
    command = [sys.executable, "-P", "-m", "ccctl", *arguments]
    pid = os.posix_spawn(command[0], command, os.environ, file_actions=[(os.POSIX_SPAWN_CLOSE, 1)])
    _, status, usage = os.wait4(pid, 0)
    if status:
        sys.exit(f"{' '.join(command)} failed")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def main(wanted: str = "") -> None:
    """Print a row for each case whose name contains ``wanted``."""
    print(
        f"{'program':28}{'parameters':18}{'compile':>10}{'MiB':>7}{'peer':>8}{'ratio':>8}{'verify':>9}{'MiB':>7}"
    )
    with tempfile.TemporaryDirectory() as folder:
        for name, parameters, peer_s in CASES:
            if wanted not in name:
                continue
            xml = f"{folder}/{name}.xml"
            given = [word for value in parameters.split() for word in ("-p", value)]
            compile_s, compile_mib = measured("compile", f"{EXAMPLES}/{name}.py", *given, "-o", xml)
            verify_s, verify_mib = measured("verify", xml)
            against = f"{peer_s:8.2f}{peer_s / compile_s:7.1f}x" if peer_s else f"{'-':>8}{'-':>8}"
            print(
                f"{name:28}{parameters:18}{compile_s:9.2f}s{compile_mib:7.0f}{against}"
                f"{verify_s:8.2f}s{verify_mib:7.0f}"
            )


if __name__ == "__main__":
    main(*sys.argv[1:2])
