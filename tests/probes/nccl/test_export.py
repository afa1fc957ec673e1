import xml.etree.ElementTree as ET
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from gpu_boxes import ODD, box
from machine_changes import MACHINES, edited, recorded, renumbered
from nccl_parser import TOPOLOGY, parse

from probes.base.errors import DataError
from probes.detection import merge
from probes.diff.comparison import compare
from probes.nccl.exporter import MOST_NODES, export
from probes.paths.path_type import Paths
from probes.topology import FabricLink, Gpu, Host, Nic, PciDevice, Topology

FILES = Path(__file__).parents[3] / "../shared/data/topologies/nccl"
NO_DEVICES = {"azure-ncv4-graph.xml", "aws-g5.48xl-topo.xml"}
READABLE = sorted(path.name for path in FILES.glob("*.xml") if path.name not in NO_DEVICES)
ALLOWED = {
    "system": {"cpu"},
    "cpu": {"pci", "nic"},
    "pci": {"pci", "gpu", "nic"},
    "gpu": {"nvlink", "xgmi", "c2c"},
    "nic": {"net"},
}


def read(content, name="x.xml"):
    return merge.from_file(content, name)


@pytest.mark.skipif(not FILES.is_dir(), reason="the shared topology files are not beside this checkout")
@pytest.mark.parametrize("name", READABLE)
def test_what_was_read_from_a_file_and_written_is_read_again(name):
    before = read((FILES / name).read_bytes(), name)
    done = export(before.hosts[0])
    after = read(done.content, name)
    one, other = before.hosts[0], after.hosts[0]
    leads = [link for link in one.fabric if link.target]
    assert sorted(map(repr, one.pci)) == sorted(map(repr, other.pci))
    assert set(map(repr, one.numa)) == set(map(repr, other.numa))
    assert sorted(map(repr, one.gpus)) == sorted(map(repr, other.gpus))
    assert sorted(map(repr, one.physical_nics)) == sorted(map(repr, other.physical_nics))
    assert sorted(map(repr, leads)) == sorted(map(repr, other.fabric))
    assert done.nodes == sum(1 for _ in ET.fromstring(done.content).iter())
    assert export(other).content == done.content


@pytest.mark.parametrize("name", sorted(folder.name for folder in MACHINES.iterdir() if folder.is_dir()))
def test_a_live_machine_survives_the_format(name):
    before = recorded(name)
    after = read(export(before.hosts[0]).content)
    found = compare(before, after).differences
    # A file of NCCL's has the link as both ends can run it, not as it runs now.
    assert {one.what for one in found} <= {"pcie-width", "nvlink-count"}
    here, there = Paths(before.hosts[0]), Paths(after.hosts[0])
    now = {gpu.bus_id: gpu for gpu in after.hosts[0].gpus}
    for a in before.hosts[0].gpus:
        for b in before.hosts[0].gpus:
            path = here.between(a, b)
            # Two host bridges of one NUMA node are one CPU there.
            same = {"NODE": "PHB"}.get(path, path)
            # Unknown NUMA nodes become one unknown node there.
            assert (
                path == "?"
                or {"NODE": "PHB"}.get(other := there.between(now[a.bus_id], now[b.bus_id]), other) == same
            )


def test_it_is_what_nccl_reads():
    root = ET.fromstring(export(recorded().hosts[0]).content)
    assert root.attrib == {"version": "1"}
    for element in root.iter():
        assert {below.tag for below in element} <= ALLOWED.get(element.tag, set())
    for function in root.iter("pci"):
        assert function.attrib.keys() >= {"busid", "class", "link_speed", "link_width"}
    assert root.find(".//pci").attrib["link_speed"] == "16.0 GT/s PCIe"
    gpu = root.find(".//gpu")
    assert {key: gpu.attrib[key] for key in ("dev", "sm", "rank")} == {"dev": "0", "sm": "80", "rank": "0"}
    assert {link.attrib["tclass"] for link in root.iter("nvlink")} == {"0x068000"}
    numbers = [int(net.attrib["dev"]) for net in root.iter("net")]
    assert sorted(numbers) == list(range(len(numbers)))
    first = next(net for net in root.iter("net") if net.attrib["dev"] == "0")
    assert first.attrib["name"] == "mlx5_0"


def test_a_guid_is_written_as_nccl_writes_it():
    guid = edited("nics", "ib0", guid="506b:4b03:0027:bbf2")(recorded().hosts[0])
    net = ET.fromstring(export(guid).content).find(".//net[@name='mlx5_0']")
    assert net.attrib["guid"] == "0xf2bb2700034b6b50"


