"""Rendezvous of ranks of mpirun and srun: by their variables, and for real by mpirun."""

import contextlib
import importlib.util
import os
import secrets
import socket
import subprocess
import sys
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from drawn_examples import chessboard
from limits import HANG_S

from exec.launcher.starters import mpirun
from exec.training.backend.launcher_rendezvous import Rendezvous, ask_rank_0, launched, tell_others
from probes.base.errors import UnavailableError

OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "1",
    "OMPI_COMM_WORLD_SIZE": "2",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    "PMIX_NAMESPACE": "prterun-a-17@1",
}
MPICH = {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALNRANKS": "2"}
SLURM = {
    "SLURM_PROCID": "3",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_STEP_NODELIST": "gpu[07-08]",
    "SLURM_JOB_ID": "41",
    "SLURM_STEP_ID": "0",
}
STORE = {"MASTER_ADDR": "fd00::1", "MASTER_PORT": "4711"}
SECRET = {"CCCTL_SECRET": "drawn by chance"}
# An address of the loopback, where ranks meet as between hosts.
OTHER_HOST = "127.0.0.2"


def is_free(port):
    """Return whether nobody listens at a port, on any address."""
    with socket.socket() as tried:
        try:
            tried.bind(("", port))
        except OSError:
            return False
    return True


@pytest.fixture
def apart():
    """Two ranks that meet as between hosts, at ports that nobody holds: another suite may run here too."""
    while True:
        found = Rendezvous(1, 2, OTHER_HOST, "41/0", secret=secrets.token_bytes(16))
        if len({*found.ports}) == len(found.ports) and all(map(is_free, found.ports)):
            return found


PORT = 47_110


def test_ranks_of_one_host_meet_there_by_the_name_of_their_job():
    found = launched(OPEN_MPI)
    assert (found.rank, found.size, found.host, found.port) == (1, 2, "127.0.0.1", None)
    assert launched({**OPEN_MPI, "OMPI_COMM_WORLD_RANK": "0"}).key == found.key
    assert launched({**OPEN_MPI, "PMIX_NAMESPACE": "prterun-a-18@1"}).key != found.key
    assert launched({**MPICH, "MASTER_PORT": "4711"}) == Rendezvous(1, 2, "127.0.0.1", "", 4711)


def test_ranks_of_a_step_of_slurm_meet_at_its_first_host():
    found = launched({**SLURM, **SECRET})
    assert (found.rank, found.size, found.host) == (3, 4, "gpu07")
    assert set(launched({**SLURM, **SECRET, "SLURM_STEP_ID": "1"}).ports).isdisjoint(found.ports)
    assert set(launched({**SLURM, "CCCTL_SECRET": "another"}).ports).isdisjoint(found.ports)
    assert launched({**SLURM, "SLURM_STEP_NUM_NODES": "1"}).host == "127.0.0.1"


def test_what_mpirun_says_counts_within_a_step_of_slurm():
    inherited = {**SLURM, "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"}
    assert launched({**inherited, **OPEN_MPI}) == launched(OPEN_MPI)


def test_an_address_that_is_given_comes_first():
    found = launched({**SLURM, **STORE})
    assert found == Rendezvous(3, 4, "fd00::1", "41/0", 4711)
    assert found.url == "tcp://[fd00::1]:4711"
    assert launched({**OPEN_MPI, **STORE, "RANK": "0", "WORLD_SIZE": "1"}) is None


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({}, "no launcher"),
        ({**OPEN_MPI, "OMPI_COMM_WORLD_LOCAL_SIZE": "1"}, "several hosts"),
        (MPICH, "from those of another"),
        (SLURM, "meet on gpu07, where nothing distinguishes them from strangers"),
        (
            {**OPEN_MPI, "MASTER_ADDR": "gpu07"},
            "meet on gpu07, where nothing distinguishes them from strangers",
        ),
    ],
)
def test_what_nothing_tells_is_refused(variables, words):
    with pytest.raises(UnavailableError, match=words):
        launched(variables)


