from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, strategies as st

from ccctl.render.text.utilization import classes, in_words, over_time, port_busy, summary
from synth.network import Link, build
from synth.networks import pod

slices = st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)).map(sorted), min_size=1, max_size=20)


@given(slices, st.integers(1, 7))
def test_over_time_holds_all_that_is_held(slices, slots):
    start_s, end_s = (np.array(column) for column in zip(*slices, strict=True))
    share = over_time(start_s, end_s, 1.0, slots, 1)
    edges = np.linspace(0, 1, slots + 1)
    for slot, (low, high) in enumerate(pairwise(edges)):
        inside = np.clip(end_s, low, high) - np.clip(start_s, low, high)
        assert share[slot] == pytest.approx(inside.sum() * slots, abs=1e-9)


def test_links_of_a_port_add_up_and_classes_follow_hosts():
    links = [Link(0, 1, 0, 1e-9), Link(0, 2, 0, 1e-9, ("nic",)), Link(1, 2, 0, 1e-9, ("nic",))]
    network = build("two hosts", ["a", "a", "b"], links)
    busy = np.array([0.5, 0.25, 0.5])
    assert port_busy(network, busy).tolist() == [0.75]
    assert {name: chosen.tolist() for name, chosen in classes(network)} == {
        "links_in_hosts": [True, False, False],
        "links_between_hosts": [False, True, True],
    }
    told = summary(network, busy)
    assert (told["links_between_hosts"]["mean"], told["ports"]["max"]) == (0.375, 0.75)
    assert [one["name"] for one in told["busiest"]] == ["port nic", "link 0→1"]


def test_ports_are_told_in_words():
    network = pod("dgx-a100:2")
    switch = [f"port {name}" for name in network.ports if "switch" in name and "rank" in name]
    nics = [f"port {name}" for name in network.ports if " nic" in name]
    assert in_words(network, switch) == ("the switch ports of all 16 ranks", True)
    assert in_words(network, nics) == ("the NIC ports of all 2 hosts", True)
    assert in_words(network, switch[:3]) == ("the outgoing switch port of rank 0 and 2 about as busy", True)
    assert in_words(network, ["port n1 nic3 ingress"]) == ("the incoming port of NIC 3 of host n1", False)
    core = "port a core b core 0"
    assert in_words(network, [core]) == ("CPU core 0 of a core b (its copies)", False)
    for name in ("port leaf 0.2 up 3", "link 0→1"):
        assert in_words(network, [name]) == (name, False)
