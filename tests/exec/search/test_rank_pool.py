"""The pool of ranks: the results of `ProcessPool`, whatever their number, and nothing left behind."""

import math
from pathlib import Path

import pytest
import searched
from launched import rank_tasks
from limits import HANG_S

from exec.errors import RankFailed
from exec.launcher.run import World, run_ranks
from probes.base.errors import UnavailableError

pytestmark = pytest.mark.mpi


@pytest.fixture(autouse=True)
def nothing_left(tmp_path, monkeypatch):
    yield from rank_tasks(tmp_path, monkeypatch, forked=True)


def run(task, arguments, ranks):
    path = [str(Path(searched.__file__).parent)]
    return run_ranks(f"searched:{task}", arguments, World(ranks), timeout_s=HANG_S, path=path)


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_every_task_has_its_result_under_its_number(ranks):
    numbers = range(12)
    found, processes, here = run("roots_of", numbers, ranks)
    assert found == [[math.sqrt(number) for number in numbers[start::2]] for start in (0, 1)]
    assert here == (ranks == 1)
    if ranks == 2:
        # One process for each of the two pools.
        assert processes == 2


def test_leaving_ends_what_was_begun_and_the_next_pool_begins_at_once():
    early, found = run("leaves_early", None, 3)
    assert early == {}
    assert found == {0: 0.0}


def test_what_a_task_raises_is_raised():
    with pytest.raises(RankFailed, match="ValueError"):
        run("raises", -1, 2)


def test_a_process_that_ends_before_its_work_is_told():
    with pytest.raises(UnavailableError, match=r"a worker of synth on \S+ ended before its work") as caught:
        run("loses_a_process", 3, 3)
    assert "Out of memory" in caught.value.hint
