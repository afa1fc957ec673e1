"""DS-Sync on ranks of this host, started as torchrun starts them: what each rank asserts is in the helper."""

import pytest

pytest.importorskip("torch")

from torch_started import by_srun, finished

HELPER = "ds_sync_ranks.py"


def test_four_ranks_average_agree_and_learn_what_data_parallel_training_learns():
    assert all("converges" in said for said in finished(HELPER, "four", 4))


def test_models_of_all_kinds_are_trained_as_data_parallel_training_does():
    assert all("resumed" in said for said in finished(HELPER, "two", 2))


def test_moving_averages_of_two_ranks_become_their_mean():
    assert all("ensemble" in said for said in finished(HELPER, "ensemble", 2))


def test_ranks_of_srun_average_over_ccctl_to_the_bits_that_gloo_gives():
    finished(HELPER, "backends", 4, by_srun, BACKEND="ccctl", CCCTL_PREFER="gloo")
