"""The nodes of a job of Slurm, from the variables that it sets."""

import socket

import pytest

from exec.launcher.nodeset import HostSlots
from exec.launcher.starters.remote import nodes, other_nodes


@pytest.mark.parametrize(
    ("listed", "tasks", "slots"),
    [
        ("gpu[1-3],login1", "2(x3),1", [2, 2, 2, 1]),
        ("gpu[08-09]", "4,3", [4, 3]),
        # In a step they are of the step's nodes alone.
        ("gpu[1-4]", "1", [1, 1, 1, 1]),
        ("gpu[1-2]", "", [1, 1]),
        ("", "2", []),
        ("(null)", "2", []),
    ],
)
def test_nodes_have_as_many_slots_as_the_job_has_tasks_there(listed, tasks, slots, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_NODELIST", listed)
    monkeypatch.setenv("SLURM_TASKS_PER_NODE", tasks)
    assert [node.slots for node in nodes()] == slots


def test_a_job_that_has_this_host_alone_names_none(monkeypatch):
    monkeypatch.delenv("SLURM_JOB_NODELIST", raising=False)
    assert (nodes(), other_nodes()) == ((), None)
    monkeypatch.setenv("SLURM_TASKS_PER_NODE", "8")
    monkeypatch.setenv("SLURM_JOB_NODELIST", socket.gethostname())
    assert (nodes(), other_nodes()) == ((HostSlots(socket.gethostname(), 8),), None)
    monkeypatch.setenv("SLURM_JOB_NODELIST", "gpu1")
    assert other_nodes() == "gpu1:8"
