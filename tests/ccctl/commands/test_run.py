import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from switch_programs import copied_first

from ccctl.artifacts import codec


@pytest.fixture
def folder(schedule, samples, tmp_path):
    """Make a working folder: an all_gather schedule for four ranks, a broadcast program for two, inputs."""
    codec.write(str(tmp_path / "gather.json"), "schedule", schedule)
    codec.write(str(tmp_path / "broadcast.json"), "program", samples["program"])
    for rank in range(4):
        np.save(tmp_path / f"in{rank}.npy", np.full(3, rank))
    return tmp_path


@pytest.mark.mpi
def test_a_file_for_each_rank_and_a_summary(run_ccctl, folder):
    done = run_ccctl("run", "gather.json", "--input", "in{rank}.npy", "-o", "out{rank}.npy", "--json")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["collective"], summary["ranks"], summary["dtype"]) == ("all_gather", 4, "int64")
    for rank in range(4):
        np.testing.assert_array_equal(np.load(folder / f"out{rank}.npy"), np.repeat(np.arange(4), 3))


@pytest.mark.mpi
def test_the_root_alone_has_an_input(run_ccctl, folder):
    np.save(folder / "root.npy", np.arange(5, dtype=np.int32))
    done = run_ccctl("run", "broadcast.json", "--input", "root.npy", "-o", "y.npy")
    assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(np.load(folder / "y.npy"), [np.arange(5)] * 2)


@pytest.mark.mpi
def test_a_program_in_the_chunk_language_takes_its_parameters(run_ccctl, folder):
    shutil.copy(Path(__file__).parents[3] / "examples" / "ring_allreduce.py", folder / "ring.py")
    rows = np.array([[3, 1, 2, 5], [1, 4, 2, 0]], dtype=np.float32)
    np.save(folder / "rows.npy", rows)
    done = run_ccctl("run", "ring.py", "-p", "ranks=2", "--input", "rows.npy", "-o", "y.npy", "--op", "max")
    assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(np.load(folder / "y.npy"), np.tile(rows.max(axis=0), (2, 1)))


def test_ranks_that_differ_are_named(run_ccctl, folder):
    np.save(folder / "in2.npy", np.zeros(4, np.int64))
    done = run_ccctl("run", "gather.json", "--input", "in{rank}.npy")
    assert done.returncode == 2
    assert "in2.npy: rank 2: expected 3 elements like rank 0, found 4" in done.stderr


@pytest.mark.mpi
def test_a_session_runs_other_collectives_and_checks_every_element(run_ccctl):
    words = ["run", "--adaptive", "-n", "2", "--size", "6K", "--iterations", "4", "--profile-every", "0"]
    done = run_ccctl(*words, "--json", "--collective", "broadcast@1")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["iterations"], summary["ranks"], summary["wrong"]) == (4, 2, 0)


@pytest.mark.parametrize("command", ["run", "bench"])
def test_a_program_for_switches_is_refused_before_ranks_start(command, run_ccctl, tmp_path):
    codec.write(str(tmp_path / "switch.json"), "program", copied_first(3))
    np.save(tmp_path / "x.npy", np.zeros((3, 6), np.float32))
    data = ("--input", "x.npy", "-o", "y.npy") if command == "run" else ()
    done = run_ccctl(command, "switch.json", *data)
    assert done.returncode == 2
    assert "switches sum and copy (NVLink SHARP), which an executor on CPUs cannot do" in done.stderr


def test_spare_hosts_that_cannot_be_read_are_refused(run_ccctl):
    done = run_ccctl("run", "--adaptive", "-n", "2", "--spare", "b[1")
    assert done.returncode == 2 and "--spare: " in done.stderr, done.stderr
