"""What a run on one host listens on is out of reach for everybody else."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from ccctl.socket_filter import refuse_connections

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
    except TimeoutError:
        return False
    return True


def test_a_process_that_listens_is_out_of_reach_when_asked_for():
    with subprocess.Popen([sys.executable, "-c", LISTENING], stdout=subprocess.PIPE, text=True) as process:
        everywhere, here = map(int, process.stdout.readline().split())
        try:
            if not refuse_connections(process.pid, from_here=False):
                pytest.skip("pidfd_getfd is not permitted here")
            assert not answers(everywhere) and answers(here)
            assert refuse_connections(process.pid, from_here=True)
            assert not answers(here)
        finally:
            process.kill()


def test_of_a_process_that_is_gone_nothing_is_shut():
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    assert not refuse_connections(process.pid, from_here=True)


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
def test_nobody_reaches_a_run_on_one_host(tmp_path):
    (tmp_path / "waiting.py").write_text(TASK)
    call = f"run_ranks('waiting:wait', {str(tmp_path)!r}, World(ranks=2), label='x')"
    command = [sys.executable, "-P", "-c", f"from ccctl.launch import World, run_ranks; {call}"]
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}:{Path.cwd()}"}
    with subprocess.Popen(command, env=environment) as run:
        while len(list(tmp_path.glob("up?"))) < 2:
            assert run.poll() is None
            time.sleep(0.05)
        # The command hears of it in its own time.
        deadline_s = time.monotonic() + 20
        while (reached := {one for one in listening(run.pid) if answers(one[1])}) and (
            time.monotonic() < deadline_s
        ):
            time.sleep(0.1)
        found = listening(run.pid)
        (tmp_path / "seen").touch()
        assert run.wait(60) == 0
    assert not reached
    assert {name for name, _ in found} <= {"prterun", "mpirun", "hydra_pmi_proxy", "mpiexec.hydra"}
