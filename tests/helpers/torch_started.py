"""Ranks of a script of torch on this host, started as torchrun starts them, or as srun does."""

import os
import socket
import subprocess
import sys
from pathlib import Path

# The first collective compiles loops if none has been compiled yet.
LIMIT_S = 300


def by_torchrun(size):
    """For each rank the variables that torchrun sets."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(size)}
    return [{**common, "RANK": str(rank)} for rank in range(size)]


def by_srun(size):
    """For each rank what it reads of the variables that srun sets."""
    step = {"SLURM_JOB_ID": str(os.getpid()), "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_NODES": "1"}
    return [{**step, "SLURM_STEP_NUM_TASKS": str(size), "SLURM_PROCID": str(rank)} for rank in range(size)]


def started(script, case, size, launcher=by_torchrun, **variables):
    """One process a rank of ``script``, a file beside this one, as ``launcher`` starts it."""
    return [
        subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name(script)), case],
            env={**os.environ, **own, **variables, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for own in launcher(size)
    ]


def outputs(processes):
    """Return the output of each process, once all have ended."""
    try:
        return [process.communicate(timeout=LIMIT_S)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()


def finished(script, case, size, launcher=by_torchrun, **variables):
    """Return the output of each rank; fail if one has failed."""
    ranks = started(script, case, size, launcher, **variables)
    said = outputs(ranks)
    assert [rank.returncode for rank in ranks] == [0] * size, "\n".join(said)
    return said
