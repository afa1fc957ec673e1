"""Ranks are let in by their key; strangers are neither believed nor able to keep ranks out."""

import contextlib
import os
import pickle
import queue
import socket
import struct
import tempfile
from pathlib import Path

import pytest
from limits import HANG_S

from exec.launcher import protocol
from exec.launcher.protocol import Hello, JobForRanks
from exec.sockets.channel import greet
from exec.sockets.greeter import Greeter
from exec.sockets.listeners import listen
from probes.base.errors import UnavailableError

KEY, SCRATCH = bytes(range(32)), "/dev/shm/none"
STRANGER = 54321


@contextlib.contextmanager
def greeting(listeners, ranks=1):
    arrived, job = queue.SimpleQueue(), JobForRanks("a:b", None, ranks)

    def welcome(hello, channel):
        channel.send(job.of_rank(hello.rank))
        arrived.put(hello)

    greeter = Greeter(listeners, KEY, ranks, welcome)
    try:
        yield arrived
    finally:
        greeter.close()
        for listener in listeners:
            listener.close()


def reached(listeners):
    end = socket.socket(listeners[0].family)
    end.connect(listeners[0].getsockname())
    return end


def greeted(listeners, key=KEY):
    channel = greet(reached(listeners), key, 10)
    channel.send(Hello(3, "host", 1))
    with contextlib.closing(channel):
        return channel.receive()


class Harm:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def framed(content):
    return struct.pack("!i", len(content)) + content


@pytest.fixture(params=["here", "outside"])
def listeners(request, tmp_path):
    return listen(tmp_path, ["unknown.invalid"] if request.param == "outside" else ())


def test_strangers_that_are_silent_or_rude_keep_no_rank_out(listeners, tmp_path):
    rude = [b"", b"\0", b"\xff" * 4, b"\x7f\xff\xff\xff", framed(b"x" * 300), b"GET / HTTP/1.1\r\n\r\n"]
    rude += [framed(pickle.dumps(Harm(tmp_path / "harm"))), framed(b"#CHALLENGE#" + bytes(32))]
    with greeting(listeners) as arrived, contextlib.ExitStack() as stack:
        for said in rude * 4:
            # The greeter hangs up on a client that sends too much.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                stack.enter_context(reached(listeners)).sendall(said)
        assert greeted(listeners) == JobForRanks("a:b", None, 1).of_rank(3)
        assert arrived.get(timeout=HANG_S) == Hello(3, "host", 1) and arrived.empty()
    assert not (tmp_path / "harm").exists()


def test_who_does_not_know_the_key_gets_nothing(listeners):
    with greeting(listeners) as arrived, pytest.raises((OSError, EOFError)):
        greeted(listeners, KEY[:-1] + b"!")
    assert arrived.empty()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to act as two users")
def test_no_other_user_reaches_the_socket_of_a_run_on_one_host():
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        listeners = [stack.enter_context(one) for one in listen(Path(folder))]
        os.seteuid(STRANGER)
        try:
            with pytest.raises(PermissionError):
                reached(listeners)
        finally:
            os.seteuid(0)


def test_in_a_folder_of_a_long_name_it_is_the_loopback_address(tmp_path):
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    (listener,) = listen(folder)
    with listener:
        assert listener.getsockname()[0] == "127.0.0.1"


def test_a_rank_passes_by_addresses_where_a_stranger_answers(monkeypatch):
    monkeypatch.setattr("exec.sockets.reach._ANSWERED_S", 1)
    with contextlib.ExitStack() as stack:
        silent = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        listener = socket.create_server(("127.0.0.1", 0))
        named = [f"127.0.0.1:{end.getsockname()[1]}" for end in (silent, listener)]
        arrived = stack.enter_context(greeting([listener]))
        for addresses in (named, named[:1]):
            for name, value in protocol.environment(addresses, KEY, SCRATCH).items():
                monkeypatch.setenv(name, value)
            if addresses == named:
                channel = protocol.connect()
                channel.send(Hello(0, "host", 1))
                assert channel.receive().ranks == 1
                assert arrived.get(timeout=HANG_S).rank == 0
            else:
                with pytest.raises(UnavailableError, match="cannot reach the command"):
                    protocol.connect()


def test_a_crowd_of_silent_strangers_keeps_no_rank_out(listeners, monkeypatch):
    monkeypatch.setattr("exec.sockets.greeter._MOST_STRANGERS", 20)
    bound = listeners[0].getsockname()
    address = bound if isinstance(bound, str) else f"127.0.0.1:{bound[1]}"
    for name, value in protocol.environment([address], KEY, SCRATCH).items():
        monkeypatch.setenv(name, value)
    with greeting(listeners) as arrived, contextlib.ExitStack() as stack:
        for _ in range(100):
            stack.enter_context(reached(listeners))
        channel = protocol.connect()
        channel.send(Hello(0, "host", 1))
        assert channel.receive().ranks == 1
        assert arrived.get(timeout=HANG_S).rank == 0


def test_who_knows_the_key_and_says_something_else_than_hello_is_hung_up_on(listeners):
    with greeting(listeners) as arrived:
        channel = greet(reached(listeners), KEY, 10)
        channel.send("no hello")
        with pytest.raises((EOFError, OSError)):
            channel.receive()
        assert greeted(listeners).ranks == 1
        assert arrived.get(timeout=HANG_S).rank == 3


def test_closing_wakes_who_waits_for_ranks(listeners):
    with greeting(listeners):
        pass
    assert [listener.fileno() for listener in listeners] == [-1]
