"""NICs that trials find, against those that a topology declares."""

from probes.sampling.samples import Place
from probes.sharing.model import Share
from probes.sharing.nics import contradicted


def test_trials_that_contradict_the_topology_are_told_with_their_cost():
    places = [Place(host, 8, "process", f"eth{nic}") for host in "ab" for nic in (0, 1)]
    out = [(0, 2), (0, 3), (1, 2), (1, 3)]
    joined = [Share("a NIC egress", tuple(out))]
    assert contradicted(places, joined) == [
        "a: eth0, eth1 are declared apart, but together carry no more than one: data that leave the host "
        "take 2.0 times as long as declared"
    ]
    as_declared = [
        Share("a NIC egress"),
        Share("a NIC 0 egress", tuple(out[:2])),
        Share("a NIC 1 egress", tuple(out[2:])),
    ]
    assert contradicted(places, as_declared) == []
    one_nic = [Place(host, 8, "process", "eth0") for host in "ab" for _ in range(2)]
    assert "NICs of their own" in contradicted(one_nic, as_declared)[0]
    assert contradicted([Place("a", 8)] * 2 + [Place("b", 8)] * 2, joined) == []
