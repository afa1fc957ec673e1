"""The backend of torch.distributed on ranks of this host, started as torchrun starts them."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

HELPER = Path(__file__).parents[3] / "helpers" / "torch_ranks.py"
# Where no loop has been compiled yet, the first collective compiles them.
LIMIT_S = 300


def started(case, size, **variables):
    """One process a rank, with the variables that torchrun sets."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(size), **variables}
    return [
        subprocess.Popen(
            [sys.executable, str(HELPER), case],
            env={**os.environ, **common, "RANK": str(rank), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(size)
    ]


def outputs(processes):
    try:
        return [process.communicate(timeout=LIMIT_S)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()


def test_collectives_data_parallel_and_sharded_training_give_what_gloo_gives():
    ranks = started("collectives", 3, CCCTL_PREFER="ccctl")
    said = outputs(ranks)
    assert [rank.returncode for rank in ranks] == [0, 0, 0], "\n".join(said)
    assert all("fully_sharded" in one for one in said)


def test_the_faster_way_is_chosen_by_all_ranks():
    ranks = started("measured", 2)
    said = outputs(ranks)
    assert [rank.returncode for rank in ranks] == [0, 0], "\n".join(said)


@pytest.mark.parametrize("prefer", ["ccctl", "gloo"])
def test_ranks_are_told_that_one_is_lost(prefer):
    ranks = started("killed", 3, CCCTL_PREFER=prefer)
    said = outputs(ranks)
    assert [rank.returncode for rank in ranks] == [0, -9, 0], "\n".join(said)
    assert "told" in said[0]
    assert "told" in said[2]
