from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from machine_changes import (
    MACHINES,
    cluster,
    edited,
    recorded,
    renumbered,
    with_host,
    without_gpu,
    without_nic,
    without_serials,
)

from probes.detection import merge
from probes.diff.comparison import compare
from probes.topology import Topology

FILES = Path(__file__).parents[3] / "../shared/data/topologies/nccl"
DGX = recorded()
BUS = {gpu.index: gpu.bus_id for gpu in DGX.hosts[0].gpus}
UP = "0000:11:00.0"
LINK = 'link_speed="16 GT/s" link_width="16"'


def fewer_links(host):
    own = [link for link in host.fabric if link.source == BUS[2] and link.state != "down"]
    return replace(host, fabric=tuple(replace(one, count=1) if one is own[0] else one for one in host.fabric))


def swapped_switches(host):
    """GPU0 sits where it did not sit before: below the switch of GPU3."""
    other = next(one.parent for one in host.pci if one.bus_id == BUS[3])
    return edited("pci", BUS[0], parent=other)(host)


CHANGES = {
    "gpu gone": (without_gpu(BUS[3]), [("missing-gpu", "critical", BUS[3])]),
    "port gone": (without_nic("mlx5_3"), [("missing-nic", "critical", "mlx5_3")]),
    "port down": (edited("nics", "ib0", state="down"), [("link-down", "critical", "ib0")]),
    "port slower": (edited("nics", "ib0", speed_mbit=100000), [("port-speed", "warning", "ib0")]),
    "port faster": (edited("nics", "ib0", speed_mbit=400000), [("port-speed", "info", "ib0")]),
    "port on another node": (edited("nics", "ib0", numa=1), [("numa-moved", "warning", "ib0")]),
    "half the lanes": (edited("pci", BUS[5], width=8), [("pcie-width", "warning", BUS[5])]),
    "an older slot": (edited("pci", BUS[5], max_speed_gts=8.0), [("pcie-speed", "warning", BUS[5])]),
    "a narrow switch": (edited("pci", UP, width=8), [("pcie-width", "warning", UP)]),
    "a slow switch": (edited("pci", UP, speed_gts=8.0), [("pcie-speed-now", "warning", UP)]),
    "a sleeping gpu": (edited("pci", BUS[5], speed_gts=5.0), []),
    "gpu on another node": (edited("gpus", BUS[1], numa=1), [("numa-moved", "warning", BUS[1])]),
    "links lost": (fewer_links, [("nvlink-count", "critical", BUS[2])]),
    "mig": (edited("gpus", BUS[4], mig=True), [("mig", "warning", BUS[4])]),
    "less memory": (edited("gpus", BUS[4], memory_bytes=1 << 35), [("memory", "warning", BUS[4])]),
    "a little memory": (edited("gpus", BUS[4], memory_bytes=85_000_000_000), []),
    "another model": (edited("pci", BUS[6], device="0x2330"), [("gpu-model", "warning", BUS[6])]),
    "peers lost": (edited("gpus", BUS[0], peers=(BUS[1],)), [("p2p-lost", "critical", BUS[0])]),
    "no counters": (edited("nics", "ib0", errors={"symbol_error": 9}), []),
    "another switch": (swapped_switches, [("switch-moved", "warning", BUS[0])]),
    "other serials": (without_serials, []),
    "other buses": (renumbered, []),
    "another machine, other buses": (lambda host: renumbered(without_serials(host)), []),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_found_and_nothing_else(name):
    change, expected = CHANGES[name]
    found = compare(DGX, with_host(DGX, change)).differences
    assert [(one.what, one.severity, one.where.partition("/")[2]) for one in found] == expected


@pytest.mark.parametrize("name", sorted(CHANGES.keys() - {"peers lost"}))
def test_whatever_differs_one_way_differs_the_other_way(name):
    change, expected = CHANGES[name]
    back = compare(with_host(DGX, change), DGX).differences
    assert len(back) == len(expected)


@pytest.mark.parametrize("name", sorted(folder.name for folder in MACHINES.iterdir() if folder.is_dir()))
def test_a_machine_is_the_same_as_itself_and_as_its_renumbered_self(name):
    machine = recorded(name)
    assert compare(machine, machine).differences == ()
    assert compare(machine, with_host(machine, renumbered)).differences == ()


def test_other_bus_ids_are_a_note():
    said = "\n".join(compare(DGX, with_host(DGX, renumbered)).notes)
    assert f"GPU0 was {BUS[0]} and is 0000:53:00.0" in said
    assert compare(DGX, DGX).notes == ()


def test_a_gpu_that_is_gone_where_buses_are_other_ones_is_one_difference():
    def change(host):
        return renumbered(without_gpu(BUS[7])(without_serials(host)))

    found = compare(DGX, with_host(DGX, change)).differences
    assert [one.what for one in found if one.severity == "critical"] == ["missing-gpu"]


@pytest.mark.skipif(not FILES.is_dir(), reason="the shared topology files are not beside this checkout")
@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (f'<pci busid="000d:00:00.0" class="0x030200" {LINK}/>', "", ["missing-gpu"]),
        (f'<pci busid="0105:00:00.0" class="0x020700" {LINK}/>', "", ["missing-nic"]),
        ('"0001:00:00.0" class="0x030200" link_speed="16 GT/s" link_width="16"',
         '"0001:00:00.0" class="0x030200" link_speed="16 GT/s" link_width="8"', ["pcie-width"]),
        ('busid="ffff:ff:02.0" class="0x060400" link_speed="16 GT/s"',
         'busid="ffff:ff:02.0" class="0x060400" link_speed="8 GT/s"', ["pcie-speed"]),
        ('link_speed="16 GT/s" link_width="16"', 'link_speed="" link_width=""', []),
        ('class="0x030200" link', 'class="0x030200" vendor="0x10de" device="0x20b0" link', []),
        ('modelid="49"', 'modelid="1"', ["cpu-model"] * 4),
        ('numaid="3"', 'numaid="-1"', []),
    ],
)  # fmt: skip
def test_an_edited_copy_of_a_static_file_differs_by_the_edit(old, new, expected):
    content = (FILES / "azure-ndv4-topo.xml").read_text()
    assert old in content
    one, other = (merge.from_file(text.encode(), "ndv4.xml") for text in (content, content.replace(old, new)))
    assert [difference.what for difference in compare(one, other).differences] == expected


