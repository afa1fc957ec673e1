"""Commands inside a lab: MPI finds the hosts, its bytes cross the switch, and nothing outlives a command."""

import subprocess
import sys
import time
from pathlib import Path

import pytest
from lab_traffic import sample_lab, standing

from exec.lab import lifecycle as kernel
from exec.lab.run import environment, files, started

pytestmark = pytest.mark.netns
MPIRUN = str(Path(sys.executable).parent / "mpirun")
PING = """
import sys
from mpi4py import MPI
comm, size = MPI.COMM_WORLD, int(sys.argv[1])
message = bytearray(size)
for turn in range(2):
    if comm.rank == turn:
        comm.Send(message, 1 - turn)
    elif comm.rank == 1 - turn:
        comm.Recv(message, turn)
names = comm.gather(MPI.Get_processor_name())
alone = comm.Split_type(MPI.COMM_TYPE_SHARED).size
if comm.rank == 0:
    print(*names, alone)
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """A lab of two hosts with what its commands need beside it."""
    with standing(sample_lab(2, rate_mbit=200), tmp_path_factory.mktemp("lab")) as found:
        yield found


def output_of(place, host, command):
    """(status, stdout) of a command inside a host, written to a file as the command's streams are ours."""
    lab, folder = place
    told = folder / "told"
    with started(lab, host, ["sh", "-c", '"$@" >"$0"', str(told), *command], folder) as process:
        status = process.wait(60)
    return status, told.read_text()


@pytest.mark.mpi
def test_mpirun_reaches_every_host_and_its_bytes_cross_the_switch(lab, tmp_path):
    script, size = tmp_path / "ping.py", 1_000_000
    script.write_text(PING)
    before = kernel.traffic(lab[0])
    command = [MPIRUN, "-n", "2", sys.executable, str(script), str(size)]
    assert output_of(lab, "a", command) == (0, "a b 1\n")
    after = kernel.traffic(lab[0])
    for host in "ab":
        assert after[host][0] - before[host][0] >= size
        assert after[host][1] - before[host][1] >= size


def test_a_host_has_its_own_name_and_knows_all(lab):
    lookup = "import socket; print(socket.gethostname(), *map(socket.gethostbyname, 'ab'))"
    assert output_of(lab, "b", [sys.executable, "-c", lookup]) == (0, "b 10.77.0.1 10.77.0.2\n")


def test_the_login_script_is_understood_as_ssh_is(lab):
    login = environment(*lab)["PRTE_MCA_plm_ssh_agent"]
    told = subprocess.run(
        [login, "-x", "b", "uname", "-n;", "echo", "$((1+1))"], capture_output=True, text=True
    )
    assert told.stdout == "b\n2\n"


@pytest.mark.parametrize("script", ["exit 7", "kill -TERM $$", "exec /nowhere"])
def test_the_status_of_the_command_is_told(lab, script):
    outside = subprocess.run(["sh", "-c", f"sh -c '{script}'; exit $?"], stderr=subprocess.DEVNULL)
    with started(lab[0], "a", ["sh", "-c", script], lab[1]) as process:
        assert process.wait(100) == outside.returncode


def inside(lab):
    found = (
        subprocess.run(["ip", "netns", "pids", name], capture_output=True)
        for name in kernel.standing(lab.name)
    )
    return b"".join(one.stdout for one in found).split()


def test_nothing_outlives_its_command(lab):
    place, folder = lab
    login = environment(place, folder)["PRTE_MCA_plm_ssh_agent"]
    stubborn = f"trap '' TERM HUP; {login} b sleep 1000 & setsid sleep 1000 & sleep 0.2"
    with started(place, "a", ["sh", "-c", stubborn], folder) as process:
        deadline_s = time.monotonic() + 60
        while len(inside(place)) < 6 and process.poll() is None and time.monotonic() < deadline_s:
            time.sleep(0.02)
        assert process.wait(100) == 0
    assert inside(place) == []
    assert {path.name for path in folder.iterdir()} <= {*files(place), "told"}


@pytest.mark.parametrize(
    ("command", "processes"),
    [("sleep 1000", 3), ("trap '' TERM; for n in $(seq 200); do sleep 1000 & done; wait", 203)],
)
def test_a_command_that_is_left_is_ended(lab, command, processes):
    """Nothing is left, also of a command that does not end when it is asked to."""
    place, folder = lab
    with started(place, "a", ["sh", "-c", command], folder):
        while len(inside(place)) < processes:
            time.sleep(0.02)
    assert inside(place) == []
