"""Ranks of a script of torch on this host, started as torchrun starts them."""

import os
import socket
import subprocess
import sys
from pathlib import Path

# Where no loop has been compiled yet, the first collective compiles them.
LIMIT_S = 300


def started(script, case, size, **variables):
    """One process a rank of ``script``, a file beside this one, with the variables that torchrun sets."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(size), **variables}
    return [
        subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name(script)), case],
            env={**os.environ, **common, "RANK": str(rank), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(size)
    ]


def outputs(processes):
    """What each process has printed, once all have ended."""
    try:
        return [process.communicate(timeout=LIMIT_S)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()


def finished(script, case, size, **variables):
    """What each rank has printed; fails where one has."""
    ranks = started(script, case, size, **variables)
    said = outputs(ranks)
    assert [rank.returncode for rank in ranks] == [0] * size, "\n".join(said)
    return said