def test_what_a_file_of_functions_does_not_say_is_no_difference():
    """NCCL's static files have no GPU elements, names or NVLinks; the live machine has them all."""
    text = "<system><cpu numaid='0'>"
    text += "".join(
        f'<pci busid="{gpu.bus_id}" class="0x030200"/>' for gpu in DGX.hosts[0].gpus if gpu.numa == 0
    )
    text += "</cpu><cpu numaid='1'>"
    text += "".join(
        f'<pci busid="{gpu.bus_id}" class="0x030200"/>' for gpu in DGX.hosts[0].gpus if gpu.numa == 1
    )
    file = merge.from_file(f"{text}</cpu></system>".encode(), "static.xml")
    assert [one.what for one in compare(file, DGX).differences if one.what != "extra-nic"] == []
    assert {one.severity for one in compare(file, DGX).differences} <= {"info"}


def test_hosts_are_compared_by_name_or_all_with_a_single_one():
    names = ["gpu1", "gpu2", "gpu3"]
    whole = cluster(DGX, names)
    broken = cluster(DGX, ["gpu1", "gpu2", "gpu9"], {"gpu2": without_gpu(BUS[0])})
    found = [(one.what, one.where) for one in compare(whole, broken).differences]
    assert found == [("missing-host", "gpu3"), ("missing-gpu", f"gpu2/{BUS[0]}"), ("extra-host", "gpu9")]
    assert [one.where for one in compare(DGX, broken).differences] == [f"gpu2/{BUS[0]}"]
    assert compare(DGX, Topology(())).differences == ()


@given(
    st.sets(st.integers(0, 7), max_size=4), st.sets(st.sampled_from(["ib0", "mlx5_3", "ens0"])), st.booleans()
)
def test_exactly_what_was_taken_away_is_missing(gpus, nics, other_buses):
    host = without_serials(DGX.hosts[0])
    for index in gpus:
        host = without_gpu(BUS[index])(host)
    for name in nics:
        host = without_nic(name)(host)
    found = compare(DGX, Topology((renumbered(host) if other_buses else host,))).differences
    gone = [one for one in found if one.what in ("missing-gpu", "missing-nic")]
    assert len(gone) == len(gpus) + len(nics)
    assert not [one for one in found if one.what.startswith("extra")]
    if not other_buses:
        assert {one.where.partition("/")[2] for one in gone} == {BUS[index] for index in gpus} | nics
