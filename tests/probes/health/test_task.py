"""The task on the ranks: one rank of each machine reads, and what they read is merged up a tree."""

import pytest
from one_of_several import OneOfSeveral

from exec.records import decode, encode
from probes.base import UsageError, distinct
from probes.health import (
    ClusterHealth,
    HealthRequest,
    HostHealth,
    cluster_health,
    group_of,
    health_task,
    merged_groups,
    task,
)


class Kept:
    def __init__(self):
        self.values, self.told = [], []

    def update(self, done, total, text=""):
        self.told.append((done, total))

    def waiting(self, peer, what):
        pass

    def partial(self, value):
        self.values.append(value)


ONCE = HealthRequest(seconds=0.0)


def read(comm, request=ONCE, kept=None):
    """The health that the task returns on a rank, None where it returns none."""
    found = health_task(comm, request, kept or Kept())
    return None if found is None else cluster_health(found)


def test_the_first_rank_of_a_host_reads_and_the_others_do_not():
    [found] = read(OneOfSeveral(0, [None, None])).hosts
    assert found.alike["kernel"]
    assert read(OneOfSeveral(1, [None, None])) is None


def test_hosts_that_are_alike_are_merged_and_one_of_them_is_described():
    others = [group_of(rank, HostHealth(f"n{rank}", alike={"kernel": "5"})) for rank in (1, 2)]
    found = read(OneOfSeveral(0, [None, ("n1", "a"), ("n2", "b")], others))
    assert [one.host for one in found.hosts[1:]] == ["n1"]
    assert found.same == {"n1": ("n2",)}
    assert [one.host for one in found.every()][1:] == ["n1", "n2"]


def test_a_rank_sends_what_it_has_merged_towards_the_first():
    comm = OneOfSeveral(1, [("n0", "a"), None, ("n2", "b")])
    assert read(comm) is None
    [(group, receiver)] = comm.sent
    assert receiver == 0
    assert len(group.groups) == 1


def test_counters_are_read_twice_and_the_time_between_is_told():
    kept = Kept()
    [found] = read(OneOfSeveral(0, [None]), HealthRequest(seconds=0.05), kept).hosts
    assert all(nic.seconds >= 0.05 for nic in found.nics)
    assert all(0 <= done <= total for done, total in kept.told)


def test_groups_can_be_sent():
    found = health_task(OneOfSeveral(0, [None]), ONCE, Kept())
    assert decode(encode(found)) == found


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), 1e9])
def test_an_impossible_wait_is_refused(seconds):
    with pytest.raises(UsageError, match="seconds"):
        health_task(OneOfSeveral(0, [None]), HealthRequest(seconds), Kept())


def test_a_reader_that_fails_is_told_and_does_not_fail_the_rest(monkeypatch):
    def fail(name):
        raise OSError("gone")

    monkeypatch.setattr(task, "read_host", fail)
    failed = health_task(OneOfSeveral(0, [None]), ONCE, Kept())
    found = cluster_health(merged_groups(failed, group_of(1, HostHealth("b"))), [("c", "no route")])
    assert [one.host for one in found.hosts] == ["b"]
    [name] = failed.failed
    assert found.missing == {name: "OSError: gone", "c": "no route"}


def test_two_ranks_of_one_machine_are_one_host_and_two_machines_of_one_name_are_two():
    names = distinct(["a", "a", "b", "a-2"])
    assert names == ["a", "a-2", "b", "a-2-2"]
    found = ClusterHealth(tuple(map(HostHealth, names)))
    assert list(found.problems()) == []
