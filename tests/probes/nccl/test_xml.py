from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given, strategies as st

from probes.base.errors import DataError
from probes.detection import merge
from probes.files.xml import parse_xml
from probes.nccl import xml
from probes.nccl.exporter import export
from probes.nccl.ports import numbered_ports
from probes.nccl.values import affinity_list, architecture, capability, integer
from probes.paths import pci_ids
from probes.paths.path_type import Paths

FILES = Path(__file__).parents[3] / "../shared/data/topologies/nccl"
real = pytest.mark.skipif(not FILES.is_dir(), reason="the shared topology files are not beside this checkout")

# Contents of each file, counted by reading it: GPUs, network ports, physical NVLink or xGMI links.
# A NIC is one network port: a <net>, or where the file has none, a PCI function of class 0x02.
EXPECTED = {
    "aws-p4d-24xl-topo.xml": (8, 4, 0),  # classes only; each of the 4 switches has 2 GPUs and an EFA
    "aws-p4de-24xl-topo.xml": (8, 4, 0),
    "azure-ncv4-topo.xml": (4, 1, 0),  # each GPU's NVLinks lead to itself, so their ends are unknown
    "azure-ndv2-topo.xml": (8, 1, 0),  # classes only; one InfiniBand card for all
    "azure-ndv4-topo.xml": (8, 8, 0),
    "azure-ndv5-topo.xml": (8, 8, 0),
    "gvisor-b200-vm-fabric.xml": (8, 13, 144),  # 5 front-end ports and 8 rails; 18 links a GPU to the switch
    "gvisor-b200-vm-pernic.xml": (8, 13, 144),  # the same machine: each peer is given as a switch
    "rccl-topo_16p1h.xml": (16, 8, 56),  # a GPU is one die; 4, 2 and 1 links between dies, 112 ends
    "rccl-topo_3p_pcie.xml": (3, 1, 0),
    "rccl-topo_4p2h_2nic.xml": (8, 2, 8),  # two rings of four
    "rccl-topo_4p_940.xml": (4, 4, 6),  # all to all
    "rccl-topo_8p6l_4nic.xml": (8, 4, 24),  # six neighbours each
    "rccl-topo_8p_940.xml": (8, 8, 28),  # all to all
    "rccl-topo_8p_pcie.xml": (8, 1, 0),
    "rccl-topo_8p_rome_n4.xml": (8, 1, 8),
    "rccl-topo_8p_ts1_n4.xml": (8, 2, 8),
    "rccl-topo_collnet_n4.xml": (8, 4, 12),  # two cliques of four
    "sugarlxn-nccl_topo.xml": (4, 1, 0),  # 61 <net>: one real card, 15 software interfaces at each of 4 CPUs
}
REFUSED = {
    "azure-ncv4-graph.xml": "graph file",
    "aws-g5.48xl-topo.xml": "neither a GPU nor a NIC",  # 9 PCI devices without class or content
}


def read(text, source="box.xml"):
    return merge.from_file(text.encode(), source)


def host_of(inside):
    return read(f'<system version="1">{inside}</system>').hosts[0]


def gpu(bus, inside="", attributes='dev="0" sm="80"', pci='class="0x030200" vendor="0x10de"'):
    return f'<pci busid="0000:{bus}:00.0" {pci}><gpu {attributes}>{inside}</gpu></pci>'


@real
@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_a_real_file_gives_its_gpus_ports_and_links(name):
    found = merge.from_file((FILES / name).read_bytes(), name)
    (host,) = found.hosts
    assert (len(host.gpus), len(host.physical_nics), host.fabric_links()) == EXPECTED[name]
    assert found.problems() == []
    assert {device.method for device in host.pci} <= {"nccl_xml"}


@real
@pytest.mark.parametrize("name", sorted(REFUSED))
def test_a_real_file_that_describes_no_device_is_refused_with_the_reason(name):
    with pytest.raises(DataError, match=REFUSED[name]) as caught:
        merge.from_file((FILES / name).read_bytes(), name)
    assert caught.value.source == name
    assert caught.value.hint


@real
def test_every_shared_file_is_expected_here():
    assert {path.name for path in FILES.glob("*.xml")} == {*EXPECTED, *REFUSED}