def test_amd_machines_get_the_format_of_rccl():
    root = ET.fromstring(export(recorded("linux-supermicro-mi300x").hosts[0]).content)
    assert root.attrib["version"] == "2"
    assert {gpu.attrib["gcn"] for gpu in root.iter("gpu")} == {"gfx942"}
    assert len(list(root.iter("xgmi"))) == 56


def test_what_would_mislead_is_refused_with_every_reason():
    host = Host("h", "smi", gpus=(Gpu("gpu0", "smi", index=0), Gpu("0000:01:00.0", "x", index=1)))
    with pytest.raises(DataError) as caught:
        export(host)
    assert len(caught.value.problems) == 2
    assert "names no bus id (gpu0)" in caught.value.problems[0]
    assert "place in the PCI tree" in caught.value.problems[1]
    with pytest.raises(DataError, match="neither a GPU nor a NIC"):
        export(Host("h", "x"))


@pytest.mark.parametrize(("ports", "said"), [(10, ""), (60, "fail with fewer"), (130, "NCCL refuses")])
def test_nodes_are_counted_and_too_many_are_told(ports, said):
    pci = tuple(
        PciDevice(f"0000:{n:02x}:00.0", "t", root="pci0", role="device", numa=0) for n in range(ports)
    )
    nics = tuple(
        Nic(f"0000:{n:02x}:00.0", "t", physical=True, bus_id=f"0000:{n:02x}:00.0") for n in range(ports)
    )
    named = tuple(replace(nic, name=f"eth{n}") for n, nic in enumerate(nics[: ports // 2]))
    done = export(Host("h", "t", pci=pci, nics=(*named, *nics[ports // 2 :])))
    assert done.nodes == 2 + ports + 2 * (ports // 2)
    assert (done.nodes > MOST_NODES) == ("refuses" in said)
    assert [said in warning for warning in done.warnings] == ([True] if said else [])


def test_links_that_lead_nowhere_are_left_out_with_a_warning():
    function = PciDevice("0000:01:00.0", "t", root="pci0", role="device", pci_class="0x030200", numa=0)
    gpu = Gpu("0000:01:00.0", "t", index=0, arch="sm_80")
    links = (
        FabricLink("0000:01:00.0", "", "unknown", "nvlink", 3, "t"),
        FabricLink("0000:01:00.0", "", "unknown", "nvlink", 2, "t", state="down"),
        FabricLink("0000:01:00.0", "numa0", "cpu", "c2c", 1, "t", gbs=450.0),
    )
    done = export(Host("h", "t", pci=(function,), gpus=(gpu,), fabric=links))
    assert ["3 links are left out" in warning for warning in done.warnings] == [True]
    assert [(link.kind, link.gbs) for link in read(done.content).hosts[0].fabric] == [("c2c", 450.0)]


def test_names_are_escaped():
    nic = Nic('a"<&', "t", physical=True)
    content = export(Host("h", "t", nics=(nic,))).content
    assert ET.fromstring(content).find(".//net").attrib["name"] == 'a"<&'


def test_other_buses_make_another_file_of_the_same_shape():
    host = recorded().hosts[0]
    one, other = export(host), export(renumbered(host))
    assert one.nodes == other.nodes
    assert compare(read(one.content), Topology(read(other.content).hosts)).differences == ()


def test_an_unknown_numa_node_is_told():
    warnings = export(recorded("linux-hyperv-h100").hosts[0]).warnings
    assert any("the NUMA node of" in warning for warning in warnings)


def seen(node):
    """Return the number of elements of each name that NCCL's parser kept."""
    return Counter(one.name for one in every(node))


def every(node):
    yield node
    for one in node.inside:
        yield from every(one)


@pytest.mark.parametrize("name", ODD)
def test_nccls_parser_sees_every_element(name):
    content = export(box(**ODD[name])).content
    root = parse(content, TOPOLOGY, MOST_NODES)
    assert root.attributes["version"] == "1"
    assert seen(root) == Counter(one.tag for one in ET.fromstring(content).iter())
    for one in every(root):
        # NCCL ends without these attributes (src/graph/topo.cc).
        needed = {"pci": {"busid", "class", "link_speed", "link_width"}, "gpu": {"rank", "sm", "dev", "gdr"}}
        assert needed.get(one.name, set()) <= set(one.attributes)


@pytest.mark.skipif(not FILES.is_dir(), reason="the shared topology files are not beside this checkout")
@pytest.mark.parametrize("name", READABLE)
def test_nccls_parser_reads_what_was_exported(name):
    done = export(read((FILES / name).read_bytes(), name).hosts[0])
    assert sum(seen(parse(done.content, TOPOLOGY, 8192)).values()) == done.nodes
