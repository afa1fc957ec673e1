import re

import pytest
from gpu_queries import GPU, query_xml
from hypothesis import given, strategies as st

from probes.base.errors import DataError
from probes.detection import merge
from probes.detection.unknown_links import WHAT
from probes.paths.path_type import Paths
from probes.smi import query

BUSES = ["00000000:18:00.0", "00000000:2A:00.0", "00000000:9A:00.0", "00000000:AB:00.0"]
# Numbers of the driver's device files need not follow the bus ids.
GPUS = [(bus, {**GPU, "uuid": f"GPU-{n}", "minor_number": str(3 - n)}) for n, bus in enumerate(BUSES)]
XML = query_xml(GPUS)
SWITCHED = "\tGPU0\tGPU1\tGPU2\tGPU3\tmlx5_0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n" + "".join(
    "\t".join([f"GPU{n}", *["X" if n == m else "NV18" for m in range(4)], "PXB" if n == 0 else "SYS"])
    + f"\t{56 * (n // 2)}-{56 * (n // 2) + 55}\t{n // 2}\t\tN/A\n"
    for n in range(4)
)


def read(*texts):
    parts = [merge.read_file(text.encode(), f"file{number}.txt") for number, text in enumerate(texts)]
    return merge.combined(parts)


def test_gpus_with_names_places_memory_and_their_pcie_links():
    (host,) = read(XML).hosts
    assert [(gpu.index, gpu.bus_id, gpu.uuid) for gpu in host.gpus] == [
        (0, "0000:18:00.0", "GPU-0"),
        (1, "0000:2a:00.0", "GPU-1"),
        (2, "0000:9a:00.0", "GPU-2"),
        (3, "0000:ab:00.0", "GPU-3"),
    ]
    gpu, device = host.gpus[0], host.pci[0]
    assert (gpu.name, gpu.arch, gpu.memory_bytes) == ("NVIDIA H100 80GB HBM3", "sm_90", 81559 << 20)
    assert (gpu.vendor, gpu.mig, gpu.method) == ("nvidia", False, "smi_query")
    assert (device.bus_id, device.pci_class, device.vendor, device.device) == (
        "0000:18:00.0",
        "0x0302",
        "0x10de",
        "0x2330",
    )
    assert (device.subsystem_vendor, device.subsystem_device) == ("0x10de", "0x16c1")
    assert (device.speed_gts, device.max_speed_gts, device.width, device.max_width) == (2.5, 32.0, 16, 16)
    assert (gpu.fabric_state, gpu.fabric_clique) == ("completed", 0)


def test_its_nvlinks_are_unknown_and_said_to_be():
    assert [finding.what for finding in read(XML).findings] == [WHAT]


