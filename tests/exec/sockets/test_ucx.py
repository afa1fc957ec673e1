"""Data of a plan over UCX: its messages of many sizes, and what the end of a peer does."""

import pytest
from joined import needs_ucx, run_joined

from exec.sockets.ucx import active_devices, carries_data
from probes.base import UsageError

pytestmark = needs_ucx

# Only CMA, of UCX's transports through shared memory, is told of a peer's end; it needs another one beside
# it for short messages.
TRANSPORTS = ("tcp", "tcp,cma")
START = """
import os
import time
import numpy as np
from exec.program import Wire
from probes.base import LostRankError

def wire(outgoing, peer, sizes, rate=0.0):
    own = [(rank + at) % 251 if outgoing else 255 for at in range(len(sizes))]
    messages = [np.full(size, value, np.uint8) for size, value in zip(sizes, own)]
    counters = np.zeros(2, np.int64)
    through = np.zeros(len(sizes), np.int64)
    return Wire(outgoing, peer, 0, counters, messages, len(sizes), (True,) * len(sizes), through, rate)

def run(wires, ends, number):
    wires.begin(number)
    for end in ends:
        end.counters[0 if end.outgoing else 1] = (number + 1) * len(end.messages)
    while any(end.counters[int(end.outgoing)] < (number + 1) * len(end.messages) for end in ends):
        wires.serve(wait=True)
"""

SIZES = """
sizes = [1, 8, 0, 4096, 100_003, 5, 3 << 20, 8, 9 << 20, 64 << 10]
ends = [wire(True, (rank + 1) % size, sizes), wire(False, (rank - 1) % size, sizes)]
wires = comm.wires(ends)
assert all(comm.mesh.tagged(end) for end in comm.mesh._flows.values()) and len(comm.mesh._flows) == 2
for number in range(3):
    for message in ends[1].messages:
        message[:] = 255
    run(wires, ends, number)
    for at, message in enumerate(ends[1].messages):
        assert (message == ((rank - 1) % size + at) % 251).all(), (number, at)
assert (np.diff(ends[1].through_ns) >= 0).all()
wires.free()
comm.Barrier()
comm.mesh.close()
"""

LEFT_OUT = """
sizes = [8, 1 << 20, 100]
ends = [wire(True, 1 - rank, sizes), wire(False, 1 - rank, sizes)]
wires = comm.wires(ends)
second = np.array([0, 1, 0], bool)
wires.leave_out({(True, 1 - rank, 0): second, (False, 1 - rank, 0): second})
run(wires, ends, 0)
assert [int(message[0]) for message in ends[1].messages] == [1 - rank, 255, 1 - rank + 2]
comm.Barrier()
comm.mesh.close()
"""

# The others wait for data of the rank that dies in the middle of a long message, and then go on without it.
DEATH = """
import signal
sizes = [8, 32 << 20]
ends = [wire(True, (rank + 1) % size, sizes), wire(False, (rank - 1) % size, sizes)]
wires = comm.wires(ends)
run(wires, ends, 0)
comm.Barrier()
if rank == 1:
    wires.begin(1)
    ends[0].counters[0] = 4
    for _ in range(4):
        wires.serve(wait=True)
    os.kill(os.getpid(), signal.SIGKILL)
try:
    run(wires, ends, 1)
    comm.recv(1)
except LostRankError as error:
    pass
else:
    raise AssertionError
while 1 not in comm.mesh.lost:
    time.sleep(0.01)
wires.free()
after = [message.copy() for message in ends[1].messages]
comm.close()
left = comm.among([0, 2], "1")
ends = [wire(True, 1 - left.Get_rank(), sizes), wire(False, 1 - left.Get_rank(), sizes)]
wires = left.wires(ends)
for number in range(2):
    run(wires, ends, number)
assert all(comm.mesh.tagged(end) for key, end in comm.mesh._flows.items() if key[1].startswith("1/"))
assert (ends[1].messages[1] == (2 - rank + 1) % 251).all()
left.Barrier()
comm.mesh.close()
"""

# Rank 1 waits for a word of rank 0, which waits until rank 1 has taken a message.
UNATTENDED = """
ends = [wire(rank == 0, 1 - rank, [4 << 20])]
wires = comm.wires(ends)
if rank == 0:
    run(wires, ends, 0)
    comm.send("taken", 1)
else:
    wires.begin(0)
    wires.serve(wait=False)
    assert comm.recv(0) == "taken"
    run(wires, ends, 0)
comm.Barrier()
comm.mesh.close()
"""

# A run that waits for events of its messages must not sleep on because another thread has taken them.
ONE_AT_A_TIME = """
from exec.sockets.ucx import Worker
worker, moved = Worker(), []
worker.progress = lambda: moved.append("by now") or 0
with worker.attended():
    assert not worker.tend() and not worker.is_free and not moved
assert worker.is_free and (worker.tend() or moved)
worker.close()
assert not worker.tend() and not worker.is_free
comm.mesh.close()
"""

# Rank 0 abandons a run in which a long message is on its way: its memory is its own again.
ABANDONED = """
sizes = [32 << 20]
ends = [wire(rank == 1, 1 - rank, sizes)]
if rank == 0:
    wires = comm.wires(ends)
    wires.begin(0)
    for _ in range(2):
        wires.serve(wait=True)
    wires.free()
    before = ends[0].messages[0].copy()
    # A busy rank tells the others late; that is no reason for them to do without UCX.
    time.sleep(0.5)
    comm.revoke("given up")
    comm.close()
    time.sleep(0.3)
    assert (ends[0].messages[0] == before).all()
else:
    try:
        run(comm.wires(ends), ends, 0)
    except LostRankError as error:
        assert "rank 0" in str(error), error
    else:
        raise AssertionError
    comm.close()
again = comm.among([0, 1], "1")
again.Barrier()
ends = [wire(rank == 1, 1 - rank, sizes)]
run(again.wires(ends), ends, 0)
assert (ends[0].messages[0] == 1).all()
again.Barrier()
comm.mesh.close()
"""

