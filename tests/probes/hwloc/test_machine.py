import re
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from probes.base.errors import DataError
from probes.detection import merge
from probes.paths.bandwidth import load
from probes.paths.expected import expected_gbs
from probes.paths.path_type import Paths

FILES = Path(__file__).parents[3] / "../shared/data/topologies/hwloc"
real = pytest.mark.skipif(not FILES.is_dir(), reason="the shared topology files are not beside this checkout")

# Worked out by reading the files: GPUs, network ports, NVLinks, NUMA nodes, cores.
EXPECTED = {
    # Three M2070 and the console of an old server (an ATI ES1000), which is no GPU for ranks. Two Intel
    # ports, and one Mellanox card with an Ethernet and an InfiniBand port.
    "24em64t-2n6c2t-pci.xml": (3, 4, 0, 2, 12),
    # Each of 16 GPUs has one link of 25 GB/s to each of six NVSwitches. The process saw four cores.
    "nvidiaDGX2.xml": (16, 0, 96, 2, 4),
    # Two pairs with two links of 20 GB/s each, and each GPU two more to its own CPU: 2·2 + 4·2.
    "power8gpudistances.xml": (4, 0, 12, 2, 8),
}
V1 = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc.dtd">
<topology>
  <object type="Machine" os_index="0" cpuset="0x000000ff" allowed_cpuset="0x000000ff" nodeset="0x00000003">
    <info name="HostName" value="old1"/>
    <info name="Architecture" value="x86_64"/>
    <distances nbobjs="2" relative_depth="1" latency_base="10.000000">
      <latency value="1.000000"/><latency value="2.100000"/>
      <latency value="2.100000"/><latency value="1.000000"/>
    </distances>
    <object type="NUMANode" os_index="0" cpuset="0x0000000f" nodeset="0x00000001" local_memory="1024">
      <object type="Socket" os_index="0" cpuset="0x0000000f" nodeset="0x00000001">
        <info name="CPUVendor" value="GenuineIntel"/>
        <info name="CPUModelNumber" value="62"/>
        <object type="Core" os_index="0"/>
      </object>
      <object type="Bridge" os_index="0" bridge_type="0-1" depth="0" bridge_pci="0000:[00-0f]">
        <object type="Bridge" os_index="16" bridge_type="1-1" depth="1" bridge_pci="0000:[04-04]"
         pci_busid="0000:00:01.0" pci_type="0604 [8086:3408] [0000:0000] 13" pci_link_speed="8.000000">
          <object type="PCIDev" os_index="16384" pci_busid="0000:04:00.0"
           pci_type="0302 [10de:15f8] [10de:118f] a1" pci_link_speed="8.000000">
            <object type="OSDev" name="card1" osdev_type="1"/>
            <object type="OSDev" name="cuda0" osdev_type="5">
              <info name="GPUModel" value="Tesla P100-PCIE-16GB"/>
              <info name="CUDAGlobalMemorySize" value="16671616"/>
            </object>
          </object>
        </object>
        <object type="PCIDev" os_index="20480" pci_busid="0000:05:00.0"
         pci_type="0207 [15b3:1013] [15b3:0003] 00" pci_link_speed="15.753846">
          <object type="OSDev" name="mlx5_0" osdev_type="3">
            <info name="NodeGUID" value="e41d:2d03:0067:a3f0"/>
            <info name="Port1State" value="4"/>
            <info name="Port2State" value="1"/>
          </object>
        </object>
      </object>
    </object>
    <object type="NUMANode" os_index="1" cpuset="0x000000f0" nodeset="0x00000002" local_memory="2048">
      <object type="Socket" os_index="1" cpuset="0x000000f0" nodeset="0x00000002"/>
    </object>
  </object>
</topology>
"""
V2 = """<?xml version="1.0"?>
<!DOCTYPE topology SYSTEM "hwloc2.dtd">
<topology version="2.0">
  <object type="Machine" cpuset="0x0000000f" nodeset="0x00000001" gp_index="1">
    <object type="Package" os_index="0" cpuset="0x0000000f" nodeset="0x00000001" gp_index="2">
      <object type="NUMANode" os_index="0" cpuset="0x0000000f" nodeset="0x00000001" gp_index="3"/>
      <object type="Bridge" bridge_type="0-1" depth="0" bridge_pci="0000:[00-0f]" gp_index="4">
        {gpus}
        <object type="PCIDev" pci_busid="0000:09:00.0" gp_index="20"
         pci_type="0200 [15b3:101d] [15b3:0001] 00 00">
          <object type="OSDev" name="ens9" osdev_type="2" gp_index="21"/>
          <object type="OSDev" name="mlx5_2" osdev_type="3" gp_index="22"/>
        </object>
      </object>
    </object>
  </object>
  <distances2hetero nbobjs="2" kind="25" name="NVLinkBandwidth">
    <indexes length="20">OSDev:11 OSDev:13 </indexes>
    <u64values length="20">1000000 {mbs} {mbs} 1000000 </u64values>
  </distances2hetero>