@real
@pytest.mark.parametrize(
    ("name", "paths"),
    [
        ("azure-ndv4-topo.xml", {"PIX": 16, "SYS": 48}),
        ("azure-ndv5-topo.xml", {"PIX": 8, "PHB": 24, "SYS": 32}),
        ("rccl-topo_8p_940.xml", {"PXB": 8, "PHB": 24, "SYS": 32}),
        ("sugarlxn-nccl_topo.xml", {"PHB": 1, "SYS": 3}),
    ],
)
def test_paths_from_gpus_to_nics_of_a_real_file(name, paths):
    (host,) = merge.from_file((FILES / name).read_bytes(), name).hosts
    between = Paths(host).between
    assert Counter(between(g, n) for g in host.gpus for n in host.physical_nics) == paths


@real
def test_doubtful_values_of_real_files_are_findings():
    def whats(name):
        found = merge.from_file((FILES / name).read_bytes(), name)
        return Counter(finding.what for finding in found.findings)

    assert whats("rccl-topo_4p_940.xml") == {"bogus-speed": 4}
    assert whats("azure-ncv4-topo.xml") == {"self-link": 4}
    assert whats("gvisor-b200-vm-pernic.xml") == {"peer-as-switch": 8}
    assert whats("rccl-topo_8p_940.xml") == {}


def test_a_gpu_element_beats_the_class_so_other_functions_of_that_class_are_no_gpus():
    host = host_of(
        f'<cpu numaid="0">{gpu("01")}<pci busid="0000:02:00.0" class="0x030000" vendor="0x1002"/></cpu>'
    )
    assert [g.bus_id for g in host.gpus] == ["0000:01:00.0"]


@pytest.mark.parametrize(
    ("attributes", "is_gpu"),
    [
        ('class="0x030200"', True),
        ('class="0x030000" vendor="0x10de"', True),
        ('class="0x038000" vendor="0x1002"', True),
        ('class="0x120000" vendor="0x1002"', True),
        ('class="0x120000"', True),
        ('class="0x030200" vendor="0x0000"', True),
        ('class="0x030000" vendor="0x1a03"', False),
        ('class="0x120000" vendor="0x1da3"', False),
        ('class="0x060400"', False),
        ('class="0x010802"', False),
    ],
)
def test_without_gpu_elements_the_class_decides(attributes, is_gpu):
    host = host_of(f'<cpu><pci busid="0:1:0.0" {attributes}/><pci busid="0:2:0.0" class="0x020000"/></cpu>')
    assert len(host.gpus) == is_gpu
    assert len(host.physical_nics) == 1


def test_several_switches_add_up_and_peers_named_as_switches_do_not():
    switches = "".join(
        f'<nvlink target="0000:c{n}:00.0" count="{count}" tclass="0x068000"/>'
        for n, count in enumerate((5, 4, 5, 4))
    )
    hopper = gpu("01", switches, 'dev="0" sm="90"')
    host = host_of(f"<cpu>{hopper}</cpu>")
    assert host.fabric_links() == 18
    assert {link.target_kind for link in host.fabric} == {"switch"}
    assert {link.gbs for link in host.fabric} == {20.6}

    peers = ["0000:01:00.0", "0000:02:00.0", "0000:03:00.0"]
    inside = ""
    for number, own in enumerate(peers):
        links = "".join(f'<nvlink target="{p}" count="18" tclass="0x068000"/>' for p in peers if p != own)
        inside += gpu(own[5:7], links, f'dev="{number}" sm="100"')
    host = host_of(f"<cpu>{inside}</cpu>")
    assert [(link.target, link.count) for link in host.fabric] == [("nvswitch", 18)] * 3
    assert host.fabric_links() == 54


def test_links_between_gpus_count_once_and_what_only_one_end_reports_is_a_finding():
    one = '<nvlink target="0000:02:00.0" count="2" tclass="0x030200"/>'
    two = '<nvlink target="0000:01:00.0" count="1" tclass="0x030200"/>'
    inside = gpu("01", one) + gpu("02", two, 'dev="1" sm="80"')
    found = read(f'<system version="1"><cpu numaid="0">{inside}</cpu></system>')
    assert found.hosts[0].fabric_links() == 2
    assert [(f.what, f.where) for f in found.findings] == [("one-sided", "box/0000:01:00.0")]


def test_links_to_what_is_not_in_the_file_are_kept_with_a_finding():
    inside = gpu("01", '<nvlink target="0000:07:00.0" count="4" tclass="0x030200"/>')
    found = read(f"<system><cpu>{inside}</cpu></system>")
    assert found.hosts[0].fabric[0].target_kind == "unknown"
    assert found.findings[0].what.startswith("absent-peer")
    assert found.problems() == []


