"""The lines that make packets of a lab get lost, as values: no kernel is asked."""

import pytest

from exec.lab.htb import port
from exec.lab.losses import commands, losses
from exec.lab.model import Lab, LabHost


def test_packets_are_lost_where_they_arrive():
    lab = Lab("any", (LabHost("a", egress_loss=0.25), LabHost("b", ingress_loss=0.5)))
    assert losses(lab) == {(lab.switch, port(0)): 0.25, (lab.namespace("b"), "eth0"): 0.5}


@pytest.mark.parametrize(
    ("share", "threshold"), [(0.5, 1 << 31), (0.25, 1 << 30), (1.0, (1 << 32) - 1), (1e-9, 4)]
)
def test_a_packet_passes_if_its_random_number_is_at_least_the_threshold(share, threshold):
    lines = commands("p0", 0.0, share)
    assert lines[0] == "qdisc add dev p0 clsact"
    assert lines[1].startswith("filter add dev p0 ingress protocol ip")
    assert f"53 1 0 {threshold},6 0 0 2,6 0 0 4294967295" in lines[1]


def test_a_loss_changes_in_place_and_goes():
    assert [line.split()[:2] for line in commands("p0", 0.1, 0.2)] == [["filter", "replace"]]
    assert commands("p0", 0.1, 0.0) == ["qdisc del dev p0 clsact"]
    assert commands("p0", 0.1, 0.1) == commands("p0", 0.0, 0.0) == []
