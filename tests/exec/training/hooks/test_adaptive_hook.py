"""Training with the hook on ranks of this host, started as torchrun starts them."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from joined import needs_ucx

pytest.importorskip("torch")

ROOT = Path(__file__).parents[4]
# The first collective compiles loops if none has been compiled yet.
LIMIT_S = 400


def run(case, size, **variables):
    """(exit status, output) of each rank."""
    with socket.socket() as one, socket.socket() as other:
        for probe in (one, other):
            probe.bind(("127.0.0.1", 0))
        first, second = (str(probe.getsockname()[1]) for probe in (one, other))
    common = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": first,
        "SECOND_PORT": second,
        "WORLD_SIZE": str(size),
        **variables,
    }
    ranks = [
        subprocess.Popen(
            [sys.executable, str(ROOT / "tests/helpers/adaptive_ranks.py"), case],
            env={
                **os.environ,
                **common,
                "RANK": str(rank),
                "OMP_NUM_THREADS": "1",
                "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
            },
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
            rank.wait()
    return [(rank.returncode, one) for rank, one in zip(ranks, said, strict=True)]


def succeeded(found, victim=None):
    texts = "\n".join(f"rank {rank}: {status}\n{said}" for rank, (status, said) in enumerate(found))
    wanted = [-9 if rank == victim else 0 for rank in range(len(found))]
    assert [status for status, _ in found] == wanted, texts


def test_gradients_are_those_of_ddp_bit_for_bit_on_two_ranks_and_the_documented_loop_runs():
    succeeded(run("example", 2))


def test_gradients_are_those_of_ddp_also_with_a_rank_that_relays_and_experts_exchange_tokens():
    succeeded(run("equal", 3))


@pytest.mark.parametrize(("victim", "wires"), [(0, ""), (2, ""), pytest.param(2, "ucx", marks=needs_ucx)])
def test_survivors_of_a_killed_rank_use_every_sample_in_batches_of_one_size(victim, wires):
    succeeded(run("loses", 3, VICTIM=str(victim), APART=wires), victim)
