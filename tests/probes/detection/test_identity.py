import dataclasses
import functools
import itertools
from pathlib import Path

import pytest

from probes.detection import conflicts, merge
from probes.paths.path_type import Paths
from probes.topology import FabricLink, Gpu, Host, Matrix, Nic, NumaNode, PciDevice, Topology

MACHINES = Path(__file__).parents[2] / "machines"
XML = """<system version="1"><cpu numaid="0" vendor="GenuineIntel" familyid="6" modelid="143">
 <pci busid="0000:16:00.0" class="0x030200" vendor="0x10de" device="0x2331" link_speed="{speed} GT/s"
  link_width="{width}"><gpu dev="0" sm="90">
  <nvlink target="0000:27:00.0" count="{count}" tclass="0x030200"/></gpu></pci>
 <pci busid="0000:27:00.0" class="0x030200" vendor="0x10de" device="0x2331" link_speed="32 GT/s"
  link_width="16"><gpu dev="1" sm="90">
  <nvlink target="0000:16:00.0" count="12" tclass="0x030200"/></gpu></pci>
</cpu><cpu numaid="1">
 <pci busid="0000:c8:00.0" class="0x020000" vendor="0x15b3"><nic>
  <net name="mlx5_0" port="1" speed="{mbit}"/></nic></pci>
</cpu></system>"""
SMI = "\tGPU0\tGPU1\tNIC0\tNIC1\nGPU0\t X \t{cell}\tSYS\tSYS\nGPU1\t{cell}\t X \tSYS\tSYS\n" + (
    "NIC0\tSYS\tSYS\t X \tPIX\nNIC1\tSYS\tSYS\tPIX\t X \n\nNIC Legend:\n  NIC0: mlx5_0\n  NIC1: mlx5_1\n"
)


@functools.cache
def machine(name="linux-dell-h100pcie"):
    return merge.read_recording(MACHINES / name)


def xml(speed="32", width=16, count=12, mbit=100_000):
    text = XML.format(speed=speed, width=width, count=count, mbit=mbit)
    return merge.read_file(text.encode(), "topo.xml")


def smi(cell="NV12"):
    return merge.read_file(SMI.format(cell=cell).encode(), "smi.txt")


def disagreeing(*parts):
    return [f"{f.where}: {f.text}" for f in merge.combined(parts).findings if f.what == "disagree"]


def test_three_descriptions_of_one_machine_are_one_host_without_a_finding():
    for parts in itertools.permutations((machine(), xml(), smi())):
        found = merge.combined(parts)
        assert found.findings == ()
        assert found.problems() == []
        (host,) = found.hosts
        counted = (len(host.gpus), len(host.physical_nics), host.fabric_links(), len(host.numa))
        assert counted == (2, 2, 12, 2)
        assert [gpu.bus_id for gpu in host.gpus] == ["0000:16:00.0", "0000:27:00.0"]
        assert any("one machine" in note for note in found.notes)


def test_later_descriptions_fill_what_earlier_ones_do_not_say():
    host = merge.combined([xml(), machine()]).hosts[0]
    assert host.gpus[0].uuid and host.gpus[0].method_of["uuid"] == "nvml"
    assert host.gpus[0].method == "nccl_xml"
    assert {"path", "p2p_read"} <= {matrix.what for matrix in host.matrices}


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        (
            (machine(), xml(width=8)),
            "0000:16:00.0: max_width: sysfs says 16, nccl_xml says 8; the first is taken",
        ),
        (
            (xml(width=8), machine()),
            "0000:16:00.0: max_width: nccl_xml says 8, sysfs says 16; the first is taken",
        ),
        ((machine(), xml(speed="16")), "max_speed_gts: sysfs says 32.0, nccl_xml says 16.0"),
        ((machine(), xml(count=11)), "nvml says 12 nvlink links, nccl_xml says 11"),
        ((machine(), xml(mbit=200_000)), "ens5f0np0: speed_mbit: sysfs says 100000, nccl_xml says 200000"),
        ((machine(), smi("PHB")), "smi says PHB, the PCI tree and the links say NVL, between"),
    ],
)
def test_where_two_say_different_things_both_are_named(parts, text):
    assert [found for found in disagreeing(*parts) if text in found]


def test_the_first_is_taken():
    device = {d.bus_id: d for d in merge.combined([machine(), xml(width=8)]).hosts[0].pci}["0000:16:00.0"]
    assert device.max_width == 16
    device = {d.bus_id: d for d in merge.combined([xml(width=8), machine()]).hosts[0].pci}["0000:16:00.0"]
    assert device.max_width == 8


