"""Ranks that were lost come back: all later results have their data in them, on every rank alike."""

import sys
from pathlib import Path

import pytest

from exec.launcher.run import launch

JOB = """
import os, signal, time
import numpy as np
from exec.adaptive import backend
from exec.adaptive.session import Session

COUNT = 1003

def data(step, of):
    return np.random.default_rng([step, of]).integers(-1000, 1000, COUNT).astype(np.float32)

def dies(*given):
    os.kill(os.getpid(), signal.SIGKILL)

def job(comm, arguments, progress):
    rank, every = comm.Get_rank(), tuple(range(comm.Get_size()))
    start = comm.mesh.start
    # Before it has said that it is there, and when it is told where to go on.
    if start in arguments["dying"]:
        setattr(backend.Backend, arguments["dying"][start], dies)
    session = Session(comm, fence=progress.fence, replan_s=0.5, join_s=200)
    session.setup(COUNT)
    step, told, epochs = 0, [], 0
    while told[-4:] != [every] * 4 or epochs < arguments["joins"]:
        admission = session.admit()
        if admission.joined:
            # Those that are new learn how far the others are, and how many have joined.
            state = np.zeros(COUNT, np.float32)
            if rank == admission.source:
                state[:2] = step, epochs + len(admission.joined)
            step, epochs = (int(one) for one in session.all_reduce(state).wait(300)[:2])
        if start == 0 and arguments["victims"].get(rank) == step:
            dies()
        work = session.all_reduce(data(step, rank))
        assert (work.wait(300) == np.sum([data(step, of) for of in work.members], axis=0)).all(), step
        told.append(work.members)
        step += 1
        time.sleep(0.01)
    found = session.members, dict(session.lost), sorted(session.joined), epochs, session.coordinator
    assert session.survivors("found").allgather(found) == [found] * len(every)
    events = [event.what for event in session.events]
    session.close()
    return found, events
"""


def run(tmp_path, monkeypatch, ranks, victims, joins, dying):
    Path(tmp_path, "job_that_is_joined.py").write_text(JOB)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    lost = []
    found = launch(
        "job_that_is_joined:job",
        {"victims": victims, "joins": joins, "dying": dying},
        ranks=ranks,
        wires="sockets",
        survive=True,
        rejoin=3,
        on_lost=lost.append,
        timeout_s=400,
    )
    return found, sorted(one.rank for one in lost)


@pytest.mark.mpi
def test_two_that_are_killed_come_back(tmp_path, monkeypatch):
    (found, events), lost = run(tmp_path, monkeypatch, 4, {1: 3, 3: 3}, 2, {})
    assert found == ((0, 1, 2, 3), {}, [1, 3], 2, 0)
    assert lost == [1, 3]
    assert {"lost", "joined", "resumed"} <= set(events)


@pytest.mark.mpi
def test_the_coordinator_comes_back_though_it_dies_twice_while_it_joins(tmp_path, monkeypatch):
    dying = {1: "_regroup", 2: "_begin"}
    (found, events), lost = run(tmp_path, monkeypatch, 3, {0: 3}, 2, dying)
    assert found == ((0, 1, 2), {}, [0], 2, 1)
    assert lost == [0]
    assert "joined" in events
