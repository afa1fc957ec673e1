from dataclasses import replace

import pytest

from probes.topology import FabricLink, Gpu, Host, Nic, PciDevice, Topology


def link(source, target, count, kind="gpu"):
    return FabricLink(source, target, kind, "nvlink", count, "m")


def test_links_reported_by_both_ends_count_once():
    fabric = (link("a", "b", 4), link("b", "a", 4), link("a", "c", 2), link("a", "nvswitch", 6, "switch"))
    assert Host("h", "m", fabric=fabric).fabric_links() == 12


def test_links_to_unknown_ends_do_not_count():
    assert Host("h", "m", fabric=(link("a", "", 12, "unknown"),)).fabric_links() == 0


@pytest.mark.parametrize(
    ("host", "problem"),
    [
        (Host("h", "m", gpus=(Gpu("a", "m", index=0), Gpu("a", "m", index=1))), "gpus: a is there 2 times"),
        (
            Host("h", "m", gpus=(Gpu("a", "m", index=0), Gpu("b", "m", index=0))),
            "gpus: index 0 is there 2 times",
        ),
        (Host("h", "m", nics=(Nic("e", "m"), Nic("e", "m"))), "nics: e is there 2 times"),
        (Host("h", "m", pci=(PciDevice("a", "m", parent="b"),)), "pci[0].parent: there is no device b"),
        (
            Host("h", "m", pci=(PciDevice("a", "m", parent="b"), PciDevice("b", "m", parent="a"))),
            "pci[0].parent: a is its own ancestor",
        ),
        (Host("h", "m", fabric=(link("a", "b", 1),)), "fabric[0].source: there is no GPU a"),
        (
            Host("h", "m", gpus=(Gpu("a", "m"),), fabric=(link("a", "b", 0),)),
            "fabric[0].count: expected a number ≥ 1, found 0",
        ),
        (
            Host("h", "m", gpus=(Gpu("a", "m"),), fabric=(replace(link("a", "b", 1), gbs=-1e308),)),
            "fabric[0].gbs: expected a rate from 0 to 1e+12, found -1e+308",
        ),
        (
            Host("h", "m", pci=(PciDevice("a", "m", max_speed_gts=1e200),)),
            "pci[0].max_speed_gts: expected a rate from 0 to 1e+12, found 1e+200",
        ),
    ],
)
def test_contradictions_are_named_with_their_place(host, problem):
    assert f"hosts[0].{problem}" in Topology((host,)).problems()


def test_a_host_that_is_there_twice_is_a_problem():
    assert Topology((Host("h", "m"), Host("h", "m"))).problems() == ["hosts: 'h' is there 2 times"]
