"""A peer that has nothing to send is told from a connection that carries nothing."""

import socket

import pytest

from exec.sockets.stalls import STALL_S, Pending, Stalls


class Peers:
    def __init__(self, mute=()):
        self.mute, self.probed, self.told = set(mute), set(), []

    def probe(self, peer):
        self.probed.add(peer)

    def is_mute(self, peer):
        return peer in self.mute

    def stalled(self, peer):
        self.told.append(peer)


@pytest.fixture
def end():
    one, other = socket.socketpair()
    yield one
    one.close()
    other.close()


def waits(stalls, pending, since_s, seconds):
    for step in range(int(seconds / 0.06) + 1):
        stalls.look(pending(step), since_s + step * 0.06)


def test_a_peer_whose_host_does_not_answer_is_stalled_and_said_so_once(end):
    peers = Peers(mute=[2])
    waits(Stalls(peers), lambda step: [Pending(2, end, False, 7)], 50.0, 3 * STALL_S)
    assert peers.told == [2]


def test_a_peer_whose_host_answers_has_nothing_to_send(end):
    peers = Peers()
    waits(Stalls(peers), lambda step: [Pending(2, end, True, 7)], 50.0, 3 * STALL_S)
    assert peers.told == [] and peers.probed == {2}


def test_a_peer_from_which_bytes_come_is_not_stalled_however_few(end):
    peers = Peers(mute=[2])
    waits(Stalls(peers), lambda step: [Pending(2, end, False, step // 10)], 50.0, 3 * STALL_S)
    assert peers.told == []


def test_a_wait_that_is_short_probes_nobody(end):
    peers = Peers(mute=[2])
    stalls = Stalls(peers)
    for run in range(20):
        waits(stalls, lambda step: [Pending(2, end, False, 7)], 50.0 + run, 0.12)
    assert peers.probed == set()