def test_a_cpu_can_be_at_the_end_of_nvlink_and_c2c():
    nvlink = gpu("01", '<nvlink target="0004:00:00.0" count="3" tclass="0x068001"/>', 'dev="0" sm="70"')
    c2c = gpu("02", '<c2c bw="449" count="1"/>', 'dev="1" sm="90"')
    c2c_too = gpu("03", '<c2c bw="449" count="1"/>', 'dev="2" sm="90"')
    host = host_of(f'<cpu numaid="1" arch="arm64">{nvlink}{c2c}{c2c_too}</cpu>')
    assert [(link.kind, link.target) for link in host.fabric] == [
        ("nvlink", "numa1"),
        ("c2c", "numa1"),
        ("c2c", "numa1"),
    ]
    assert host.fabric_links() == 3
    between = Paths(host).between
    assert [between(host.gpus[1], g) for g in host.gpus] == ["PHB", "LOC", "C2C"]


def test_host_hashes_are_hosts_and_bus_ids_may_repeat_between_them():
    cpu = '<cpu host_hash="0x{}" numaid="0">{}</cpu>'
    found = read(f"<system>{cpu.format('a', gpu('01'))}{cpu.format('b', gpu('01'))}</system>", "rack.xml")
    assert [(host.name, len(host.gpus)) for host in found.hosts] == [("rack-0", 1), ("rack-1", 1)]
    assert found.problems() == []


def test_software_interfaces_are_told_from_ports():
    def nets(*names):
        return "<nic>" + "".join(f'<net name="{n}" dev="0" speed="10000"/>' for n in names) + "</nic>"

    nic = '<pci busid="0000:05:00.0" class="0x020000">' + nets("mlx5_0", "mlx5_1", "mlx5_0+mlx5_1") + "</pci>"
    above = nets("eth0", "docker0", "br-12", "veth12", "bond0", "lo", "odd")
    host = host_of(f'<cpu numaid="0">{nic}{above}</cpu><cpu numaid="1">{nets("odd")}</cpu>')
    assert {n.name for n in host.physical_nics} == {"mlx5_0", "mlx5_1", "eth0"}
    assert len(host.nics) == 10


def test_ports_that_share_a_name_are_told_by_port_or_place():
    card = (
        '<pci busid="0000:0{}:00.0" class="0x020700"><nic><net name="mlx4_0" port="1"/>'
        '<net name="mlx4_0" port="2"/><net name="mlx4_0" port="2"/></nic></pci>'
    )
    host = host_of(f"<cpu>{card.format(5)}{card.format(6)}</cpu>")
    assert [(n.name, n.bus_id, n.port) for n in host.physical_nics] == [
        ("mlx4_0", "0000:05:00.0", 1),
        ("mlx4_0:2", "0000:05:00.0", 2),
        ("mlx4_0@0000:06:00.0", "0000:06:00.0", 1),
        ("mlx4_0@0000:06:00.0:2", "0000:06:00.0", 2),
    ]


def test_a_network_function_without_a_net_is_a_port_beside_those_that_have_one():
    host = host_of(
        '<cpu><pci busid="0000:05:00.0" class="0x020700"><nic><net name="mlx5_0"/></nic></pci>'
        '<pci busid="0000:06:00.0" class="0x020000"/></cpu>'
    )
    assert [n.name for n in host.physical_nics] == ["mlx5_0", "0000:06:00.0"]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "the file is empty"),
        (b" \n", "the file is empty"),
        (b"\tGPU0\tGPU1\nGPU0\t X \tNV4\n", "not whole XML"),
        (b'{"schema": "ccctl/topology/1"}', "not whole XML"),
        (b'<system version="1"><cpu numaid="0">', "not whole XML"),
        (b"\x00\xff" * 50, "not whole XML"),
        (b"<system/>", "no PCI device"),
        (b'<system><cpu><pci busid="0:0:0.0" class="0x060400"/></cpu></system>', "of other classes"),
        (b"<system><cpu><nic><net name='docker0'/></nic></cpu></system>", "no PCI device"),
        (b"<html><body/></html>", "found <html>"),
        (b'<!DOCTYPE topology SYSTEM "hwloc2.dtd"><topology/>', "hwloc"),
        (b'<!DOCTYPE x [<!ENTITY a "b"><!ENTITY c "&a;&a;">]><system>&c;</system>', "document type"),
        (b"<system>" + b"<pci>" * 5000, "levels"),
        (b'<?xml version="1.0" encoding="klingon"?><system/>', "encoding"),
        (b'<system><cpu><pci class="0x030200"/></cpu></system>', "line 1: <pci> busid"),
        (b'<system><cpu>\n<pci busid="zz:1"><gpu/></pci></cpu></system>', "line 2: <pci> busid"),
        (b"<system><cpu><gpu dev='0'/></cpu></system>", "expected <gpu> inside a <pci>"),
        (b'<system><cpu><pci busid="0:0:1.0"><gpu><nvlink/></gpu></pci></cpu></system>', "<nvlink> target"),
    ],
)
def test_what_is_no_topology_is_refused_with_its_reason(content, reason):
    with pytest.raises(DataError) as caught:
        xml.read(content, "odd.xml")
    assert reason in caught.value.message
    assert caught.value.message.startswith("odd.xml: ")
    assert caught.value.hint


