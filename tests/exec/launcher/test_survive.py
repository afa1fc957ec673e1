"""Ranks without MPI: they exchange, hand over a result, and go on when some of them die."""

import json
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from limits import HANG_S
from survivors import MODULE, PROGRAM, survivor_tasks

from exec.errors import RankFailed
from exec.launcher.run import World, run_ranks
from exec.launcher.starters.remote import remote_shell
from probes.base.errors import DataError, LostRankError, TimeoutExpired, UnavailableError, UsageError

# As ssh: LOGIN HOST COMMAND; the other host is this one.
LOGIN = '#!/bin/sh\nshift\nexec sh -c "$*"\n'


@pytest.fixture(autouse=True)
def tasks(tmp_path, monkeypatch, request):
    yield from survivor_tasks(tmp_path, monkeypatch, forked=not request.node.get_closest_marker("new_python"))


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """Two hosts: this one with rank 0, and another with ranks 1 and 2, reached by a remote shell."""
    (tmp_path / "login").write_text(LOGIN)
    (tmp_path / "login").chmod(0o755)
    monkeypatch.setenv("PRTE_MCA_plm_ssh_agent", str(tmp_path / "login"))
    return World(hosts=f"{socket.gethostname()}:1,elsewhere.invalid:2")


def run(
    task,
    world=3,
    *,
    survive=True,
    timeout_s=HANG_S,
    keep=lambda piece: None,
    lost=None,
    rejoin=0,
    **arguments,
):
    return run_ranks(
        f"{MODULE}:{task}",
        arguments,
        World(world) if isinstance(world, int) else world,
        wires="sockets",
        survive=survive,
        rejoin=rejoin,
        timeout_s=timeout_s,
        keep=keep,
        on_lost=(lost if lost is not None else []).append,
        path=sys.path,
    )


@pytest.mark.new_python
@pytest.mark.parametrize("survive", [False, pytest.param(True, marks=pytest.mark.long)])
def test_ranks_start_and_exchange_without_mpi(survive, monkeypatch):
    monkeypatch.setattr("exec.launcher.starters.mpirun.find", pytest.fail)
    expected = [[b"%d of %d" % (turn, rank) for rank in range(3)] for turn in range(3)]
    assert run("exchanges", survive=survive) == expected


@pytest.mark.parametrize("ranks", [1, pytest.param(4, marks=pytest.mark.long)])
def test_they_are_a_group(ranks):
    assert run("gathers", ranks, survive=False) == (ranks, list(range(ranks)))


@pytest.mark.new_python
def test_ranks_of_another_host_are_reached_by_a_remote_shell(elsewhere):
    assert run("gathers", elsewhere) == (3, [0, 1, 2])


@pytest.mark.parametrize(("how", "said"), [(int(signal.SIGKILL), "was killed (SIGKILL)"), (0, "status 3")])
def test_the_others_go_on_without_a_rank_that_dies(how, said):
    lost, kept = [], []
    value = run("dies", dying=[1], how=how, lost=lost, keep=kept.append)
    rank, missed, hows, given = value
    assert (rank, missed, given) == (0, [1], [b"0", b"", b"2"])
    assert said in hows[0]
    assert [(one.rank, one.how) for one in lost] == [(1, hows[0])]
    assert sorted(kept) == [("here", 0), ("here", 1), ("here", 2)]


def test_a_lost_rank_is_started_again_on_its_host_and_what_it_raises_before_it_is_let_in_is_no_matter(
    elsewhere,
):
    lost = []
    assert run("comes_back", elsewhere, rejoin=2, lost=lost) == (0, 2)
    assert [(one.rank, one.start) for one in lost] == [(1, 0)]


@pytest.mark.new_python
def test_the_end_of_a_run_does_not_wait_for_a_rank_that_is_not_let_in():
    pids = []
    assert run("waits_outside", 2, rejoin=1, keep=pids.append) == 0
    assert pids and not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_the_value_is_that_of_the_lowest_rank_left_that_has_one():
    rank, missed, _, given = run("dies", 4, dying=[0, 3], silent=[1], how=int(signal.SIGKILL))
    assert (rank, missed, given) == (2, [0, 3], [b"", b"1", b"2", b""])
    assert run("dies", 2, dying=[0], silent=[1], how=int(signal.SIGKILL)) is None


def test_without_leave_to_survive_a_death_ends_the_run_and_is_named():
    with pytest.raises(LostRankError) as caught:
        run("waits_for_the_dead", survive=False)
    first, *_ = caught.value.message.splitlines()
    assert first.startswith("rank 1 (host ")
    assert "was killed (SIGKILL)" in first


