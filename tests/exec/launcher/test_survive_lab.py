"""Ranks on the hosts of a lab: one dies, a host is cut off, or all of it goes; the others go on."""

import json
import os
import signal
import sys
import time

import pytest
from lab_traffic import sample_lab, standing
from survivors import PROGRAM, survivor_tasks

from exec.lab import lifecycle
from exec.lab.iproute import ip
from exec.lab.run import started

pytestmark = pytest.mark.netns


@pytest.fixture(autouse=True)
def tasks(tmp_path, monkeypatch):
    yield from survivor_tasks(tmp_path, monkeypatch)


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """A lab of two hosts with what its commands need beside it."""
    with standing(sample_lab(2, rate_mbit=200), tmp_path_factory.mktemp("lab")) as found:
        yield found


def value_of(place, tmp_path, arguments, happens=lambda: None, *, task="misses", rejoin=0):
    """Return the result of the lowest surviving rank; rank 0 runs on host a, ranks 1 and 2 on b."""
    lab, folder = place
    options = {"hosts": "a:1,b:2", "survive": True, "rejoin": rejoin}
    ask = [task, {"folder": str(tmp_path), **arguments}, options]
    command = [sys.executable, "-P", "-c", PROGRAM, json.dumps([*ask, str(tmp_path / "told")])]
    with started(lab, "a", command, folder) as process:
        deadline_s = time.monotonic() + 100
        while not all((tmp_path / f"up-{rank}").exists() for rank in range(3)):
            assert time.monotonic() < deadline_s and process.poll() is None
            time.sleep(0.05)
        happens()
        assert process.wait(150) == 0
    return json.loads((tmp_path / "told").read_text())


def pids_of(lab, host):
    return [int(pid) for pid in ip("netns", "pids", lab.namespace(host)).split()]


def emptied(lab, host):
    deadline_s = time.monotonic() + 60
    while pids_of(lab, host) and time.monotonic() < deadline_s:
        time.sleep(0.05)
    return pids_of(lab, host) == []


def test_a_rank_of_another_host_that_is_killed_is_lost_alone(lab, tmp_path):
    rank, lost, (how,) = value_of(lab, tmp_path, {"dying": [2], "count": 1})
    assert (rank, lost) == (0, [2])
    assert how.startswith("(host b, pid ") and how.endswith("was killed (SIGKILL)")


def test_the_ranks_of_a_host_that_is_cut_off_are_lost(lab, tmp_path):
    try:
        rank, lost, hows = value_of(
            lab, tmp_path, {"count": 2}, lambda: lifecycle.set_cable(lab[0], "b", connected=False)
        )
        assert (rank, lost) == (0, [1, 2])
        assert all("is cut off" in how for how in hows)
        assert emptied(lab[0], "b")
    finally:
        lifecycle.set_cable(lab[0], "b", connected=True)


@pytest.mark.long
def test_the_ranks_of_a_host_that_is_gone_are_lost(lab, tmp_path):
    def end_host():
        for pid in pids_of(lab[0], "b"):
            os.kill(pid, signal.SIGKILL)

    rank, lost, hows = value_of(lab, tmp_path, {"count": 2}, end_host)
    assert (rank, lost) == (0, [1, 2])
    assert all("died" in how or "killed" in how for how in hows)


@pytest.mark.long
def test_the_ranks_of_a_host_that_was_gone_are_started_again(lab, tmp_path):
    def end_host():
        for pid in pids_of(lab[0], "b"):
            os.kill(pid, signal.SIGKILL)

    assert value_of(lab, tmp_path, {}, end_host, task="host_comes_back", rejoin=2) == [1, 2]


@pytest.mark.long
def test_the_ranks_of_a_host_that_was_cut_off_are_started_again_once_it_answers(lab, tmp_path):
    def cut_off():
        lifecycle.set_cable(lab[0], "b", connected=False)
        time.sleep(8)
        lifecycle.set_cable(lab[0], "b", connected=True)

    try:
        assert value_of(lab, tmp_path, {}, cut_off, task="host_comes_back", rejoin=2) == [1, 2]
    finally:
        lifecycle.set_cable(lab[0], "b", connected=True)


def test_a_silent_rank_of_another_host_is_lost_if_it_is_stopped_and_not_if_it_is_busy(lab, tmp_path):
    rank, lost, (how,) = value_of(lab, tmp_path, {"busy": [0, 1], "stopped": [2], "count": 1})
    assert (rank, lost) == (0, [2])
    assert "does not answer, silent for" in how
