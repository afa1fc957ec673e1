"""DS-Sync on ranks of this host, started as torchrun starts them: what each rank asserts is in the helper."""

import pytest

pytest.importorskip("torch")

from torch_started import finished

HELPER = "ds_sync_ranks.py"


def test_four_ranks_average_agree_and_learn_what_data_parallel_training_learns():
    assert all("converges" in said for said in finished(HELPER, "four", 4))


def test_models_of_all_kinds_are_trained_as_data_parallel_training_does():
    assert all("resumed" in said for said in finished(HELPER, "two", 2))