# Nothing of what rank 0 sends over UCX arrives; data goes over TCP, and nobody is lost.
SILENT = """
sizes = [8, 1 << 20]
for epoch in ("1", "2"):
    group = comm.among([0, 1], epoch)
    ends = [wire(True, 1 - rank, sizes), wire(False, 1 - rank, sizes)]
    wires = group.wires(ends)
    over = [bool(comm.mesh.tagged(end)) for key, end in comm.mesh._flows.items() if key[1][0] == epoch]
    assert not all(over) if epoch == "1" else not any(over), over
    run(wires, ends, 0)
    assert (ends[1].messages[1] == 1 - rank + 1).all() and not comm.mesh.lost
    group.Barrier()
comm.mesh.close()
"""

# Rank 0 knows nothing of UCX.
MIXED = """
ends = [wire(True, 1 - rank, [1 << 20]), wire(False, 1 - rank, [1 << 20])]
wires = comm.wires(ends)
assert not any(comm.mesh.tagged(end) for end in comm.mesh._flows.values())
run(wires, ends, 0)
assert (ends[1].messages[0] == 1 - rank).all()
comm.Barrier()
comm.mesh.close()
"""

# Data may go over TCP after all.
OVER_TCP = """
import exec.sockets.tcp_ends, exec.sockets.wires
exec.sockets.wires.TcpEnds = exec.sockets.tcp_ends.TcpEnds
"""


def run_apart(tmp_path, size, script, before="", transports="tcp"):
    run_joined(tmp_path, size, START + script, before=before, wires=f"ucx/{transports}")


@pytest.mark.parametrize("transports", TRANSPORTS)
def test_messages_of_many_sizes(tmp_path, transports):
    run_apart(tmp_path, 3, SIZES, transports=transports)


def test_messages_are_left_out_at_both_ends(tmp_path):
    run_apart(tmp_path, 2, LEFT_OUT)


@pytest.mark.parametrize("transports", TRANSPORTS)
def test_the_death_of_a_rank_ends_the_wait_and_the_others_go_on(tmp_path, transports):
    run_apart(tmp_path, 3, DEATH, transports=transports)


def test_a_message_arrives_while_its_receiver_waits_for_something_else(tmp_path):
    run_apart(tmp_path, 2, UNATTENDED)


def test_no_other_thread_moves_data_while_a_run_waits(tmp_path):
    run_apart(tmp_path, 1, ONE_AT_A_TIME)


def test_an_abandoned_run_leaves_its_memory_alone(tmp_path):
    run_apart(tmp_path, 2, ABANDONED)


def test_a_rank_without_ucx_is_reached_over_tcp(tmp_path):
    tcp = 'import os\nif rank == 0:\n    os.environ["CCCTL_WIRES"] = "tcp"\n'
    run_apart(tmp_path, 2, MIXED, before=OVER_TCP + tcp)


def test_a_rank_whose_messages_ucx_does_not_carry_is_reached_over_tcp(tmp_path):
    soon = "exec.sockets.ucx._TRIAL_S = 0.5\n"
    silent = "if rank == 0:\n    exec.sockets.ucx.Worker.send_trial = lambda *_, **how: 0\n"
    run_apart(tmp_path, 2, SILENT, before=OVER_TCP + soon + silent)


def test_a_device_that_this_process_may_use_chooses_ucx(tmp_path, monkeypatch):
    contexts = []
    monkeypatch.setattr("exec.sockets.ucx._DEVICES", tmp_path)
    monkeypatch.setattr("exec.sockets.ucx._VERBS", tmp_path)
    monkeypatch.setattr("exec.sockets.ucx._context", lambda transports: contexts.append(transports) or True)
    for name in ("CCCTL_WIRES", "UCX_TLS"):
        monkeypatch.delenv(name, raising=False)
    for device, state in (("mlx5_0", "1: DOWN"), ("mlx5_1", "4: ACTIVE")):
        port = tmp_path / device / "ports" / "1"
        port.mkdir(parents=True)
        (port / "state").write_text(f"{state}\n")
        assert not carries_data()
    assert active_devices() == ["mlx5_1"]
    (tmp_path / "uverbs0").touch()
    for transports in ("rc,tcp,self", "tcp,self", "all", "^rc", "ib"):
        monkeypatch.setenv("UCX_TLS", transports)
        assert carries_data() == (transports != "tcp,self")
    monkeypatch.delenv("UCX_TLS")
    assert carries_data()
    assert contexts == ["rc", "ib", "ib", "ib", "ib"]
    monkeypatch.setenv("CCCTL_WIRES", "tcp")
    assert not carries_data()
    monkeypatch.setenv("CCCTL_WIRES", "ib")
    with pytest.raises(UsageError, match="CCCTL_WIRES is 'ib'"):
        carries_data()


@pytest.mark.skipif(bool(active_devices()), reason="UCX may use the devices of this machine")
def test_devices_that_ucx_cannot_use_leave_data_to_tcp(tmp_path, monkeypatch):
    monkeypatch.setattr("exec.sockets.ucx.active_devices", lambda: ["mlx5_0"])
    monkeypatch.setattr("exec.sockets.ucx._VERBS", tmp_path)
    (tmp_path / "uverbs0").touch()
    for name in ("CCCTL_WIRES", "UCX_TLS"):
        monkeypatch.delenv(name, raising=False)
    assert not carries_data()