def test_where_no_rank_is_left_each_is_named():
    with pytest.raises(LostRankError) as caught:
        run("dies", 2, dying=[0, 1], how=int(signal.SIGKILL))
    first, *others = caught.value.message.splitlines()
    assert first == "no rank is left"
    assert sorted(line[:7] for line in others) == ["rank 0 ", "rank 1 "]


@pytest.mark.new_python
def test_a_stopped_rank_that_is_fenced_does_nothing_when_it_is_continued():
    lost = []
    how, runs, split = run("fences", agent=False, lost=lost)
    assert how.endswith("was fenced by rank 0")
    assert (runs, split) == (False, False)
    assert [one.rank for one in lost] == [1]


@pytest.mark.new_python
def test_a_rank_whose_agent_is_out_of_reach_is_fenced_by_hanging_up(elsewhere):
    how, runs, _ = run("fences", elsewhere, agent=True)
    assert how.endswith("was fenced by rank 0")
    assert not runs


@pytest.mark.new_python
def test_a_fence_ends_a_run_that_does_not_survive():
    with pytest.raises(LostRankError, match=r"^rank 1 .* was fenced by rank 0"):
        run("fences", 2, agent=False, survive=False)


def test_what_a_rank_raises_ends_the_run_nevertheless():
    with pytest.raises(DataError, match=r"plan\.json: wrong"):
        run("refuses", 2)


def test_what_a_callback_raises_ends_the_run():
    with pytest.raises(RankFailed, match="ValueError: on purpose, without 1"):
        run("hears_and_fails", 2)


@pytest.mark.new_python
def test_a_rank_that_stops_for_long_is_lost_and_killed(monkeypatch):
    monkeypatch.setattr("exec.launcher.watchdog.SILENCE_S", 1.0)
    lost, pids = [], []
    with pytest.raises(TimeoutExpired):
        run("never_ends", 2, stopped=[1], timeout_s=4, lost=lost, keep=pids.append)
    assert [one.rank for one in lost] == [1]
    assert "was stopped (SIGSTOP)" in lost[0].how


def test_a_timeout_says_who_waits_for_whom():
    # On a busy machine ranks may not be up within a limit.
    for limit_s in (2.5, 10, 60):
        with pytest.raises(TimeoutExpired) as caught:
            run("never_ends", 2, stopped=[], timeout_s=limit_s)
        if "waited" in caught.value.message:
            break
    assert "rank 0 waited for rank 1: an endless step" in caught.value.message


