"""`ccctl synth --hosts`: attempts are made by ranks, and the schedule is the one of this machine alone."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from launched import left_processes
from limits import HANG_S

from exec.launcher.run import World
from exec.launcher.starters import mpirun

# Attempts that take long enough to be handed out, and many such.
SLOW = ("--network", "mesh:6x6", "--bandwidth", "50GB/s", "--alpha", "0.5us", "--size", "4M")
LONG = ("--network", "mesh:8x8", "--bandwidth", "50GB/s", "--alpha", "0.5us", "--size", "64M")
QUICK = ("--network", "mesh:3x3", "--bandwidth", "50GB/s", "--alpha", "0.5us")
# Quick attempts that are estimated to take long, and so are handed out as well.
MANY = (*QUICK, "--collective", "broadcast")


def body(path):
    return json.loads(Path(path).read_text())["body"]


# The sweep below hands out the attempts at its largest size, which are these.
@pytest.mark.long
@pytest.mark.mpi
def test_the_schedule_is_the_same_whatever_makes_the_attempts(run_ccctl, tmp_path):
    for name, how in {"alone": ("--jobs", 1), "ranks": ("--hosts", "localhost:2")}.items():
        made = run_ccctl("synth", *MANY, "--size", "4M", *how, "-o", f"{name}.json")
        assert made.returncode == 0, made.stderr
    assert body(tmp_path / "ranks.json") == body(tmp_path / "alone.json")


@pytest.mark.mpi
def test_a_sweep_is_the_same(run_ccctl, tmp_path):
    (tmp_path / "hosts").write_text("localhost slots=2\n")
    for name, how in {"alone": ("--jobs", 1), "ranks": ("--hostfile", "hosts")}.items():
        made = run_ccctl("synth", *MANY, "--sizes", "4K:4M", "-f", 1024, *how, "-o", f"{name}.json")
        assert made.returncode == 0, made.stderr
        assert "had nothing to do" not in made.stderr
    assert body(tmp_path / "ranks.json") == body(tmp_path / "alone.json")


@pytest.mark.mpi
def test_a_time_limit_ends_the_attempts_of_the_ranks(run_ccctl, marked):
    made = run_ccctl("synth", *SLOW, "--hosts", "localhost:2", "--time-limit", 0.5, "--json", **marked)
    assert made.returncode == 0, made.stderr
    assert json.loads(made.stdout)["checked"] is True
    assert left_processes("=".join(*marked.items())) == []


def test_what_does_not_go_together_is_refused(run_ccctl):
    both = run_ccctl("synth", *QUICK, "--hosts", "a:2", "--jobs", 2)
    assert (both.returncode, "leave one out" in both.stderr) == (2, True)
    wrong = run_ccctl("synth", *QUICK, "--hosts", "a:no")
    assert (wrong.returncode, "--hosts" in wrong.stderr) == (2, True)


def test_hosts_of_the_environment_are_not_asked_for_attempts(run_ccctl):
    done = run_ccctl("synth", *QUICK, "--method", "greedy", "--json", CCCTL_HOSTS="elsewhere.invalid:2")
    assert done.returncode == 0, done.stderr


def test_a_schedule_that_one_process_finds_asks_no_host(run_ccctl):
    folded = ("--network", "torus:16x16x8", "--bandwidth", "50GB/s", "--alpha", "0.5us")
    done = run_ccctl("synth", *folded, "--hosts", "elsewhere.invalid:2")
    assert done.returncode == 0, done.stderr
    assert "the hosts had nothing to do" in done.stderr


def test_one_rank_more_hands_out():
    world = World(hosts="gpu[1-2]:4,login:1").with_manager()
    assert world.placed()[0] == 10
    assert [(one.host, one.slots) for one in world.placed()[1]] == [("gpu1", 5), ("gpu2", 4), ("login", 1)]
    assert World(3).with_manager() == World(4)


@pytest.fixture
def marked(tmp_path):
    """A variable by which the processes of a command are known."""
    return {"CCCTL_TEST_RUN": str(tmp_path)}


def started(tmp_path, marked, *how):
    line = [sys.executable, "-P", "-m", "ccctl", "synth", *LONG, *how, "-o", "never.json"]
    return subprocess.Popen(
        line, stderr=subprocess.PIPE, text=True, cwd=tmp_path, env={**os.environ, **marked}
    )


def ranks_at_work(pid, ranks):
    """The processes of the ranks by number, once they have begun with attempts."""
    deadline_s = time.monotonic() + 60
    while time.monotonic() < deadline_s:
        found = {}
        for process in psutil.Process(pid).children(recursive=True):
            try:
                if "exec.launcher.worker" in process.cmdline() and process.children():
                    found[int(mpirun_rank(process))] = process
            except (psutil.Error, StopIteration):
                continue
        if found.keys() >= ranks:
            return found
        time.sleep(0.2)
    raise AssertionError("no attempt was begun")


def mpirun_rank(process):
    variables = process.environ()
    return next(variables[name] for name in ("OMPI_COMM_WORLD_RANK", "PMI_RANK") if name in variables)


@pytest.mark.mpi
def test_a_rank_that_dies_is_named_and_nothing_is_left(tmp_path, marked):
    with started(tmp_path, marked, "--hosts", "localhost:2") as command:
        ranks = ranks_at_work(command.pid, {2})
        ranks[2].kill()
        _, said = command.communicate(timeout=HANG_S)
    assert command.returncode == 1, said
    assert f"rank 2 (host {os.uname().nodename}, pid {ranks[2].pid})" in said
    assert not (tmp_path / "never.json").exists()
    assert left_processes("=".join(*marked.items())) == []


@pytest.mark.long
@pytest.mark.mpi
def test_an_interrupt_ends_every_attempt(tmp_path, marked):
    with started(tmp_path, marked, "--hosts", "localhost:2") as command:
        ranks_at_work(command.pid, {1})
        command.send_signal(signal.SIGINT)
        _, said = command.communicate(timeout=HANG_S)
    assert command.returncode == 130, said
    assert left_processes("=".join(*marked.items())) == []


@pytest.mark.mpi
def test_a_host_that_cannot_be_reached_is_told(run_ccctl, tmp_path):
    if mpirun.find().kind != "openmpi":
        pytest.skip("asks Open MPI for its words")
    (tmp_path / "login").write_text("#!/bin/sh\necho no route to elsewhere.invalid >&2\nexit 1\n")
    (tmp_path / "login").chmod(0o755)
    login = {"PRTE_MCA_plm_ssh_agent": str(tmp_path / "login")}
    done = run_ccctl("synth", *QUICK, "--hosts", "elsewhere.invalid:2", **login)
    assert done.returncode == 69
    assert "mpirun: no route to elsewhere.invalid" in done.stderr
    assert "0 of 3 ranks started" in done.stderr
    assert "it did not reach elsewhere" in done.stderr


@pytest.mark.long
@pytest.mark.netns
@pytest.mark.mpi
def test_hosts_of_a_lab_make_the_attempts(run_ccctl, tmp_path):
    lab = f"search-{os.getpid()}"
    (tmp_path / "lab.toml").write_text(f'name = "{lab}"\nhosts = "h[1-3]"\nrate = "1Gbit/s"\n')
    synth = [sys.executable, "-P", "-m", "ccctl", "synth", *SLOW]
    try:
        made = run_ccctl("lab", "up", "lab.toml")
        assert made.returncode == 0, made.stderr
        traffic = ("--traffic", tmp_path / "traffic.json")
        words = [*synth, "--hosts", "h[1-3]", "-o", str(tmp_path / "lab.json")]
        done = run_ccctl("lab", "run", *traffic, "--", *words, CCCTL_LAB=lab)
        assert done.returncode == 0, done.stderr
    finally:
        gone = run_ccctl("lab", "down", CCCTL_LAB=lab)
    assert gone.returncode == 0, gone.stderr
    alone = run_ccctl("synth", *SLOW, "--jobs", 1, "-o", "alone.json")
    assert alone.returncode == 0, alone.stderr
    assert body(tmp_path / "lab.json") == body(tmp_path / "alone.json")
    # Results come back over the wires of the lab.
    carried = json.loads((tmp_path / "traffic.json").read_text())["hosts"]
    sent = [carried[host]["sent_bytes"] for host in ("h2", "h3")]
    # A host that other work slows down makes few of the attempts.
    assert sum(sent) > 200_000 and min(sent) > 10_000, carried