def test_looser_spellings_are_read():
    host = host_of(
        '<pci busid="00000000:0A:00.0" class="030200" vendor="10DE"/>'
        '<pci busid="0000:0b:00.0" class="0X020700"/><pci busid="0000:0c:00.0"><net name="eth7"/></pci>'
    )
    assert [(g.bus_id, g.vendor) for g in host.gpus] == [("0000:0a:00.0", "nvidia")]
    assert [nic.name for nic in host.physical_nics] == ["eth7", "0000:0b:00.0"]
    assert [node.index for node in host.numa] == [-1]


def test_a_cpu_without_host_hash_belongs_to_the_host_that_has_one():
    found = read(f'<system><cpu host_hash="0x1">{gpu("01")}</cpu><cpu>{gpu("02")}</cpu></system>')
    assert [len(host.gpus) for host in found.hosts] == [2]


def test_a_function_of_a_gpus_class_without_its_element_is_noted():
    found = read(f'<system><cpu>{gpu("01")}<pci busid="0:2:0.0" class="0x030200"/></cpu></system>')
    assert any("0000:02:00.0" in note and "not counted" in note for note in found.notes)


def test_other_encodings_are_read():
    text = f'<?xml version="1.0" encoding="UTF-16"?><system><cpu>{gpu("01")}</cpu></system>'
    assert len(xml.read(text.encode("utf-16"), "x.xml").hosts[0].gpus) == 1


def test_a_repeated_device_counts_once():
    device = '<pci busid="0000:01:00.0" class="0x020000"/>'
    found = read(f"<system><cpu>{device}{device}</cpu></system>")
    assert len(found.hosts[0].physical_nics) == 1
    assert [finding.what for finding in found.findings] == ["repeated"]
    assert found.problems() == []


WORDS = st.sampled_from(
    [
        "",
        "0",
        "1",
        "-1",
        "0x030200",
        "0x068000",
        "16 GT/s",
        "0000:01:00.0",
        "0000:02:00.0",
        "fffffff:ff:ff.0",
        "é",
        "9" * 30,
    ]
)
TAGS = {
    "pci": ("busid", "class", "vendor", "link_speed", "link_width"),
    "gpu": ("dev", "sm", "gcn"),
    "nvlink": ("target", "count", "tclass"),
    "xgmi": ("target", "count", "tclass"),
    "c2c": ("bw",),
    "nic": (),
    "net": ("name", "dev", "speed", "port"),
    "cpu": ("numaid", "affinity", "host_hash"),
    "odd": ("x",),
}


@st.composite
def elements(draw, depth=0):
    tag = draw(st.sampled_from(sorted(TAGS)))
    attributes = " ".join(f'{name}="{draw(WORDS)}"' for name in TAGS[tag] if draw(st.integers(0, 3)))
    inside = "".join(draw(st.lists(elements(depth + 1), max_size=3))) if depth < 5 else ""
    return f"<{tag} {attributes}>{inside}</{tag}>"


@given(st.lists(elements(), max_size=4), st.integers(0, 400))
@example(['<cpu><pci busid="0:1:0.0" class="0x030200"><pci busid="0:1:0.0"/></pci></cpu>'], 0)
def test_any_tree_is_read_whole_or_refused(inside, cut):
    text = f"<system>{''.join(inside)}</system>"
    for content in (text, text[: -cut or None]):
        try:
            found = read(content)
        except DataError as error:
            assert error.problems
        else:
            assert found.problems() == []


@pytest.mark.parametrize(
    ("mask", "listed"),
    [
        ("000000ff,ffff0000,00ffffff", "0-23,48-71"),
        ("0003ff,f0003fff", "0-13,28-41"),
        ("00000005", "0,2"),
        ("0,0", ""),
        ("", ""),
        ("what", ""),
        ("0-3,8", "0-3,8"),
        ("3-0", ""),
    ],
)
def test_affinity_masks(mask, listed):
    assert affinity_list(mask) == listed


