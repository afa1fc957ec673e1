"""DS-Sync on ranks of this host, started as torchrun starts them: what each rank asserts is in the helper."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

HELPER = Path(__file__).parents[3] / "helpers" / "ds_sync_ranks.py"
LIMIT_S = 300


def outputs(case, size, **variables):
    """What each rank said, and its exit status."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(size), **variables}
    ranks = [
        subprocess.Popen(
            [sys.executable, str(HELPER), case],
            env={**os.environ, **common, "RANK": str(rank), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(size)
    ]
    try:
        said = [rank.communicate(timeout=LIMIT_S)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    return said, [rank.returncode for rank in ranks]


def test_four_ranks_average_agree_and_learn_what_data_parallel_training_learns():
    said, statuses = outputs("four", 4)
    assert statuses == [0] * 4, "\n".join(said)
    assert all("converges" in one for one in said)
