import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import psutil
import pytest

from ccctl import artifacts
from ccctl.commands.bench import _judge, _sizes
from ccctl.errors import FoundProblem, UsageError


@pytest.fixture
def folder(schedule, samples, tmp_path):
    """Where ccctl runs: a schedule on four ranks, a program on two, a profile of two."""
    artifacts.write(str(tmp_path / "schedule.json"), "schedule", schedule)
    artifacts.write(str(tmp_path / "program.json"), "program", samples["program"])
    artifacts.write(str(tmp_path / "profile.json"), "profile", samples["profile"])
    return tmp_path


@pytest.mark.mpi
def test_rows_have_the_keys_of_the_design_and_nothing_is_wrong(run_ccctl, folder):
    done = run_ccctl(
        "bench", "schedule.json", "-b", 16, "-e", "256K", "-f", 128, "--iters", 3, "--vs", "mpi", "--json"
    )
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["rows"]
    assert [row["size_bytes"] for row in rows] == [16, 2048, 262144]
    for row in rows:
        assert row.keys() >= {"collective", "time_us", "p50_us", "p99_us", "algbw_gbs", "busbw_gbs", "peers"}
        assert row["wrong"] == row["in_place"]["wrong"] == 0
        assert row["predicted_us"] > 0
        assert row["peers"]["mpi"] > 0
        assert row["busbw_gbs"] == pytest.approx(row["algbw_gbs"] * 3 / 4)


@pytest.mark.mpi
def test_the_report_is_written_and_the_table_drawn(run_ccctl, folder):
    done = run_ccctl("bench", "program.json", "-b", "1K", "-e", "1K", "-d", "double", "-o", "report.json")
    assert done.returncode == 0, done.stderr
    assert "#wrong" in done.stdout
    report = artifacts.read(str(folder / "report.json"), "report").body
    (row,) = report.rows
    assert (row.dtype, row.count, row.size_bytes, row.predicted_s, row.peers) == (
        "float64",
        128,
        1024,
        None,
        {},
    )
    assert row.out_of_place.wrong == row.in_place.wrong == 0


WRONG = {
    "sizes that are none": (["schedule.json", "-b", "many"], "-b: expected a size"),
    "sizes that run backwards": (["schedule.json", "-b", "1M", "-e", "1K"], "-b 1M is larger than -e 1K"),
    "a type that is not known": (["schedule.json", "-d", "half"], "'half'"),
    "an operator that is not known": (["schedule.json", "--op", "xor"], "'xor'"),
    "a peer that is not known": (["schedule.json", "--vs", "mpi,gloo"], "--vs: expected mpi, found 'gloo'"),
    "a placement that is not known": (["schedule.json", "--placement", "up"], "--placement: expected out"),
    "more ranks than the artifact has": (["schedule.json", "-n", "5"], "-n asks for 5 ranks"),
    "a profile of other ranks": (["schedule.json", "--profile", "profile.json"], "profile.json has 2"),
    "a profile for a program": (["program.json", "--profile", "profile.json"], "--profile times a schedule"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_request_is_refused_before_any_rank_starts(run_ccctl, folder, name):
    arguments, said = WRONG[name]
    done = run_ccctl("bench", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


@pytest.mark.mpi
def test_a_world_of_one_is_refused_when_more_was_asked(run_ccctl, folder):
    done = run_ccctl("bench", "schedule.json", OMPI_COMM_WORLD_SIZE="1", OMPI_COMM_WORLD_RANK="0")
    assert (done.returncode, done.stdout) == (2, "")
    assert "4 ranks" in done.stderr
    assert "world of 1" in done.stderr


def test_a_program_that_is_wrong_is_not_run(run_ccctl, samples, folder):
    wrong = replace(samples["program"], dst_slot=samples["program"].dst_slot + 7)
    artifacts.write(str(folder / "wrong.json"), "program", wrong)
    done = run_ccctl("bench", "wrong.json")
    assert done.returncode == 65
    assert "rank 1 threadblock 0 step 0 (r) writes o[7:8]" in done.stderr


def test_a_wrong_element_is_a_problem_that_names_size_and_placement(samples):
    (row,) = samples["report"].rows
    _judge(samples["report"])
    wrong = replace(row, in_place=replace(row.out_of_place, wrong=3))
    with pytest.raises(FoundProblem, match="all_reduce of 1024 bytes, in place: 3 wrong elements"):
        _judge(replace(samples["report"], rows=(wrong,)))


def test_sizes_step_as_in_nccl_tests():
    assert _sizes("8", "128", 2, None) == (8, 16, 32, 64, 128)
    assert _sizes("1K", "3K", 2, "1K") == (1024, 2048, 3072)
    with pytest.raises(UsageError, match="-i"):
        _sizes("1K", "3K", 2, "0")


@pytest.mark.mpi
def test_a_killed_rank_ends_the_command_and_is_named(folder):
    command = [
        sys.executable,
        "-P",
        "-m",
        "ccctl",
        "bench",
        "schedule.json",
        "-e",
        "8K",
        "--iters",
        "1000000",
    ]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder
    ) as started:
        workers = _workers(started.pid, 4)
        scratch = workers[2].environ()["CCCTL_SCRATCH"]
        workers[2].kill()
        killed_s = time.monotonic()
        out, said = started.communicate(timeout=60)
    assert time.monotonic() - killed_s < 10
    assert (started.returncode, out) == (1, ""), said
    assert f"rank 2 (host {os.uname().nodename}, pid {workers[2].pid})" in said
    assert signal.Signals.SIGKILL.name in said
    assert not os.path.exists(scratch)  # noqa: PTH110 - a string from an environment
    _, alive = psutil.wait_procs(workers.values(), timeout=5)
    assert alive == []


def _workers(pid, ranks):
    """The command's workers by rank, once all of them are inside MPI and busy."""
    deadline_s = time.monotonic() + 60
    found = {}
    while time.monotonic() < deadline_s:
        found = {}
        for child in psutil.Process(pid).children(recursive=True):
            try:
                if "ccctl.worker" in child.cmdline() and sum(child.cpu_times()[:2]) > 1:
                    found[int(child.environ()["OMPI_COMM_WORLD_RANK"])] = child
            except (psutil.Error, KeyError):
                continue
        if len(found) == ranks:
            return found
        time.sleep(0.05)
    raise AssertionError(f"only ranks {sorted(found)} came to work")
