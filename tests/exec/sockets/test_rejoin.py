"""A rank that is started again connects to those that live, and nothing of its earlier start is heard."""

import threading
import time
from dataclasses import replace

import pytest

from exec.sockets.mesh import Meeting, Mesh, Whereabouts
from probes.base.errors import LostRankError, UnavailableError

KEY = bytes(range(32))


def meshes(size, spares=()):
    """Meshes of ranks that are threads of this process, without ``spares`` that may come."""
    meeting, said, made = threading.Barrier(size), {}, {}

    def make(rank):
        rounds = iter(range(100))

        def exchange(mine):
            number = next(rounds)
            said[number, rank] = mine
            meeting.wait(100)
            return [said[number, one] for one in range(size)]

        made[rank] = Mesh(rank, size + len(spares), exchange, KEY, spares)

    ranks = [threading.Thread(target=make, args=(rank,)) for rank in range(size)]
    for one in ranks:
        one.start()
    for one in ranks:
        one.join(60)
    return [made[rank] for rank in range(size)]


def until(true):
    deadline_s = time.monotonic() + 100
    while not true():
        assert time.monotonic() < deadline_s
        time.sleep(0.005)


@pytest.fixture
def three():
    every = meshes(3)
    yield every
    for one in every:
        one.close()


def started_again(every, rank, start, living=None):
    known = tuple(every[0].known)
    others = frozenset(range(len(every))) - {rank}
    return Mesh(rank, len(every), Meeting(start, known, others if living is None else living), KEY)


def test_what_is_said_to_and_by_a_new_start_arrives_and_nothing_of_the_old_one(three):
    lost = []
    three[0].on_lost(lambda *what: lost.append(what))
    three[2].send(0, "old", "never read")
    until(lambda: ("old", 2) in three[0]._boxes)
    three[2].close()
    until(lambda: 2 in three[0].lost and 2 in three[1].lost)
    three[2] = started_again(three, 2, 1)
    until(lambda: three[2].met == {0: 0, 1: 0})
    assert three[2].start == three[0].known[2].start == 1
    assert 2 not in three[0].lost and 2 not in three[1].lost and not three[2].lost
    for peer in (0, 1):
        three[peer].send(2, "hello", peer)
        three[2].send(peer, "hello", "again")
        assert three[2].receive(peer, "hello") == peer
        assert three[peer].receive(2, "hello") == "again"
    assert ("old", 2) not in three[0]._boxes
    assert [(rank, start) for rank, _, start in lost] == [(2, 0)]
    # A decision about the earlier start does not affect this one.
    three[0].lose(2, "was lost before", 0)
    assert 2 not in three[0].lost
    three[0].lose(2, "is lost now", 1)
    assert 2 in three[0].lost


def test_a_new_start_of_a_rank_that_seemed_to_live_ends_the_old_one(three):
    old, three[2] = three[2], started_again(three, 2, 1)
    until(lambda: three[2].met == {0: 0, 1: 0})
    until(lambda: 0 in old.lost and 1 in old.lost)
    old.close()
    late = started_again(three, 2, 1)
    until(lambda: 0 in late.lost and 1 in late.lost)
    late.close()
    three[2].send(0, "hello", "still there")
    assert three[0].receive(2, "hello") == "still there"


def test_two_new_starts_meet_when_they_are_told_of_each_other(three):
    for rank in (1, 2):
        three[rank].close()
    until(lambda: {1, 2} <= set(three[0].lost))
    for rank in (1, 2):
        three[rank] = started_again(three, rank, 1, frozenset({0}))
        until(lambda one=three[rank]: one.met == {0: 0})
    with pytest.raises(LostRankError):
        three[2].receive(1, "hello")
    three[2].meet([three[0].known[1]])
    until(lambda: three[2].met == {0: 0, 1: 1} and three[1].met == {0: 0, 2: 1})
    three[1].send(2, "hello", "neighbour")
    assert three[2].receive(1, "hello") == "neighbour"


def test_a_rank_that_was_not_there_joins_on_a_host_of_another_name():
    spares = tuple(Whereabouts(rank, 0, 2, "elsewhere.invalid", "", 0, ()) for rank in (2, 3))
    every = meshes(2, spares)
    try:
        assert every[0].host == [0, 0, 2, 2]
        assert {*every[0].lost} == {*every[1].lost} == {2, 3}
        known = tuple(every[0].known[one] for one in range(4))
        every.append(Mesh(2, 4, Meeting(1, known, frozenset({0, 1})), KEY))
        until(lambda: every[2].met == {0: 0, 1: 0})
        # It is found to be on the host of the others.
        assert every[2].host == every[0].host == [0, 0, 0, 2]
        assert {*every[2].lost} == {*every[0].lost} == {3}
        for peer in (0, 1):
            every[peer].send(2, "hello", peer)
            assert every[2].receive(peer, "hello") == peer
    finally:
        for one in every:
            one.close()


def test_a_rank_on_another_host_than_before_is_refused(three):
    known = tuple(replace(three[0].known[one], key="another") for one in range(3))
    with pytest.raises(UnavailableError, match="but belongs on"):
        Mesh(2, 3, Meeting(1, known, frozenset({0, 1})), KEY)