@given(st.integers(0, 2**200))
def test_any_mask_lists_its_bits(mask):
    words = f"{mask:0{-(-max(mask.bit_length(), 1) // 32) * 8}x}"
    listed = affinity_list(",".join(words[i : i + 8] for i in range(0, len(words), 8)))
    bits = set()
    for run in filter(None, listed.split(",")):
        first, _, last = run.partition("-")
        bits |= set(range(int(first), int(last or first) + 1))
    assert sum(1 << bit for bit in bits) == mask


def test_spellings_of_values():
    speeds = ("16 GT/s", "16.0 GT/s PCIe", "2.5 GT/s", "", "Unknown speed")
    assert [pci_ids.speed_gts(text) for text in speeds] == [
        16.0,
        16.0,
        2.5,
        None,
        None,
    ]
    assert [integer(text) for text in ("12", "0x10", "-1", "", "many", "1.5")] == [
        12,
        16,
        -1,
        None,
        None,
        None,
    ]
    assert [
        architecture(*pair) for pair in (("90", ""), ("304", "gfx942"), ("104", "910"), ("64", "906"))
    ] == [
        "sm_90",
        "gfx942",
        "gfx90a",
        "gfx906",
    ]
    assert [capability(*pair) for pair in (("90", ""), ("100", ""), ("304", "gfx942"), ("", ""))] == [
        "9.0",
        "10.0",
        "",
        "",
    ]


def test_a_tree_keeps_lines_and_order():
    root = parse_xml(b"<a>\n<b x=' 1 '/>\n<c/></a>", "x")
    assert [(child.tag, child.line, child.get("x")) for child in root.children] == [
        ("b", 2, "1"),
        ("c", 3, ""),
    ]


def test_the_number_of_a_nic_in_the_plugin_is_kept():
    content = b"""<system version="1"><cpu numaid="0" arch="x86_64" vendor="AuthenticAMD">
      <pci busid="0000:01:00.0" class="0x030200"><gpu dev="0" sm="80" rank="0"/></pci>
      <pci busid="0000:02:00.0" class="0x020000"><nic><net name="mlx5_1" dev="3" speed="100000"/></nic></pci>
      <pci busid="0000:03:00.0" class="0x020000"><nic><net name="mlx5_0" dev="1" speed="100000"/></nic></pci>
    </cpu></system>"""
    (host,) = xml.read(content, "system.xml").hosts
    assert {nic.name: nic.index for nic in host.nics} == {"mlx5_1": 3, "mlx5_0": 1}
    assert numbered_ports(host) == {"mlx5_1": 3, "mlx5_0": 1}
    unnumbered = replace(host, nics=tuple(replace(nic, index=None) for nic in host.nics))
    assert numbered_ports(unnumbered) == {"mlx5_1": 0, "mlx5_0": 1}
    half = replace(host, nics=(host.nics[0], replace(host.nics[1], index=None)))
    assert numbered_ports(half) == {"mlx5_1": 3, "mlx5_0": 0}
    # NCCL knows NICs by this number: written again it is the same.
    assert b'name="mlx5_1" dev="3"' in export(host).content


def test_partitions_of_one_pci_function_are_gpus_with_links_of_their_own():
    parts = "".join(
        f'<gpu dev="{dev}" sm="107" mlopart="{part}" rank="{rank}">'
        '<nvlink target="fffffff:ff:ff.0" count="36" tclass="0x068000"/></gpu>'
        for dev, part, rank in ((0, 0, 0), (0, 1, 1))
    )
    pci = '<pci busid="0002:{}:00.0" class="0x030200" vendor="0x10de">{}</pci>'
    other = (
        parts.replace('dev="0"', 'dev="1"').replace('rank="0"', 'rank="2"').replace('rank="1"', 'rank="3"')
    )
    found = read(f"<system><cpu>{pci.format('81', parts)}{pci.format('82', other)}</cpu></system>")
    (host,) = found.hosts
    names = [f"0002:{bus}:00.0/{part}" for bus in ("81", "82") for part in (0, 1)]
    assert [(gpu.index, gpu.bus_id) for gpu in host.gpus] == list(enumerate(names))
    assert [(link.source, link.count) for link in host.fabric] == [(name, 36) for name in names]
    assert not found.findings
    assert (found.notes, found.problems()) == ((), [])
    assert Paths(host).between(host.gpus[0], host.gpus[1]) == "NVL"
    again = read(export(host).content.decode()).hosts[0]
    assert [(gpu.index, gpu.bus_id) for gpu in again.gpus] == list(enumerate(names))
    assert [(link.source, link.count) for link in again.fabric] == [(name, 36) for name in names]