@pytest.mark.parametrize("order", [1, -1])
def test_with_the_matrix_of_the_same_machine_it_is_whole(order):
    found = read(*[XML, SWITCHED][::order])
    (host,) = found.hosts
    assert found.problems() == []
    assert found.findings == ()
    assert [(gpu.bus_id, gpu.numa, gpu.name) for gpu in host.gpus] == [
        (f"0000:{bus[9:].lower()}", number // 2, "NVIDIA H100 80GB HBM3") for number, bus in enumerate(BUSES)
    ]
    assert {(link.source, link.target, link.count, link.version) for link in host.fabric} == {
        (gpu.bus_id, "nvswitch", 18, "4.0") for gpu in host.gpus
    }
    between = Paths(host).between
    assert between(host.gpus[0], host.gpus[3]) == "NVL"
    assert [between(gpu, host.nics[0]) for gpu in host.gpus] == ["PXB", "SYS", "SYS", "SYS"]


def test_a_matrix_of_other_gpus_is_another_machine():
    fewer = query_xml(GPUS[:2])
    assert len(read(fewer, SWITCHED).hosts) == 2


def test_a_query_of_one_gpu_gives_no_number():
    found = merge.read_file(query_xml(GPUS[2:3], attached=4).encode(), "box.xml")
    assert found.hosts[0].gpus[0].index is None
    assert found.notes == ("box: 1 GPU listed of 4 that the host has: their numbers are not known",)


@pytest.mark.parametrize(
    ("path", "value", "name", "expected"),
    [
        ("mig_mode/current_mig", "Enabled", "mig", True),
        ("mig_mode/current_mig", "N/A", "mig", None),
        ("fb_memory_usage/total", "N/A", "memory_bytes", None),
        ("fb_memory_usage/total", "40960 MiB", "memory_bytes", 40960 << 20),
        ("fb_memory_usage/total", "40960", "memory_bytes", None),
        ("product_name", "Unknown Error", "name", ""),
        ("product_name", "[GPU requires reset]", "name", ""),
        ("product_name", "\n  Tesla\n V100-SXM2 ", "name", "Tesla V100-SXM2"),
        ("uuid", "N/A", "uuid", ""),
        ("fabric/state", "In Progress", "fabric_state", "in progress"),
        ("fabric/state", "N/A", "fabric_state", ""),
        ("fabric/state", "Not Started", "fabric_clique", None),
    ],
)
def test_a_value_of_a_gpu(path, value, name, expected):
    text = query_xml([(BUSES[0], {**GPU, "pci/pci_device_id": "", path: value})])
    (host,) = merge.read_file(text.encode(), "box.xml").hosts
    assert getattr(host.gpus[0], name) == expected


@pytest.mark.parametrize(
    ("path", "value", "name", "expected"),
    [
        ("pci/pci_gpu_link_info/pcie_gen/max_link_gen", "4", "max_speed_gts", 16.0),
        ("pci/pci_gpu_link_info/pcie_gen/max_link_gen", "N/A", "max_speed_gts", None),
        ("pci/pci_gpu_link_info/pcie_gen/max_link_gen", "99", "max_speed_gts", None),
        ("pci/pci_gpu_link_info/link_widths/current_link_width", "8x", "width", 8),
        ("pci/pci_gpu_link_info/link_widths/current_link_width", "0x", "width", None),
        ("pci/pci_gpu_link_info/link_widths/current_link_width", "64x", "width", None),
        ("pci/pci_device_id", "0x20B210DE", "device", "0x20b2"),
        ("pci/pci_device_id", "20B2", "vendor", ""),
        ("pci/pci_base_class", "", "pci_class", ""),
    ],
)
def test_a_value_of_its_link(path, value, name, expected):
    text = query_xml([(BUSES[0], {**GPU, path: value})])
    (host,) = merge.read_file(text.encode(), "box.xml").hosts
    assert getattr(host.pci[0], name) == expected


def test_a_log_without_ids_is_read_by_the_bus_ids_in_it():
    values = {**GPU, "pci/pci_bus_id": "00000000:01:00.0"}
    text = query_xml([("", values)]).replace(' id=""', "")
    assert merge.read_file(text.encode(), "box.xml").hosts[0].gpus[0].bus_id == "0000:01:00.0"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_in_each_encoding_that_a_shell_writes(encoding):
    assert len(merge.read_file(XML.encode(encoding), "box.xml").hosts[0].gpus) == 4


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (query_xml([]), "expected 1 to 256 <gpu> in <nvidia_smi_log>, found 0"),
        (
            query_xml([("GPU0", GPU)]),
            "line 7: <gpu>: expected a PCI bus id such as 0000:1b:00.0, found 'GPU0'",
        ),
        (query_xml([(BUSES[0], GPU), ("0000:18:00.0", GPU)]), "0000:18:00.0 is there a second time"),
        (XML[:400], "not whole XML"),
        (XML.replace('v12.dtd"', 'v12.dtd" [<!ENTITY a "b">]'), "the output of nvidia-smi -q -x"),
        (query_xml((f"0000:{n // 256:02x}:{n % 256 // 8:02x}.{n % 8}", {}) for n in range(257)), "found 257"),
    ],
)
def test_what_is_no_whole_query_is_refused_with_its_reason(text, reason):
    with pytest.raises(DataError, match=re.escape(reason)) as caught:
        merge.read_file(text.encode(), "box.xml")
    assert caught.value.hint


@given(st.binary(max_size=400))
def test_any_bytes_are_read_or_refused(content):
    with pytest.raises(DataError):
        query.read(content, "odd.xml")


@given(st.integers(0, len(XML)), st.text(max_size=12), st.integers(0, 12))
def test_a_changed_log_is_read_or_refused(at, text, gone):
    try:
        found = merge.from_file((XML[:at] + text + XML[at + gone :]).encode(errors="replace"), "odd.xml")
    except DataError as error:
        assert error.problems
        return
    assert found.problems() == []


PATHS = sorted(GPU)
WORDS = ["N/A", "Enabled", "-1", "1e309", "9" * 30, "5x", "x", "MiB", "1 MiB", "٣", "[Unknown]", "Not Active"]


@given(st.dictionaries(st.sampled_from(PATHS), st.sampled_from(WORDS) | st.text("<>0x MiBW", max_size=9)))
def test_any_value_is_read_or_unknown(values):
    text = query_xml([(BUSES[0], {**GPU, **values})])
    try:
        found = merge.from_file(text.encode(), "odd.xml")
    except DataError as error:
        assert error.problems
        return
    assert found.problems() == []
    assert len(found.hosts[0].gpus) == 1