def test_two_files_of_one_kind_are_two_machines():
    found = merge.combined([xml(), xml()])
    assert [(host.name, len(host.gpus)) for host in found.hosts] == [("topo", 2), ("topo-2", 2)]
    assert found.findings == ()
    found = merge.combined([xml(), smi(), xml(), smi()])
    assert [len(host.gpus) for host in found.hosts] == [2, 2]
    assert {len(host.matrices) for host in found.hosts} == {1}


def test_findings_follow_a_host_that_gets_another_name():
    odd = merge.read_file(XML.format(speed="32", width=16, count=9, mbit=1).encode(), "topo.xml")
    found = merge.combined([odd, odd])
    assert {finding.where.split("/")[0] for finding in found.findings} == {"topo", "topo-2"}


def test_other_uuids_are_another_machine_though_all_bus_ids_are_the_same():
    one = machine()
    host = one.hosts[0]
    gpus = tuple(dataclasses.replace(gpu, uuid=f"{gpu.uuid}x") for gpu in host.gpus)
    other = Topology((dataclasses.replace(host, method="hwloc", gpus=gpus),))
    assert len(merge.combined([one, other]).hosts) == 2
    same = Topology((dataclasses.replace(host, method="hwloc"),))
    assert len(merge.combined([one, same]).hosts) == 1


@pytest.mark.parametrize("name", ["linux-kvm-a100", "linux-supermicro-mi300x", "linux-hpe-ibdown"])
def test_other_machines_stay_apart(name):
    assert len(merge.combined([machine(), machine(name), smi()]).hosts) == 2


def test_a_gpu_that_fell_off_the_bus_is_a_finding():
    host = machine().hosts[0]
    less = dataclasses.replace(
        host,
        gpus=host.gpus[:1],
        pci=tuple(device for device in host.pci if device.bus_id != "0000:27:00.0"),
        fabric=(),
        matrices=(),
    )
    found = merge.combined([Topology((less,)), xml()])
    assert [(f.what, f.where) for f in found.findings if f.what == "absent-gpu"] == [
        ("absent-gpu", "linux-dell-h100pcie/0000:27:00.0")
    ]
    assert len(found.hosts[0].gpus) == 2


def test_a_stated_path_fills_in_where_the_tree_does_not_tell():
    gpus = tuple(Gpu(f"gpu{n}", "smi", index=n) for n in range(2))
    matrix = Matrix("path", ("gpu0", "gpu1"), (("X", "PXB"), ("PXB", "X")), "smi")
    host = Host("h", "smi", gpus=gpus, matrices=(matrix,))
    assert Paths(host).between(*gpus) == "PXB"
    assert list(conflicts.with_stated(host)) == []


def test_many_pairs_that_disagree_alike_are_one_finding():
    names = [f"0000:0{n}:00.0" for n in range(1, 5)]
    cells = tuple(tuple("X" if a == b else "PIX" for b in names) for a in names)
    host = Host(
        "h",
        "m",
        pci=tuple(PciDevice(name, "m", root=f"pci{name}", numa=0) for name in names),
        gpus=tuple(Gpu(name, "m", index=n) for n, name in enumerate(names)),
        matrices=(Matrix("path", tuple(names), cells, "smi"),),
    )
    (found,) = conflicts.with_stated(host)
    assert "smi says PIX, the PCI tree and the links say NODE" in found.text
    assert "and 3 more; the tree is taken" in found.text


def test_only_what_cannot_change_is_compared():
    now = Host(
        "h",
        "a",
        numa=(NumaNode(0, "a", vendor="X"),),
        pci=(PciDevice("p", "a", width=16, speed_gts=2.5, pci_class="0x030200"),),
        nics=(Nic("e", "a", state="up", mtu=1500, mac="AA:bb"),),
        fabric=(FabricLink("p", "", "unknown", "nvlink", 2, "a", state="down"),),
    )
    later = Host(
        "h",
        "b",
        numa=(NumaNode(0, "b"),),
        pci=(PciDevice("p", "b", width=8, speed_gts=16.0, pci_class="0x0302"),),
        nics=(Nic("e", "b", state="down", mtu=9000, mac="aa:BB"),),
    )
    assert conflicts.between([Topology((now,)), Topology((later,))]) == []


def test_a_tool_may_give_the_limit_of_the_slot_for_that_of_the_card():
    tree = (PciDevice("r", "a", role="root", max_width=8), PciDevice("c", "a", parent="r", max_width=16))
    card = (PciDevice("c", "b", max_width=8),)
    parts = [Topology((Host("h", "a", pci=tree),)), Topology((Host("h", "b", pci=card),))]
    assert conflicts.between(parts) == []
