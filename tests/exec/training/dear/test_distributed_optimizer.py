"""DeAR's optimizer trains as DistributedDataParallel does, on ranks of this host."""

import pytest

pytest.importorskip("torch")

from torch_started import finished


def test_two_ranks_get_the_bits_of_data_parallel_training():
    said = finished("dear_ranks.py", "two", 2)
    assert all("wire done" in one for one in said)


def test_four_ranks_get_its_values():
    said = finished("dear_ranks.py", "four", 4)
    assert all("wire done" in one for one in said)


@pytest.mark.parametrize("size", [2, 4])
def test_over_planned_collectives_they_are_the_same_and_move_no_more(size):
    said = finished("dear_ranks.py", "apart", size)
    assert all("wire done" in one for one in said)
