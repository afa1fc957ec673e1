"""Meshes that come about whatever the order in which their ranks get so far."""

import gc
import threading
import time
from pathlib import Path

from threaded_ranks import ThreadedRanks

from exec.sockets import mesh as mesh_module
from exec.sockets.mesh import Mesh

KEY = bytes(range(32))


def test_a_rank_that_arrives_while_another_is_still_being_made_is_not_turned_away(monkeypatch):
    class HeldUp(mesh_module.Greeter):
        def __init__(self, *given):
            super().__init__(*given)
            if threading.current_thread().name == "rank 0":
                time.sleep(0.5)

    monkeypatch.setattr(mesh_module, "Greeter", HeldUp)
    meeting, said, made = threading.Barrier(2), {}, {}

    def exchange_of(rank):
        rounds = iter(range(100))

        def exchange(mine):
            number = next(rounds)
            said[number, rank] = mine
            meeting.wait(100)
            return [said[number, one] for one in range(2)]

        return exchange

    def make(rank):
        made[rank] = Mesh(rank, 2, exchange_of(rank), KEY)

    ranks = [threading.Thread(target=make, args=(rank,), name=f"rank {rank}") for rank in range(2)]
    for one in ranks:
        one.start()
    for one in ranks:
        one.join(60)
    try:
        for rank in range(2):
            made[rank].send(1 - rank, "hello", rank)
        assert [made[rank].receive(1 - rank, "hello") for rank in range(2)] == [1, 0]
        assert not made[0].lost and not made[1].lost
    finally:
        for one in made.values():
            one.close()


def descriptors():
    """Return the open sockets and selectors of this process."""
    found = (str(entry.readlink()) for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink())
    return sorted(where for where in found if where.startswith(("socket:", "anon_inode:")))


def test_closed_meshes_leave_no_descriptor(monkeypatch):
    # Free now, and not during this test, whatever earlier ones left.
    gc.collect()
    before = descriptors()
    ranks = ThreadedRanks((0, 1, 2), monkeypatch)
    ranks.on_all(lambda rank: ranks.groups[rank].Barrier())
    assert len(descriptors()) > len(before)
    ranks.close()
    assert descriptors() == before
