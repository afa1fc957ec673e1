import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from ccctl.artifacts import codec


@pytest.fixture
def folder(schedule, samples, tmp_path):
    """Make a working folder: an all_gather schedule for four ranks, a broadcast program for two, inputs."""
    codec.write(str(tmp_path / "gather.json"), "schedule", schedule)
    codec.write(str(tmp_path / "broadcast.json"), "program", samples["program"])
    np.save(tmp_path / "x.npy", np.arange(40, dtype=np.float32).reshape(4, 10))
    np.save(tmp_path / "complex.npy", np.zeros((4, 10), np.complex64))
    for rank in range(4):
        np.save(tmp_path / f"in{rank}.npy", np.full(3, rank))
    return tmp_path


@pytest.mark.mpi
def test_rows_in_rows_out(run_ccctl, folder):
    done = run_ccctl("run", "gather.json", "--input", "x.npy", "-o", "y.npy")
    assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(np.load(folder / "y.npy"), np.tile(np.arange(40, dtype=np.float32), (4, 1)))


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
    done = run_ccctl("run", "ring.py", "-p", "ranks=4", "--input", "x.npy", "-o", "y.npy", "--op", "max")
    assert done.returncode == 0, done.stderr
    rows = np.load(folder / "x.npy")
    np.testing.assert_array_equal(np.load(folder / "y.npy"), np.tile(rows.max(axis=0), (4, 1)))


WRONG = {
    "another number of rows": (["gather.json", "--input", "in0.npy"], 2, "in0.npy: expected 4 rows"),
    "a file of a rank that is missing": (
        ["gather.json", "--input", "no{rank}.npy"],
        66,
        "no0.npy: there is no",
    ),
    "a type that is not known": (
        ["gather.json", "--input", "complex.npy"],
        2,
        "complex.npy: rank 0: dtype: expected one of",
    ),
    "no .npy file": (["gather.json", "--input", "gather.json"], 65, "gather.json: expected a .npy file"),
    "an operator that is not known": (["gather.json", "--input", "x.npy", "--op", "xor"], 2, "'xor'"),
    "parameters of a schedule": (
        ["gather.json", "--input", "x.npy", "-p", "ranks=4"],
        2,
        "gather.json has no parameters",
    ),
    "another number of ranks": (["gather.json", "--input", "x.npy", "-n", "3"], 2, "-n asks for 3 ranks"),
    "no schedule": (["no.json", "--input", "x.npy"], 66, "no.json"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_request_is_refused_before_any_rank_starts(run_ccctl, folder, name):
    arguments, status, said = WRONG[name]
    done = run_ccctl("run", *arguments, "-o", "y.npy")
    assert done.returncode == status, done.stderr
    assert said in done.stderr
    assert not (folder / "y.npy").exists()


def test_ranks_that_differ_are_named(run_ccctl, folder):
    np.save(folder / "in2.npy", np.zeros(4, np.int64))
    done = run_ccctl("run", "gather.json", "--input", "in{rank}.npy")
    assert done.returncode == 2
    assert "in2.npy: rank 2: expected 3 elements like rank 0, found 4" in done.stderr


@pytest.mark.mpi
@pytest.mark.parametrize("collective", ["all_to_all", "broadcast@1"])
def test_a_session_runs_other_collectives_and_checks_every_element(run_ccctl, collective):
    words = ["run", "--adaptive", "-n", "3", "--size", "6K", "--iterations", "8", "--profile-every", "0"]
    done = run_ccctl(*words, "--json", "--collective", collective)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["iterations"], summary["ranks"], summary["wrong"]) == (8, 3, 0)


@pytest.mark.parametrize("words", [["--collective", "scatter"], ["--collective", "broadcast:0-1"]])
def test_a_collective_that_no_session_serves_is_refused(run_ccctl, words):
    done = run_ccctl("run", "--adaptive", "-n", "3", *words)
    assert done.returncode == 2 and "--adaptive runs one of" in done.stderr, done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--spare", "b", "plan.json"], "--spare goes with --adaptive"),
        (["--adaptive", "-n", "2", "--spare", "b[1"], "--spare: "),
    ],
)
def test_spare_hosts_are_refused_without_a_session_or_where_they_cannot_be_read(run_ccctl, words, said):
    done = run_ccctl("run", *words)
    assert done.returncode == 2 and said in done.stderr, done.stderr
