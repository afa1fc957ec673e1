import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.topology import (
    FabricLink,
    Gpu,
    Host,
    Nic,
    PciDevice,
    Topology,
    cpu_list,
    is_hidden,
    normal_bus_id,
)


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("0000:1b:00.0", "0000:1b:00.0"),
        ("00000000:1B:00.0", "0000:1b:00.0"),
        ("1b:00.0", "0000:1b:00.0"),
        ("0:1:2.3", "0000:01:02.3"),
        ("0000000A:1B:00.0", "000a:1b:00.0"),
        ("10000:E1:00.0", "10000:e1:00.0"),
        ("fffffff:ff:ff.0", "fffffff:ff:ff.0"),
        (" 0000:1b:00.0\n", "0000:1b:00.0"),
    ],
)
def test_bus_ids_are_written_one_way(text, normal):
    assert normal_bus_id(text) == normal
    assert normal_bus_id(normal) == normal


@pytest.mark.parametrize("text", ["", "GPU0", "0000:1b:00", "0000:1b:00.9", "0000:1bb:00.0", "x:1b:00.0"])
def test_what_is_no_bus_id_is_refused(text):
    with pytest.raises(ValueError, match="expected a PCI bus id"):
        normal_bus_id(text)


@pytest.mark.parametrize(
    ("text", "hidden"),
    [("fffffff:ff:ff.0", True), ("FFFFFFFF:FF:FF.F", True), ("0000:ff:1f.0", False), ("ffff:ff:01.0", False)],
)
def test_the_bus_id_of_a_hidden_device(text, hidden):
    assert is_hidden(normal_bus_id(text)) == hidden


@given(st.sets(st.integers(0, 300)))
def test_cpu_lists_hold_their_numbers(numbers):
    found = set()
    for run in filter(None, cpu_list(numbers).split(",")):
        first, _, last = run.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    assert found == numbers


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
    ],
)
def test_contradictions_are_named_with_their_place(host, problem):
    assert f"hosts[0].{problem}" in Topology((host,)).problems()


def test_a_host_that_is_there_twice_is_a_problem():
    assert Topology((Host("h", "m"), Host("h", "m"))).problems() == ["hosts: 'h' is there 2 times"]
