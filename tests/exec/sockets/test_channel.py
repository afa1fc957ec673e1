"""Messages that bear no right MAC are refused, and no message is ever unpickled."""

import contextlib
import pickle
import socket
import struct
import threading
from pathlib import Path

import numpy as np
import pytest

import exec.sockets.channel as channel_module
from exec.sockets.channel import ANSWER_BYTES, BrokenMessage, Challenge, Channel, greet, key_of_wires

KEY = bytes(range(32))


class Harm:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


class Loose(Channel):
    """An end that knows the key and sends pickles."""

    def _framed(self, message):
        content = pickle.dumps(message)
        mac = channel_module._mac_of(self._keys[0], self._sent, content)
        self._sent += 1
        return channel_module._HEADER.pack(len(content), mac) + content


@pytest.fixture
def ends():
    """Two channels with a relay between: what the first sends can be changed before the second has it."""
    first, inlet = socket.socketpair()
    outlet, second = socket.socketpair()
    with first, inlet, outlet, second:
        yield Channel(first, b"a" * 32, b"b" * 32), inlet, outlet, Channel(second, b"b" * 32, b"a" * 32)


def frame(channel, inlet, message):
    """The bytes of one message."""
    channel.send(message)
    return inlet.recv(1 << 20)


def test_messages_arrive_in_their_order_in_whatever_pieces():
    ours, theirs = socket.socketpair()
    messages = [1, "two", {"three": np.arange(300_000.0)}, None]
    with ours, theirs:
        sender, receiver = Channel(ours, b"a" * 32, b"b" * 32), Channel(theirs, b"b" * 32, b"a" * 32)
        assert receiver.arrived() == [] and not receiver.readable()
        sending = threading.Thread(target=lambda: [sender.send(message) for message in messages])
        sending.start()
        found = [receiver.receive() for _ in messages]
        sending.join()
        sender.close()
        with pytest.raises(EOFError):
            receiver.receive()
    assert found[:2] + found[3:] == [1, "two", None]
    assert np.array_equal(found[2]["three"], messages[2]["three"])


def test_half_a_message_keeps_nobody_waiting(ends):
    sender, inlet, outlet, receiver = ends
    whole = frame(sender, inlet, "whole")
    for cut in (0, 1, 39, len(whole) - 1):
        outlet.sendall(whole[:1])
        whole = whole[1:]
        assert receiver.arrived() == [], cut
    outlet.sendall(whole)
    assert receiver.arrived() == ["whole"]


WAYS = {
    "the content is changed": lambda one, two: [one[:-1] + bytes([one[-1] ^ 1])],
    "the MAC is changed": lambda one, two: [one[:8] + bytes([one[8] ^ 1]) + one[9:]],
    "it is shortened": lambda one, two: [struct.pack(">Q", len(one) - 41) + one[8:-1]],
    "it is lengthened": lambda one, two: [struct.pack(">Q", len(one) - 39) + one[8:] + b"."],
    "it is repeated": lambda one, two: [one, one],
    "it is left out": lambda one, two: [two],
    "they are swapped": lambda one, two: [two, one],
    "it comes back": lambda one, two: ["back"],
    "it has no MAC": lambda one, two: [struct.pack(">Q", len(one) - 40) + bytes(32) + one[40:]],
    "it is of another key": lambda one, two: ["other"],
}


@pytest.mark.parametrize("way", WAYS)
def test_what_was_not_sent_so_is_refused_and_not_read(ends, way):
    sender, inlet, outlet, receiver = ends
    harmless = 1 if way == "it is repeated" else 0
    one = frame(sender, inlet, "one" if not harmless else "harmless")
    two = frame(sender, inlet, "two")
    for piece in WAYS[way](one, two):
        if piece == "back":
            receiver.send("back")
            piece = outlet.recv(1 << 20)
        elif piece == "other":
            other, taken = socket.socketpair()
            with other, taken:
                piece = frame(Channel(other, b"c" * 32, b"c" * 32), taken, "other")
        outlet.sendall(piece)
    if harmless:
        assert receiver.arrived() == ["harmless"]
    for _ in range(2):
        with pytest.raises(BrokenMessage):
            receiver.arrived()


@pytest.mark.parametrize("left", [1, 39, 41])
def test_a_message_that_is_cut_off_is_not_read(ends, left):
    sender, inlet, outlet, receiver = ends
    outlet.sendall(frame(sender, inlet, "whole")[:left])
    outlet.close()
    with pytest.raises(EOFError):
        receiver.receive()


def test_a_detached_connection_carries_plain_bytes(ends):
    sender, inlet, _, _ = ends
    sender.detach().sendall(b"elements")
    assert inlet.recv(100) == b"elements"


def test_whoever_knows_the_key_has_no_code_run(tmp_path):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        receiver = Channel(theirs, b"b" * 32, b"a" * 32)
        Loose(ours, b"a" * 32, b"b" * 32).send(Harm(tmp_path / "harm"))
        with pytest.raises(BrokenMessage, match="no message"):
            receiver.receive()
    assert list(tmp_path.iterdir()) == []


def greeted(key, answer=lambda said: said, limit_s=5.0):
    """Both channels of a greeting: the asked end knows ``key``, and what it says goes through ``answer``."""
    asking, asked = socket.socketpair()
    challenge, found = Challenge(KEY), []

    def ask():
        with contextlib.suppress(OSError):
            asking.sendall(challenge.question)
            said = answer(asking.recv(ANSWER_BYTES, socket.MSG_WAITALL))
            asking.sendall(challenge.proof(said))
            found.append(challenge.channel(asking, said))
        if not found:
            asking.close()

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        found.append(greet(asked, key, limit_s))
    finally:
        thread.join()
    return found


def test_two_ends_that_know_the_key_hear_each_other_and_each_connection_has_keys_of_its_own():
    command, rank = greeted(KEY)
    other, _ = greeted(KEY)
    rank.send("from the rank")
    command.send("from the command")
    assert (command.receive(), rank.receive()) == ("from the rank", "from the command")
    assert command._keys != other._keys and set(command._keys) == set(rank._keys)


def test_who_does_not_know_the_key_is_refused_by_either_end():
    with pytest.raises((EOFError, OSError)):
        greeted(KEY[:-1] + b"!")
    with pytest.raises((EOFError, OSError)):
        greeted(KEY, answer=lambda said: bytes(ANSWER_BYTES))


STRANGE = [b"", b"SSH-2.0-OpenSSH_9.6\r\n", b"HTTP/1.1 400 Bad Request\r\n" * 9, pickle.dumps(1) * 99]


@pytest.mark.parametrize("said", STRANGE)
def test_a_rank_gives_up_on_a_stranger_in_time(said):
    ours, theirs = socket.socketpair()
    with theirs:
        theirs.sendall(said)
        with pytest.raises(OSError):
            greet(ours, KEY, 0.1)
        assert ours.fileno() == -1


def test_what_is_posted_to_one_that_does_not_read_holds_nobody_up():
    command, rank = greeted(KEY)
    sizes = [1 << 20, 10, 1 << 18]
    for size in sizes:
        command.post(bytes(size))
    found = []
    while len(found) < len(sizes):
        found += rank.arrived()
        command.flush()
    assert [len(one) for one in found] == sizes


def test_the_key_of_the_wires_tells_nothing_of_the_runs_own():
    keys = {KEY, key_of_wires(KEY), key_of_wires(KEY[::-1]), key_of_wires(key_of_wires(KEY))}
    assert len(keys) == 4
    assert {len(key) for key in keys} == {32}
