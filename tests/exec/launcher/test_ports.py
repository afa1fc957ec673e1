"""A run listens where its ranks are, and on one host it is out of reach for everybody else."""

import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from exec.launcher.ports import bind_to_loopback, refuse_connections
from exec.sockets import listeners
from exec.sockets.listeners import listen, own_addresses_towards


@pytest.mark.parametrize(
    ("hosts", "addresses"),
    [
        (["localhost"], ["127.0.0.1"]),
        (["127.0.0.1", "localhost", "127.0.0.1"], ["127.0.0.1"]),
        (["unknown.invalid"], []),
        (["localhost", "unknown.invalid"], []),
        ([], []),
    ],
)
def test_the_addresses_are_those_of_the_routes_and_none_where_one_is_unknown(hosts, addresses):
    assert own_addresses_towards(hosts) == addresses


def test_a_name_server_that_does_not_answer_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(listeners, "_PATIENCE_S", 0.05)
    answered = threading.Event()

    def slow(*_):
        answered.wait(10)
        raise OSError

    monkeypatch.setattr("socket.getaddrinfo", slow)
    assert own_addresses_towards(["slow"]) == []
    answered.set()


@pytest.mark.parametrize(
    ("hosts", "address"), [(["localhost"], "127.0.0.1"), (["unknown.invalid"], "0.0.0.0")]
)
def test_it_is_listened_where_the_hosts_are(tmp_path, hosts, address):
    (listener,) = listen(tmp_path, hosts)
    with listener:
        assert listener.getsockname()[0] == address


LISTENING = """
import socket
ends = [socket.create_server((address, 0)) for address in ("0.0.0.0", "127.0.0.1")]
print(*(end.getsockname()[1] for end in ends), flush=True)
for end in reversed(ends):
    end.accept()
"""


def answers(port):
    try:
        socket.create_connection(("127.0.0.1", port), 0.3).close()
    except (TimeoutError, ConnectionRefusedError):
        return False
    return True


def device_of(port):
    """The interface that alone reaches a port of this host; "" where all do."""
    words = subprocess.run(["ss", "-ltnH", f"sport = :{port}"], capture_output=True, text=True).stdout.split()
    return words[3].rpartition(":")[0].partition("%")[2]


@pytest.fixture
def process():
    with subprocess.Popen([sys.executable, "-c", LISTENING], stdout=subprocess.PIPE, text=True) as process:
        process.ports = [int(port) for port in process.stdout.readline().split()]
        yield process
        process.kill()


def test_a_process_that_listens_everywhere_is_left_with_the_loopback(process):
    if shutil.which("ss") is None:
        pytest.skip("needs ss, of iproute2")
    if not bind_to_loopback(process.pid):
        pytest.skip("this kernel does not let a child's sockets be changed")
    assert [device_of(port) for port in process.ports] == ["lo", "lo"]
    assert all(answers(port) for port in process.ports)


def test_a_process_that_listens_is_out_of_reach_when_asked_for(process):
    if not refuse_connections(process.pid):
        pytest.skip("this kernel does not let a filter be attached to a child's sockets")
    assert not any(answers(port) for port in process.ports)


def test_of_a_process_that_is_gone_nothing_is_shut():
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    assert not bind_to_loopback(process.pid) and not refuse_connections(process.pid)


TASK = """
import time
from pathlib import Path

def wait(comm, folder, progress):
    comm.Barrier()
    (Path(folder) / f"up{comm.Get_rank()}").touch()
    while not (Path(folder) / "seen").exists():
        time.sleep(0.05)
"""


def listening(pid):
    ours = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    every = [(process.name(), one) for process in ours for one in process.net_connections("tcp")]
    return {(name, one.laddr.port) for name, one in every if one.status == psutil.CONN_LISTEN}


@pytest.mark.mpi
def test_nobody_from_outside_reaches_a_run_on_one_host(tmp_path, process):
    if shutil.which("ss") is None:
        pytest.skip("needs ss, of iproute2")
    can_bind = bind_to_loopback(process.pid)
    (tmp_path / "waiting.py").write_text(TASK)
    call = f"run_ranks('waiting:wait', {str(tmp_path)!r}, World(ranks=2))"
    command = [sys.executable, "-P", "-c", f"from exec.launcher.run import World, run_ranks; {call}"]
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}:{Path.cwd()}"}
    with subprocess.Popen(command, env=environment) as run:
        while len(list(tmp_path.glob("up?"))) < 2:
            assert run.poll() is None
            time.sleep(0.05)
        # The command hears of it in its own time.
        deadline_s = time.monotonic() + 100
        while (found := listening(run.pid)) and time.monotonic() < deadline_s:
            if {device_of(port) for _, port in found} == {"lo"}:
                break
            time.sleep(0.1)
        devices = {device_of(port) for _, port in found}
        (tmp_path / "seen").touch()
        assert run.wait(60) == 0
    if not can_bind:
        pytest.skip("this kernel does not let a child's sockets be changed")
    assert devices <= {"lo"}
    assert {name for name, _ in found} <= {"prterun", "mpirun", "hydra_pmi_proxy", "mpiexec.hydra"}