def met(found, size=2, limit_s=HANG_S):
    """Return what rank 0 publishes as ``PORT`` to each other rank, or the error raised instead."""
    told, errors = {}, {}

    def note(rank, call):
        try:
            told[rank] = call()
        except UnavailableError as error:
            errors[rank] = error

    def tell():
        return tell_others(replace(found, rank=0, size=size), PORT, limit_s)

    calls = {0: tell}
    for rank in range(1, size):
        calls[rank] = partial(ask_rank_0, replace(found, rank=rank, size=size), limit_s)
    threads = [threading.Thread(target=note, args=entry) for entry in calls.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return told, errors


def test_the_ranks_of_a_host_meet_in_a_folder_of_their_user_alone(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    one, other = Rendezvous(1, 2, "127.0.0.1", "a"), Rendezvous(1, 2, "127.0.0.1", "b")
    folder = tmp_path / f"ccctl-rendezvous-{os.geteuid()}"
    # Left by a job of this name that was killed.
    folder.mkdir(mode=0o755)
    monkeypatch.chdir(folder)
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(one.key.hex()[:32])
    for found in (one, other):
        assert met(found, 4) == ({0: None, 1: PORT, 2: PORT, 3: PORT}, {})
    assert folder.stat().st_mode & 0o777 == 0o700
    assert list(folder.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to act as two users")
def test_a_folder_that_another_user_has_planted_is_no_place_to_meet(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    planted = tmp_path / f"ccctl-rendezvous-{os.geteuid()}"
    planted.mkdir()
    os.chown(planted, 54321, 54321)
    told, errors = met(Rendezvous(1, 2, "127.0.0.1", "a"))
    assert told == {} and all("found one of user 54321" in str(error) for error in errors.values())


class Stranger:
    """Listens where ranks may meet, says something to who connects, and keeps what it is told."""

    def __init__(self, address, said):
        self.said, self.heard = said, []
        self.end = socket.create_server(address)
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()

    def serve(self):
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            while True:
                guest = stack.enter_context(self.end.accept()[0])
                guest.settimeout(0.2)
                heard = b""
                with contextlib.suppress(OSError):
                    guest.sendall(self.said)
                    while piece := guest.recv(1 << 16):
                        heard += piece
                self.heard.append(heard)

    def close(self):
        self.end.shutdown(socket.SHUT_RDWR)
        self.thread.join()
        self.end.close()


# Nothing, what a store of PyTorch might say, and the first words of a rank 0 with its proof guessed.
SAID = {
    "nothing": b"",
    "zeros": bytes(8),
    "a question": b"ccctl ranks 1\n" + bytes(32),
    "a proof": b"ccctl ranks 1\n" + bytes(64),
}


@pytest.mark.parametrize(("words", "address"), chessboard(SAID, [OTHER_HOST, ""]))
def test_ranks_pass_by_strangers_at_their_ports_and_tell_them_nothing(monkeypatch, apart, words, address):
    monkeypatch.setattr("exec.sockets.reach._ANSWERED_S", 1)
    said = SAID[words]
    with contextlib.ExitStack() as stack:
        strangers = [Stranger((address, port), said) for port in apart.ports[:3]]
        for one in strangers:
            stack.callback(one.close)
        assert met(apart, 3) == ({0: None, 1: PORT, 2: PORT}, {})
    answered = said.startswith(b"ccctl")
    heard = [one for stranger in strangers for one in stranger.heard]
    # A nonce and a MAC over it at most: no rank, no port, no name of the job.
    assert heard and all(len(one) in ({0, 64} if answered else {0}) for one in heard)


def test_where_strangers_hold_every_port_nobody_is_met(monkeypatch, apart):
    monkeypatch.setattr("exec.sockets.reach._ANSWERED_S", 0.5)
    with contextlib.ExitStack() as stack:
        strangers = [Stranger((OTHER_HOST, port), SAID["a proof"]) for port in apart.ports]
        for one in strangers:
            stack.callback(one.close)
        told, errors = met(apart, limit_s=1)
    assert told == {}
    assert "others listen at every port" in str(errors[0]) and "no rank 0 of this job" in str(errors[1])
    assert all(len(one) <= 64 for stranger in strangers for one in stranger.heard)


def test_ranks_with_another_secret_do_not_meet(monkeypatch, apart):
    monkeypatch.setattr("exec.sockets.reach._ATTEMPTS", 2)
    found = replace(apart, port=apart.ports[0])
    wrong = replace(found, secret=b"another")
    refused = []

    def tell():
        with pytest.raises(UnavailableError, match=r"ranks \[1\] of 2 have not come"):
            tell_others(replace(found, rank=0), PORT, 3)
        refused.append(0)

    thread = threading.Thread(target=tell)
    thread.start()
    with pytest.raises(UnavailableError, match="no rank 0 of this job"):
        ask_rank_0(wrong, 1)
    thread.join()
    assert refused == [0]


@pytest.mark.mpi
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_a_script_that_mpirun_starts_reduces(tmp_path):
    script = Path(__file__).parents[3] / "helpers" / "torch_ranks.py"
    launcher = mpirun.find()
    line = mpirun.command(launcher, 2, (), [sys.executable, str(script), "launched"])
    told = mpirun.variables(2, str(tmp_path), str(tmp_path))
    done = subprocess.run(
        line,
        env={**os.environ, **told, "CCCTL_PREFER": "ccctl"},
        capture_output=True,
        text=True,
        timeout=HANG_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("reduced") == 2
