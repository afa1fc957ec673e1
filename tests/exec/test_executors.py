"""Choice of the executor, by the request and by what is installed."""

import pytest

from exec.executors import executor_of, parse_device
from probes.base.errors import UnavailableError, UsageError


class Ranks:
    """A world in which other ranks say what they lack."""

    def __init__(self, *others):
        self.others = others

    def allgather(self, own):
        return [*self.others, own]


def no_gpu():
    try:
        executor_of(Ranks(), "cuda")
    except UnavailableError as error:
        return error.message
    return ""


@pytest.mark.skipif(not no_gpu(), reason="there is a GPU here")
def test_without_a_gpu_the_processors_are_used_or_it_is_refused():
    assert executor_of(Ranks(), "cpu") == "mpi"
    assert executor_of(Ranks(), "auto") == "mpi"
    with pytest.raises(UnavailableError, match="rank 0 has no GPU to use") as caught:
        executor_of(Ranks(), "cuda")
    assert "ccctl doctor" in caught.value.hint


def test_one_rank_without_a_gpu_is_named_on_all():
    with pytest.raises(UnavailableError, match="rank 1 has no GPU to use: its driver is too old"):
        executor_of(Ranks("", "its driver is too old"), "cuda")
    assert executor_of(Ranks("", "its driver is too old"), "auto") == "mpi"


def test_other_devices_are_refused():
    with pytest.raises(UsageError, match="expected cpu, cuda, auto, found 'tpu'"):
        parse_device("tpu")
