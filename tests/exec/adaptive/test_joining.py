"""Ranks that were lost come back: all later results have their data in them, on every rank alike."""

import shlex
import sys
from pathlib import Path

import pytest
from limits import HANG_S

from exec.launcher.run import launch

JOB = """
import os, signal, time
import numpy as np
from exec.adaptive import backend, compiled_parts
from exec.adaptive.session import Session

COUNT = 1003
# Contexts for two late ranks at once are most of all contexts, and no two ranks are late here.
compiled_parts._MOST_FOR_PAIRS = 0

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
        # The others would go on without pause while a rank starts, on the cores that it needs.
        time.sleep(0.05)
    joined = sorted(session.membership.joined)
    found = session.members, dict(session.lost), joined, epochs, session.coordinator
    assert session.gather("found", found) == dict.fromkeys(every, found)
    events = [event.what for event in session.events]
    session.close()
    return found, events
"""


# Two ranks work, and a third joins from a host that answers once they are at work. It dies and comes back.
GROWING = """
import os, signal, time
from pathlib import Path
import numpy as np
from exec.adaptive.coordinator import WaitPolicy
from exec.adaptive.links_now import guessed_network
from exec.adaptive.session import Session

COUNT = 1003

def data(step, of):
    return np.random.default_rng([step, of]).integers(-1000, 1000, COUNT).astype(np.float32)

def job(comm, file, progress):
    start = comm.mesh.start
    network = None if start else guessed_network(comm)
    policy = WaitPolicy(relays=False)
    session = Session(comm, network, fence=progress.fence, replan_s=0.5, policy=policy, join_s=200)
    session.setup(COUNT)
    session.setup(COUNT // 3, kind="all_to_all")
    rank, every, step, told, measured = session.rank, (0, 1, 2), 0, [], []
    assert session.size == 3 and (start or comm.Get_size() == 2)
    # The epochs of its first start, its death, and its second start.
    while told[-4:] != [every] * 4 or session.epoch < 3:
        admission = session.admit()
        if admission.joined:
            step = int(session.all_reduce(np.full(COUNT, step * (rank == 0), np.float32)).wait(300)[0])
        if step == 3:
            Path(file).touch()
        work = session.all_reduce(data(step, rank))
        assert (work.wait(300) == np.sum([data(step, of) for of in work.members], axis=0)).all(), step
        told.append(work.members)
        measured += [step] if "measured" in [event.what for event in session.events] else []
        if start and len(measured) == 4 and not Path(file + ", died").exists():
            Path(file + ", died").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        blocks = np.repeat(100 * rank + np.arange(3, dtype=np.float32), COUNT // 3)
        work = session.all_to_all(blocks)
        found = work.wait(300).tolist()
        assert found == np.repeat([100 * of + rank for of in work.members], COUNT // 3).tolist()
        step += 1
        # The others would go on without pause while a rank starts, on the cores that it needs.
        time.sleep(0.05)
    assert told[0] == ((0, 1) if not start else every)
    links = {(link.src, link.dst) for link in session.links.measured}
    assert links == {(0, 2), (2, 0), (1, 2), (2, 1)}
    costs = session.links.capability.alpha_s.tolist(), session.links.capability.beta_s_per_byte.tolist()
    assert session.gather("costs", costs) == dict.fromkeys(every, costs)
    found = session.members, sorted(session.membership.joined), session.coordinator
    session.close()
    return found
"""

# A remote shell to a host that does not answer before there is a file.
SHELL = """#!/bin/sh
test -e FILE || exit 255
shift
exec sh -c "$*"
"""


@pytest.mark.mpi
def test_a_rank_on_a_host_that_was_no_part_of_the_run_joins_it(tmp_path, monkeypatch):
    Path(tmp_path, "job_that_grows.py").write_text(GROWING)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    shell, file = tmp_path / "shell", tmp_path / "host is up"
    shell.write_text(SHELL.replace("FILE", shlex.quote(str(file))))
    shell.chmod(0o755)
    monkeypatch.setenv("PRTE_MCA_plm_ssh_agent", str(shell))
    monkeypatch.setattr("exec.launcher.restarts._MOST_S", 1.0)
    found = launch(
        "job_that_grows:job",
        str(file),
        ranks=2,
        spare="elsewhere.invalid",
        wires="sockets",
        survive=True,
        rejoin=1,
        timeout_s=HANG_S,
    )
    assert found == ((0, 1, 2), [2], 0)


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
        timeout_s=HANG_S,
    )
    return found, sorted(one.rank for one in lost)


@pytest.mark.mpi
def test_two_that_are_killed_come_back(tmp_path, monkeypatch):
    (found, events), lost = run(tmp_path, monkeypatch, 4, {1: 3, 3: 3}, 2, {})
    assert found == ((0, 1, 2, 3), {}, [1, 3], 2, 0)
    assert lost == [1, 3]
    assert {"lost", "joined", "resumed"} <= set(events)


@pytest.mark.long
@pytest.mark.mpi
def test_the_coordinator_comes_back_though_it_dies_twice_while_it_joins(tmp_path, monkeypatch):
    dying = {1: "_regroup", 2: "_begin"}
    (found, events), lost = run(tmp_path, monkeypatch, 3, {0: 3}, 2, dying)
    assert found == ((0, 1, 2), {}, [0], 2, 1)
    assert lost == [0]
    assert "joined" in events