</topology>
"""
GPU = (
    '<object type="PCIDev" pci_busid="0000:0{n}:00.0" pci_type="0302 [10de:{device}] [10de:0000] a1 00" '
    'gp_index="1{even}" pci_link_speed="63.015385"><object type="OSDev" name="nvml{n}" osdev_type="1" '
    'gp_index="1{odd}"><info name="NVIDIAUUID" value="GPU-{n}"/></object></object>'
)


def read(text, source="box.xml"):
    return merge.from_file(text.encode(), source)


def pair(device, mbs):
    gpus = "".join(GPU.format(n=n, device=device, even=2 * n, odd=2 * n + 1) for n in (0, 1))
    return read(V2.format(gpus=gpus, mbs=mbs)).hosts[0]


@real
@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_a_real_file_gives_its_gpus_ports_links_nodes_and_cores(name):
    found = merge.from_file((FILES / name).read_bytes(), name)
    (host,) = found.hosts
    counted = (len(host.gpus), len(host.physical_nics), host.fabric_links(), len(host.numa), host.cores)
    assert counted == EXPECTED[name]
    assert found.problems() == []
    assert found.findings == found.notes == ()
    assert {record.method for record in (*host.pci, *host.gpus, *host.nics, *host.numa)} == {"hwloc"}


@real
def test_every_shared_file_is_expected_here():
    assert {path.name for path in FILES.iterdir()} == set(EXPECTED)


@real
def test_facts_of_the_dgx_2():
    host = merge.from_file((FILES / "nvidiaDGX2.xml").read_bytes(), "nvidiaDGX2.xml").hosts[0]
    assert host.name == "nvidiaDGX2"
    assert [gpu.index for gpu in host.gpus] == list(range(16))
    assert {gpu.name for gpu in host.gpus} == {"Tesla V100-SXM3-32GB-H"}
    assert host.gpus[0].uuid == "GPU-d3977428-7a30-086b-2e20-5c1eeed647c6"
    assert [node.distances for node in host.numa] == [(10, 21), (21, 10)]
    assert (host.numa[0].vendor, host.numa[0].model, host.numa[0].arch) == ("GenuineIntel", 85, "x86_64")
    assert host.numa[0].memory_bytes == 810234351616
    targets = {link.target for link in host.fabric}
    assert (len(targets), {link.count for link in host.fabric}) == (12, {1})
    assert {link.target_kind for link in host.fabric} == {"switch"}
    between = Paths(host).between
    assert {between(a, b) for a in host.gpus for b in host.gpus if a is not b} == {"NVL"}
    # Two GPUs share a switch of two, four such pairs one more: the tree under the fabric.
    over_pci = Paths(host).over_pci
    assert [over_pci(host.gpus[0], other) for other in host.gpus[1:5]] == ["PIX", "PXB", "PXB", "NODE"]
    assert over_pci(host.gpus[0], host.gpus[8]) == "SYS"
    assert expected_gbs(host, load())["GPU0"]["GPU15"] == 120.0


@real
def test_facts_of_the_power8():
    host = merge.from_file((FILES / "power8gpudistances.xml").read_bytes(), "x.xml").hosts[0]
    assert host.name == "drac-12.grenoble.grid5000.fr"
    assert {(link.target_kind, link.count) for link in host.fabric} == {("gpu", 2), ("cpu", 2)}
    assert {link.target for link in host.fabric if link.target_kind == "cpu"} == {"numa0", "numa1"}
    assert host.numa[1].cpus == "80-81,88-89,96-97,104-105"
    assert host.gpus[0].memory_bytes == 16671616 * 1024
    # Two links of 18 GB/s between neighbours; else over NVLink to the CPU and 32 GB/s between CPUs.
    assert expected_gbs(host, load())["GPU0"] == {"GPU1": 36.0, "GPU2": 32.0, "GPU3": 32.0}


@real
def test_facts_of_the_old_server():
    host = merge.from_file((FILES / "24em64t-2n6c2t-pci.xml").read_bytes(), "x.xml").hosts[0]
    assert host.name == "mirage004"
    assert [gpu.bus_id for gpu in host.gpus] == ["0000:06:00.0", "0000:14:00.0", "0000:11:00.0"]
    assert {nic.name: nic.rdma_device for nic in host.nics} == {
        "eth0": "",
        "eth1": "",
        "eth2": "mlx4_0",
        "ib0": "mlx4_0",
    }
    assert host.nics[0].mac == "78:e7:d1:21:55:30"
    between = Paths(host).between
    assert [between(host.gpus[0], gpu) for gpu in host.gpus[1:]] == ["SYS", "SYS"]
    assert between(host.gpus[1], host.gpus[2]) == between(host.gpus[0], host.nics[0]) == "PHB"


def test_version_1_has_numa_nodes_around_sockets_and_numbers_for_kinds():
    found = read(V1)
    (host,) = found.hosts
    assert found.problems() == []
    assert (host.name, host.cores, host.cpus, host.memory_bytes) == ("old1", 1, "0-7", 3072)
    assert [(node.index, node.cpus, node.distances) for node in host.numa] == [
        (0, "0-3", (10, 21)),
        (1, "4-7", (21, 10)),
    ]
    assert (host.numa[0].vendor, host.numa[0].model) == ("GenuineIntel", 62)
    (gpu,) = host.gpus
    assert (gpu.name, gpu.index, gpu.numa, gpu.memory_bytes) == (
        "Tesla P100-PCIE-16GB",
        0,
        0,
        16671616 * 1024,
    )
    assert [(nic.name, nic.port, nic.state, nic.guid) for nic in host.nics] == [
        ("mlx5_0", 1, "active", "e41d:2d03:0067:a3f0"),
        ("mlx5_0:2", 2, "down", "e41d:2d03:0067:a3f0"),
    ]
    assert Paths(host).between(gpu, host.nics[0]) == "PHB"
    # 8 GB/s on the wire are 16 lanes of 5 GT/s, which deliver 6.
    assert expected_gbs(host, load())["GPU0"]["mlx5_0"] == 6.0


@pytest.mark.parametrize(
    ("device", "mbs", "links"),
    [
        ("15f9", 40000, 2),  # P100: 20 GB/s a link
        ("1db1", 50000, 2),
        ("20b2", 300000, 12),
        ("2331", 300000, 12),  # H100: in round numbers, or as it is
        ("2331", 318750, 12),
        ("2901", 900000, 18),
        ("ffff", 100000, 4),  # not in the table: 25 GB/s a link, if that divides it
        ("ffff", 40000, 2),
    ],
)
def test_how_many_links_a_bandwidth_is(device, mbs, links):
    host = pair(device, mbs)
    assert (len(host.gpus), host.fabric_links()) == (2, links)
    assert [(nic.name, nic.rdma_device) for nic in host.nics] == [("ens9", "mlx5_2")]


def test_no_bandwidth_is_no_link():
    assert pair("20b2", 0).fabric == ()


def test_a_machine_without_pci_devices_is_one_with_a_note():
    found = read('<topology version="2.0"><object type="Machine" cpuset="0x3"/></topology>')
    assert (found.hosts[0].cpus, found.hosts[0].gpus) == ("0-1", ())
    assert "was not asked for PCI devices" in found.notes[0]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("<topology/>", 'expected <object type="Machine">'),
        ("<topology><object type='Core'/></topology>", 'expected <object type="Machine">'),
        (V1[:700], "not whole XML"),
        (V1.replace('os_index="1"', ""), "a NUMANode without a number"),
        (V1.replace("0000:05:00.0", "zz"), "pci_busid"),
        (V2.format(gpus="", mbs="1 2"), "to be square, found 2 objects and 6 values"),
        ('<!DOCTYPE topology [<!ENTITY a "b">]><topology>&a;</topology>', "document type"),
    ],
)
def test_what_is_no_whole_topology_is_refused_with_its_reason(text, reason):
    with pytest.raises(DataError, match=re.escape(reason)) as caught:
        read(text)
    assert caught.value.hint


SAMPLES = [V1, V2.format(gpus=GPU.format(n=0, device="20b2", even=0, odd=1), mbs=0)]
SAMPLES += [path.read_text() for path in sorted(FILES.glob("power8*.xml"))]
COUNTS = {text: (len(read(text).hosts[0].gpus), len(read(text).hosts[0].nics)) for text in SAMPLES}


@given(st.sampled_from(SAMPLES), st.integers(0, 20000))
def test_cut_anywhere_it_is_refused(text, at):
    if text[at:].strip():
        with pytest.raises(DataError):
            read(text[:at])


@given(st.sampled_from(SAMPLES), st.data())
def test_with_values_changed_it_is_read_whole_or_refused(text, data):
    values = [match.span(1) for match in re.finditer(r'="([^"]*)"', text)]
    first, last = data.draw(st.sampled_from(values))
    word = data.draw(
        st.sampled_from(["", "0", "-1", "x", "0x", "1e999", "nan", "9" * 30, "0000:04:00.0", "é", "3.5"])
    )
    try:
        found = read(text[:first] + word + text[last:])
    except DataError as error:
        assert error.problems
    else:
        assert found.problems() == []


@given(st.sampled_from(SAMPLES), st.data())
def test_with_an_attribute_less_no_device_is_lost_silently(text, data):
    spans = [
        m.span()
        for m in re.finditer(r' (pci_busid|osdev_type|bridge_type|nodeset|name|gp_index)="[^"]*"', text)
    ]
    first, last = data.draw(st.sampled_from(spans))
    try:
        found = read(text[:first] + text[last:])
    except DataError as error:
        assert error.problems
    else:
        assert found.problems() == []
        assert len(found.hosts[0].gpus) == COUNTS[text][0]
