"""The backend of torch.distributed on ranks of this host, started as torchrun starts them."""

import logging
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from joined import needs_ucx, over_all_wires  # noqa: E402
from torch_started import LIMIT_S, by_torchrun, finished, outputs, started  # noqa: E402

HELPER = "torch_ranks.py"


@over_all_wires
def test_collectives_data_parallel_and_sharded_training_give_what_gloo_gives(wires):
    said = finished(HELPER, "collectives", 3, CCCTL_PREFER="ccctl", APART=wires)
    assert all("fully_sharded" in one for one in said)


@pytest.mark.parametrize("prefer", ["measured", "ccctl", "gloo"])
def test_unequal_blocks_which_gloo_refuses_are_gathered_and_scattered(prefer):
    finished(HELPER, "unequal", 3, CCCTL_PREFER=prefer)


def test_the_faster_way_is_chosen_by_all_ranks():
    finished(HELPER, "measured", 2)


@pytest.mark.parametrize("prefer", ["measured", "ccctl", "gloo"])
def test_legal_programs_end_and_what_is_refused_leaves_the_group_usable(prefer):
    finished(HELPER, "legal", 4, CCCTL_PREFER=prefer)


def test_what_the_environment_of_rank_0_says_holds_on_all_ranks():
    def prefer_differently(size):
        return [
            one | {"CCCTL_PREFER": ("ccctl", "gloo", "measured")[rank]}
            for rank, one in enumerate(by_torchrun(size))
        ]

    finished(HELPER, "collectives", 3, prefer_differently)


@pytest.mark.parametrize("prefer", ["measured", "ccctl"])
def test_a_rank_that_does_not_call_is_named_with_the_collective_and_the_group(prefer):
    ranks = started(HELPER, "missing", 3, CCCTL_PREFER=prefer)
    said = outputs(ranks)
    assert [rank.returncode for rank in ranks] == [0, 0, 0], "\n".join(said)
    for one in (said[0], said[2]):
        assert "all_reduce of 40013 float32, collective 2 of group 1: " in one
        assert "not called, or only a moment ago, by rank 1" in one


def test_what_goes_on_is_said_once_and_the_first_calls_do_not_wait_for_it():
    first, *others = finished(HELPER, "measured", 2)
    assert first.count("ccctl measures links and plans large collectives") == 1
    assert "gloo carries them out until then" in first
    assert not [one for one in others if "measures links" in one]


@pytest.mark.parametrize("rendezvous", [[], ["--standalone"]], ids=["static", "standalone"])
def test_a_job_that_torchrun_starts_again_does_not_read_what_the_first_one_wrote(rendezvous):
    script = Path(__file__).parents[3] / "helpers" / "torch_restarted.py"
    options = [*rendezvous, "--nproc-per-node", "2", "--max-restarts", "1"]
    if not rendezvous:
        options += ["--master-port", by_torchrun(1)[0]["MASTER_PORT"]]
    command = [sys.executable, "-m", "torch.distributed.run", *options, str(script)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("started again") == 2


def test_threads_of_python_go_on_while_data_moves():
    finished(HELPER, "unlocked", 2, CCCTL_PREFER="ccctl")


@pytest.mark.parametrize(
    ("prefer", "wires"), [("ccctl", ""), ("gloo", ""), pytest.param("ccctl", "ucx", marks=needs_ucx)]
)
def test_ranks_are_told_that_one_is_lost(prefer, wires):
    ranks = started(HELPER, "killed", 3, CCCTL_PREFER=prefer, APART=wires)
    said = outputs(ranks)
    assert [rank.returncode for rank in ranks] == [0, -9, 0], "\n".join(said)
    assert "told" in said[0]
    assert "told" in said[2]


def test_a_bad_profile_is_refused_by_all_ranks_when_the_group_is_made(tmp_path):
    path = tmp_path / "links.csv"
    pairs = [(src, dst) for src in range(3) for dst in range(3) if src != dst]
    path.write_text("".join(f"{src},{dst},1us,1GB/s\n" for src, dst in pairs))
    for given, why in (
        (path, "it is of 3 ranks, the job has 2"),
        (tmp_path / "none", "there is no such file"),
    ):
        ranks = started(HELPER, "launched", 2, CCCTL_PROFILE=str(given))
        for said, rank in zip(outputs(ranks), ranks, strict=True):
            assert rank.returncode == 1
            assert f"CCCTL_PROFILE={given}: {why}" in said
            assert "in init_process_group" in said and "in all_reduce" not in said


def test_what_gloo_carries_out_is_said_once_for_all_groups(caplog):
    from exec.training.backend import process_group

    process_group._SAID.clear()
    with caplog.at_level(logging.WARNING, process_group.__name__):
        for _ in range(2):
            group = process_group.TorchGroup(dist.HashStore(), 0, 1, timedelta(seconds=60))
            for op in (dist.ReduceOp.BOR, dist.ReduceOp.BOR, dist.ReduceOp.BXOR):
                group.allreduce([data := torch.arange(5)], op=op).wait()
                assert data.tolist() == [0, 1, 2, 3, 4]
            group.shutdown()
    assert [record.getMessage() for record in caplog.records] == [
        f"ccctl has no plans for all_reduce by {name}: gloo carries it out" for name in ("BOR", "BXOR")
    ]
