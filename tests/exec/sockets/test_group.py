"""Ranks joined by sockets: collective calls, connections for data, and what the death of one does."""

from joined import run_joined

CALLS = """
assert comm.allgather(10 * rank) == [0, 10, 20]
assert comm.bcast(("from", rank), 1) == ("from", 1)
assert comm.gather(rank, 2) == ([0, 1, 2] if rank == 2 else None)
for _ in range(50):
    comm.Barrier()
one, two = comm.Dup(), comm.Dup()
assert two.allgather("two") + one.allgather("one") == ["two"] * 3 + ["one"] * 3
comm.send({"rank": rank}, (rank + 1) % 3)
assert comm.recv((rank - 1) % 3) == {"rank": (rank - 1) % 3}
import threading
import numpy as np
given, found = np.arange(300_000) + rank, np.zeros(300_000, np.int64)
sending = threading.Thread(target=comm.Send, args=(given, (rank + 1) % 3))
sending.start()
comm.Recv(found, (rank - 1) % 3)
sending.join()
assert (found == np.arange(300_000) + (rank - 1) % 3).all()
comm.Barrier()
comm.mesh.close()
"""

DEATH = """
import os, signal, time
from probes.base.errors import LostRankError
comm.Barrier()
if rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
for call in (lambda: comm.allgather(rank), comm.Barrier, lambda: comm.recv(1), comm.check):
    deadline = time.monotonic() + 100
    try:
        while time.monotonic() < deadline:
            call()
    except LostRankError as error:
        assert "rank 1" in str(error), error
    else:
        raise AssertionError(call)
left = comm.among([0, 2, 3], "1")
assert left.allgather(rank) == [0, 2, 3] and left.Get_rank() == [0, 2, 3].index(rank)
left.Barrier()
"""

REVOKED = """
import threading
from probes.base.errors import LostRankError
comm.Barrier()
if rank == 0:
    threading.Timer(0.2, comm.revoke, ["the epoch is over"]).start()
    try:
        comm.recv(1)
    except LostRankError as error:
        assert "the epoch is over" in str(error)
    else:
        raise AssertionError
again = comm.among([0, 1], "1")
assert again.allgather(rank) == [0, 1]
again.Barrier()
"""


def test_collective_calls_messages_and_data(tmp_path):
    run_joined(tmp_path, 3, CALLS)


def test_a_rank_that_dies_is_named_and_the_others_go_on(tmp_path):
    run_joined(tmp_path, 4, DEATH)


def test_who_waits_in_an_epoch_that_is_over_is_told_so(tmp_path):
    run_joined(tmp_path, 2, REVOKED)