@pytest.mark.new_python
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_signal_to_the_command_leaves_nothing(number, tmp_path, elsewhere):
    """A rank that was stopped does not see that the command is gone: its agent does."""
    ask = ["never_ends", {"stopped": [0, 2]}, {"hosts": elsewhere.hosts, "survive": True}, ""]
    command = [sys.executable, "-P", "-c", PROGRAM, json.dumps(ask)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        pids = [int(process.stdout.readline().split()[1]) for _ in range(3)]
        time.sleep(0.7)
        process.send_signal(number)
        process.stdout.read()
    assert process.returncode in (-number, 128 + number, 1)
    deadline_s = time.monotonic() + 60
    left = [Path(f"/proc/{pid}") for pid in pids]
    # After a kill -9 of the command, its remains go a moment later.
    while (left or list(tmp_path.glob("ccctl-*"))) and time.monotonic() < deadline_s:
        left = [path for path in left if path.exists()]
        time.sleep(0.05)
    assert left == []


def test_a_remote_shell_that_fails_is_told(tmp_path, monkeypatch):
    (tmp_path / "login").write_text("#!/bin/sh\necho no such host >&2\nexit 255\n")
    (tmp_path / "login").chmod(0o755)
    monkeypatch.setenv("PRTE_MCA_plm_ssh_agent", str(tmp_path / "login"))
    said = r"missing: 0, 1; .*/login for host elsewhere\.invalid ended with status 255"
    with pytest.raises(UnavailableError, match=said) as told:
        run("gathers", World(hosts="elsewhere.invalid:2"))
    assert told.value.__notes__ == ["ranks: no such host"]


@pytest.mark.new_python
def test_the_key_is_on_no_command_line_of_a_remote_shell(tmp_path, monkeypatch, elsewhere):
    key = bytes(range(100, 132))
    monkeypatch.setattr("exec.launcher.session.secrets.token_bytes", lambda size: key[:size])
    (tmp_path / "login").write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/said\nexit 1\n')
    with pytest.raises(UnavailableError):
        run("gathers", elsewhere)
    said = (tmp_path / "said").read_text()
    assert "elsewhere.invalid" in said
    assert key.hex() not in said


@pytest.mark.new_python
def test_ranks_of_other_hosts_are_told_what_carries_data(tmp_path, monkeypatch, elsewhere):
    chosen = {"CCCTL_WIRES": "tcp", "UCX_TLS": "rc"}
    for name, word in chosen.items():
        monkeypatch.setenv(name, word)
    forgets = "".join(f" -u {name}" for name in chosen)
    (tmp_path / "login").write_text(LOGIN.replace("exec sh", f"exec env{forgets} sh"))
    assert run("has_been_told", elsewhere, names=list(chosen)) == [list(chosen.values())] * 3


EARLY = {
    "before it is heard of": (
        "import os, signal, sys\n"
        "if os.environ.get('CCCTL_RANK') == '1' and 'exec.launcher.worker' in sys.orig_argv:\n"
        "    DIE\n"
    ),
    "while they connect": (
        "import sys\n"
        "if 'exec.launcher.worker' in sys.orig_argv:\n"
        "    import exec.sockets.group, os, signal\n"
        "    join = exec.sockets.group.join\n"
        "    def dies(rank, *arguments):\n"
        "        if rank == 1:\n"
        "            DIE\n"
        "        return join(rank, *arguments)\n"
        "    exec.sockets.group.join = dies\n"
    ),
}
DIES = "os.kill(os.getpid(), signal.SIGKILL)"


@pytest.mark.new_python
@pytest.mark.parametrize(("when", "survive"), [*zip(EARLY, (True, False), strict=True)])
def test_a_rank_that_always_dies_at_the_start_ends_the_run_and_is_named(when, survive, tasks, caplog):
    (tasks.parent / "sitecustomize.py").write_text(EARLY[when].replace("DIE", DIES))
    with pytest.raises(LostRankError, match=r"^rank 1 \(host .* was killed \(SIGKILL\)"):
        run("gathers", 2, survive=survive)
    again = [each for each in caplog.messages if "all are started again" in each]
    assert len(again) == (2 if survive else 0)


@pytest.mark.new_python
@pytest.mark.parametrize("when", EARLY)
def test_a_run_that_survives_starts_anew_where_a_rank_dies_before_all_are_connected(when, tasks, caplog):
    mark = tasks.parent / "died"
    once = f"os.path.exists({str(mark)!r}) or (open({str(mark)!r}, 'w').close(), {DIES})"
    (tasks.parent / "sitecustomize.py").write_text(EARLY[when].replace("DIE", once))
    lost = []
    assert run("gathers", 2, lost=lost) == (2, [0, 1]) and mark.exists() and not lost
    assert ["all are started again" in each for each in caplog.messages].count(True) == 1


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"PRTE_MCA_plm_ssh_agent": "no-such-shell : sh -e"}, ["sh", "-e"]),
        ({"HYDRA_LAUNCHER_EXEC": "sh"}, ["sh"]),
        ({"PRTE_MCA_plm_ssh_agent": "sh", "HYDRA_LAUNCHER_EXEC": "bash"}, ["sh"]),
    ],
)
def test_the_remote_shell_is_the_one_that_mpirun_would_use(given, words, monkeypatch):
    for name in ("PRTE_MCA_plm_ssh_agent", "HYDRA_LAUNCHER_EXEC"):
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    path, *options = remote_shell()
    assert [Path(path).name, *options] == words


def test_without_a_remote_shell_the_message_says_what_to_do(monkeypatch):
    monkeypatch.setenv("PRTE_MCA_plm_ssh_agent", "no-such-shell")
    with pytest.raises(UnavailableError, match="no remote shell is found") as caught:
        run("gathers", World(hosts="elsewhere.invalid:2"))
    assert "PRTE_MCA_plm_ssh_agent" in caught.value.hint


def test_what_cannot_be_is_refused(monkeypatch):
    with pytest.raises(UsageError, match="survive=True: MPI ends all ranks"):
        run_ranks(f"{MODULE}:gathers", None, World(2), survive=True)
    with pytest.raises(UsageError, match="rejoin: ranks are started again only"):
        run("gathers", 2, survive=False, rejoin=1)
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    with pytest.raises(UsageError, match="wires='sockets' starts ranks of its own"):
        run("gathers", 2)
