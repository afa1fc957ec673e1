"""The task on the ranks: one rank of each machine reads, rank 0 collects."""

import pytest
from one_of_several import OneOfSeveral

from exec.records import decode, encode
from probes.base import UsageError
from probes.health import (
    ClusterHealth,
    HealthRequest,
    HostHealth,
    HostReading,
    cluster_health,
    digest,
    health_task,
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


def test_the_first_rank_of_a_host_reads_and_the_others_do_not():
    kept = Kept()
    found = health_task(OneOfSeveral(0, [None, None], [None]), ONCE, kept)
    assert found == kept.values
    assert found[0].health.alike["kernel"]
    second = Kept()
    assert health_task(OneOfSeveral(1, [None, None]), ONCE, second) is None
    assert second.values == []
    alone = Kept()
    assert health_task(OneOfSeveral(1, [("other", "boot"), None]), ONCE, alone) is None
    assert len(alone.values) == 1


def test_counters_are_read_twice_and_the_time_between_is_told():
    kept = Kept()
    (found,) = health_task(OneOfSeveral(0, [None]), HealthRequest(seconds=0.05), kept)
    assert all(nic.seconds >= 0.05 for nic in found.health.nics)
    assert all(0 <= done <= total for done, total in kept.told)


def test_a_reading_can_be_sent():
    (found,) = health_task(OneOfSeveral(0, [None]), ONCE, Kept())
    assert decode(encode(found)) == found
    counted = digest([found.health])
    assert decode(encode(counted)) == counted


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), 1e9])
def test_an_impossible_wait_is_refused(seconds):
    with pytest.raises(UsageError, match="seconds"):
        health_task(OneOfSeveral(0, [None]), HealthRequest(seconds), Kept())


def test_a_reader_that_fails_is_told_and_does_not_fail_the_rest(monkeypatch):
    def fail(name):
        raise OSError("gone")

    monkeypatch.setattr(task, "read_host", fail)
    (failed,) = health_task(OneOfSeveral(0, [None]), ONCE, Kept())
    assert failed.health is None
    found = cluster_health([failed, HostReading("b", "m", HostHealth("b"))], {"c": "no route"})
    assert [one.host for one in found.hosts] == ["b"]
    assert found.missing == {failed.host: "OSError: gone", "c": "no route"}


def test_two_readings_of_one_machine_are_one_host_and_two_machines_of_one_name_are_two():
    readings = [HostReading(name, machine, HostHealth(name)) for name, machine in ["am", "am", "an", "bm"]]
    found = cluster_health(readings, {})
    assert [one.host for one in found.hosts] == ["a", "a-2", "b"]
    assert isinstance(found, ClusterHealth)
    assert list(found.problems()) == []
