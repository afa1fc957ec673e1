import pytest
from one_of_several import OneOfSeveral

from probes.detection import merge
from probes.detection.gather import DetectRequest, HostDetection, answers_to, look_task, together
from probes.topology import Finding, Host, Nic, Topology


class Kept:
    def __init__(self):
        self.values = []

    def update(self, done, total, text=""):
        pass

    def waiting(self, peer, what):
        pass

    def partial(self, value):
        self.values.append(value)


def look(name, machine="m", failure=""):
    return HostDetection(name, machine, None if failure else Topology((Host(name, "t"),)), failure)


def test_the_first_rank_of_a_host_looks_and_the_others_do_not():
    kept = Kept()
    found = look_task(OneOfSeveral(0, [None, None], [None]), DetectRequest(), kept)
    assert found == kept.values
    assert len(found[0].topology.hosts) == 1
    second = Kept()
    assert look_task(OneOfSeveral(1, [None, None]), DetectRequest(), second) is None
    assert second.values == []
    alone = Kept()
    assert look_task(OneOfSeveral(1, [("other", "boot"), None]), DetectRequest(), alone) is None
    assert len(alone.values) == 1


@pytest.mark.parametrize("error", [ValueError("broken"), OSError("gone")])
def test_a_detector_that_fails_is_told_and_does_not_fail_the_rest(monkeypatch, error):
    def fail(name):
        raise error

    monkeypatch.setattr(merge, "live", fail)
    (failed,) = look_task(OneOfSeveral(0, [None]), DetectRequest(), Kept())
    assert failed.topology is None
    found = together([failed, look("b")], {"c": "no route"})
    assert [host.name for host in found.hosts] == ["b"]
    assert [(one.what, one.where) for one in found.findings] == [
        ("host-failed", failed.host),
        ("host-missing", "c"),
    ]
    assert str(error) in found.findings[0].text


def test_two_looks_at_one_machine_are_one_host_and_two_machines_of_one_name_are_two():
    found = together([look("a"), look("a"), look("a", "other"), look("b")], {})
    assert [host.name for host in found.hosts] == ["a", "a-2", "b"]
    assert found.problems() == []


def test_what_was_found_on_the_hosts_stays():
    odd = Finding("odd", "a/x", "is odd")
    whole = Topology((Host("a", "t"),), (odd,), ("a: note",))
    assert together([HostDetection("a", "m", whole)], {}) == whole


@pytest.mark.parametrize(
    ("name", "addresses", "same"),
    [
        ("gpu1", (), True),
        ("gpu1.cluster.example", (), True),
        ("10.0.0.1", (), True),
        ("alias", ("10.0.0.1",), True),
        ("gpu2", (), False),
        ("10.0.0.2", (), False),
        ("alias", ("10.0.0.2",), False),
    ],
)
def test_a_host_answers_to_its_names_and_addresses(name, addresses, same):
    host = Host("gpu1.other", "t", nics=(Nic("eth0", "t", addresses=("10.0.0.1", "fe80::1")),))
    assert answers_to(name, host, addresses) is same
