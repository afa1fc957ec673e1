"""Additions of commands to the launcher: flags in messages, mpirun's output, artifacts saved at the end."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from launched import MODULE, fake_mpirun, marked, rank_tasks
from limits import HANG_S

from ccctl.launching import World, by_default, run_ranks, world_of
from exec.launcher.nodeset import HostSlots
from exec.launcher.starters import mpirun
from probes.base.errors import UnavailableError, UsageError


@pytest.fixture(autouse=True)
def tasks(tmp_path, monkeypatch):
    yield from rank_tasks(tmp_path, monkeypatch)


@pytest.mark.mpi
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_ranks_end_with_the_command(tasks, number):
    command = subprocess.Popen([sys.executable, str(tasks), "says_nothing"], stderr=subprocess.DEVNULL)
    for _ in range(600):
        if len(list(marked(f"CCCTL_TEST_RUN={tasks.parent}"))) >= 4:
            break
        time.sleep(0.1)
    time.sleep(0.5)
    command.send_signal(number)
    assert command.wait(20) != 0


@pytest.mark.mpi
def test_a_rank_that_makes_its_folder_again_leaves_nothing_of_a_killed_command(tasks):
    """MPI does it in a rank that is still starting when another has removed the folder."""
    command = subprocess.Popen(
        [sys.executable, str(tasks), "makes_its_folder_again"], stderr=subprocess.DEVNULL
    )
    while not list(tasks.parent.glob("ccctl-*")) or len(list(marked(f"CCCTL_TEST_RUN={tasks.parent}"))) < 4:
        assert command.poll() is None
        time.sleep(0.1)
    time.sleep(2)
    command.kill()
    command.wait(20)


@pytest.mark.mpi
@pytest.mark.parametrize("processes", [2, 4])
def test_ranks_that_start_when_their_command_is_gone_leave_nothing(tasks, processes):
    """Killed when so many processes were there: the command, mpirun, and ranks that have not spoken yet."""
    command = subprocess.Popen([sys.executable, str(tasks), "says_nothing"], stderr=subprocess.DEVNULL)
    while len(list(marked(f"CCCTL_TEST_RUN={tasks.parent}"))) < processes:
        assert command.poll() is None
    command.kill()
    command.wait(20)
    # On a busy machine those that start take their time to find out.
    deadline_s = time.monotonic() + 60
    while list(marked(f"CCCTL_TEST_RUN={tasks.parent}")) and time.monotonic() < deadline_s:
        time.sleep(0.05)


@pytest.mark.mpi
def test_inside_mpirun_the_ranks_are_those_of_mpirun(tasks):
    launcher = mpirun.find()
    environment = mpirun.variables(3, str(tasks.parent), str(tasks.parent))
    command = mpirun.command(launcher, 2, (), [sys.executable, str(tasks), "total"])
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=HANG_S)
    assert (done.returncode, done.stdout.split()) == (0, ["1"]), done.stderr
    command = mpirun.command(launcher, 3, (), [sys.executable, str(tasks), "total"])
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=HANG_S)
    assert done.returncode != 0
    assert done.stderr.count("2 ranks are asked for (-n 2), but this runs inside a world of 3") == 1
    assert list(tasks.parent.glob("sm_segment*")) == []


@pytest.mark.mpi
@pytest.mark.parametrize("end", ["the time limit", "SIGTERM", "a rank killed"])
def test_inside_mpirun_what_all_ranks_gave_away_is_rescued_whatever_ends_the_job(tasks, end):
    # A busy machine may not even have started the ranks within the shortest limit.
    for limit_s in (3, 20, 100) if end == "the time limit" else (HANG_S,):
        (tasks.parent / "kept").unlink(missing_ok=True)
        began, status, complained = _ended_by(end, tasks, limit_s)
        if began:
            break
    why = f"not done within {limit_s} s" if end == "the time limit" else "SIGTERM"
    assert (tasks.parent / "kept").read_text() == f"[0, 1, 2] {why}\n", complained
    assert status != 0


def _ended_by(end, tasks, limit_s):
    """(whether all ranks got as far as to wait, status, what was said) of a job of three ranks."""
    environment = mpirun.variables(3, str(tasks.parent), str(tasks.parent))
    script = [sys.executable, str(tasks), "gives_away_and_waits", "3", str(limit_s)]
    command = mpirun.command(mpirun.find(), 3, (), script)
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as job:
        began = job.stdout.readline() == "waiting\n"
        if end == "SIGTERM":
            job.terminate()
        elif end == "a rank killed":
            ranks = [pid for pid in marked(f"CCCTL_TEST_RUN={tasks.parent}") if _rank_of(pid) == "2"]
            os.kill(ranks[0], signal.SIGKILL)
        complained = job.communicate(timeout=HANG_S)[1]
        return began, job.returncode, complained


def _rank_of(pid):
    words = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
    return dict(word.split("=", 1) for word in words if "=" in word).get("OMPI_COMM_WORLD_RANK")


def test_a_hostfile_comes_before_the_hosts_of_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("CCCTL_HOSTS", "a:2,b")
    (tmp_path / "hosts").write_text("c slots=5\n")
    assert world_of(None, "a:2,b", str(tmp_path / "hosts")).placed() == (5, (HostSlots("c", 5),))


@pytest.fixture
def of_job(monkeypatch):
    """The variables of a batch script on three nodes."""
    monkeypatch.delenv("CCCTL_HOSTS", raising=False)
    monkeypatch.setenv("SLURM_JOB_NODELIST", "gpu[1-2],login1")
    monkeypatch.setenv("SLURM_TASKS_PER_NODE", "2(x2),1")


def test_a_job_of_slurm_gives_its_nodes_where_no_host_is_named(of_job):
    nodes = (HostSlots("gpu1", 2), HostSlots("gpu2", 2), HostSlots("login1", 1))
    assert world_of(None, None, None).placed() == (5, nodes)
    assert world_of(3, None, None).placed() == (3, nodes)
    assert by_default(world_of(None, None, None).hosts)
    assert world_of(None, "gpu2:4", None).placed() == (4, (HostSlots("gpu2", 4),))
    assert not by_default("gpu2:4")


@pytest.mark.parametrize("command", [["profile"], ["profile", "-n", "2"], ["detect"]])
def test_tasks_of_srun_without_pmi_do_not_become_worlds_of_their_own(run_ccctl, of_job, command):
    done = run_ccctl(*command, SLURM_STEP_NUM_TASKS="4")
    assert (done.returncode, done.stdout) == (69, "")
    assert "srun started 4 tasks without PMI" in done.stderr
    assert "srun --mpi=pmix" in done.stderr


def test_an_adaptive_run_inside_srun_says_that_it_starts_its_own_ranks(run_ccctl):
    done = run_ccctl("run", "--adaptive", PMIX_RANK="1", SLURM_STEP_NUM_TASKS="4")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--adaptive starts its own ranks" in done.stderr


def test_inside_mpirun_the_time_limit_holds_while_mpi_starts(tasks):
    (tasks.parent / "mpi4py").mkdir()
    (tasks.parent / "mpi4py" / "__init__.py").write_text("import time\ntime.sleep(600)\n")
    environment = os.environ | {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "0"}
    command = [sys.executable, str(tasks), "total", "2", "1"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=HANG_S)
    assert done.returncode == -signal.SIGKILL
    first, second = done.stderr.splitlines()
    assert first.startswith("ccctl: rank 0 (host ") and first.endswith(" was at: starting MPI")
    assert second == "ccctl: not done within 1 s"
    assert (tasks.parent / "kept").read_text() == "[] not done within 1 s\n"


@pytest.mark.parametrize(
    ("world", "said", "hint"),
    [
        (
            World(),
            "the number of ranks is missing",
            "Give -n 4, or --hosts gpu[01-08]:4, or run inside mpirun.",
        ),
        (World(0), "-n: expected at least 1 rank, found 0", ""),
        (
            World(4, "a:2,b"),
            "-n 4, but the hosts have 3 slots",
            "Slots follow the name: gpu[01-08]:4; in Slurm they are the tasks.",
        ),
        (World(1, "a", "b"), "--hosts a and --hostfile b both say where the ranks run: give one of them", ""),
        (World(None, "a["), "--hosts: a [ without its ] in 'a['", ""),
    ],
)
def test_what_is_wrong_with_a_world_is_told_by_its_flags(world, said, hint):
    with pytest.raises(UsageError) as caught:
        run_ranks(f"{MODULE}:total", None, world, label="test")
    assert (caught.value.message, caught.value.hint) == (said, hint)


def test_an_mpirun_that_ends_at_once_shows_what_it_said(monkeypatch, tmp_path, capsys):
    fake_mpirun(tmp_path, monkeypatch, "echo no slots here; exit 7")
    with pytest.raises(UnavailableError) as caught:
        run_ranks(f"{MODULE}:total", None, World(2), label="test")
    assert capsys.readouterr().err == "mpirun: no slots here\n"
    assert caught.value.__notes__ == []
