"""The backend of torch.distributed on ranks of this host, started as torchrun starts them."""

import pytest

pytest.importorskip("torch")

from torch_started import finished, outputs, started

HELPER = "torch_ranks.py"


def test_collectives_data_parallel_and_sharded_training_give_what_gloo_gives():
    said = finished(HELPER, "collectives", 3, CCCTL_PREFER="ccctl")
    assert all("fully_sharded" in one for one in said)


def test_the_faster_way_is_chosen_by_all_ranks():
    finished(HELPER, "measured", 2)


@pytest.mark.parametrize("prefer", ["ccctl", "gloo"])
def test_ranks_are_told_that_one_is_lost(prefer):
    ranks = started(HELPER, "killed", 3, CCCTL_PREFER=prefer)
    said = outputs(ranks)
    assert [rank.returncode for rank in ranks] == [0, -9, 0], "\n".join(said)
    assert "told" in said[0]
    assert "told" in said[2]
