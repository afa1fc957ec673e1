"""Outputs of real drivers, as a person reads them; tests/outputs/README.md has the sources."""

from pathlib import Path

import pytest

from probes.detection import merge
from probes.paths.path_type import Paths

FOLDER = Path(__file__).parents[1] / "outputs"
NVSWITCH = {"GPU0 GPU1": "NVL", "GPU0 GPU7": "NVL"}
# Worked out by reading the files: GPUs, NICs, physical links between GPUs, the NUMA node of each GPU (one
# character each, "-" where none is printed), and some paths.
MATRICES = {
    "v100-x8-dgx1.txt": (
        8,
        4,
        24,
        "--------",
        {"GPU0 mlx5_0": "PIX", "GPU0 mlx5_1": "PHB", "GPU0 GPU7": "NVB"},
    ),
    "v100-x8-cube-mesh.txt": (8, 1, 24, "--------", {"GPU0 mlx5_0": "NODE", "GPU2 mlx5_0": "PIX"}),
    "v100-x4-power9.txt": (4, 4, 6, "0088", {"GPU0 GPU1": "NVL", "GPU0 GPU2": "SYS", "mlx5_0 mlx5_1": "PIX"}),
    "a100-x2-pcie.txt": (2, 2, 0, "01", {"GPU0 GPU1": "SYS", "GPU1 mlx5_1": "NODE"}),
    "a100-x4-pcie.txt": (4, 1, 0, "0011", {"GPU0 GPU1": "NODE", "GPU1 GPU2": "SYS", "GPU3 mlx5_0": "SYS"}),
    "a100-x4-sxm.txt": (4, 2, 24, "3210", {"GPU0 GPU3": "NVL", "GPU1 mlx5_1": "PHB", "GPU3 mlx5_0": "PHB"}),
    "a100-x8-nvswitch.txt": (8, 0, 96, "00001111", NVSWITCH),
    "h100-x8-nvswitch.txt": (8, 0, 144, "00001111", NVSWITCH),
    "h100-x8-one-nic.txt": (8, 1, 144, "00001111", NVSWITCH | {"GPU3 NIC0": "SYS"}),
    "h200-x8.txt": (8, 8, 144, "00001111", NVSWITCH | {"GPU2 mlx5_0": "PIX", "GPU7 mlx5_2": "PIX"}),
    "gh200-x4.txt": (4, 0, 36, "0123", {"GPU0 GPU3": "NVL"}),
    "gb200-x4.txt": (4, 8, 72, "0011", {"GPU0 GPU3": "NVL", "mlx5_2 mlx5_3": "PIX", "GPU0 mlx5_0": "SYS"}),
    "bridge-x2.txt": (2, 0, 2, "--", {"GPU0 GPU1": "NVL"}),
    "rtx6000ada-x2.txt": (2, 2, 0, "00", {"GPU0 GPU1": "PHB", "GPU0 mlx5_0": "NODE"}),
    "rtx6000ada-x4.txt": (4, 4, 0, "0011", {"GPU2 GPU3": "NODE", "GPU0 mlx5_3": "SYS"}),
    "mi210-x4.txt": (4, 0, 6, "0123", {"GPU0 GPU3": "NVL"}),
    "mi308x-x8.txt": (8, 0, 28, "00001111", {"GPU0 GPU7": "NVL"}),
}
# Model, MiB of memory, MIG, lanes now and at most, GT/s now and at most, the place on the bus.
QUERIES = {
    "a100-mig.xml": ("NVIDIA A100-SXM4-80GB", 81920, True, 16, 16, 16.0, 16.0, "0000:01:00.0"),
    "a10g.xml": ("NVIDIA A10G", 23028, None, 8, 16, 2.5, 16.0, "0000:00:1e.0"),
    "rtx3090.xml": ("NVIDIA GeForce RTX 3090", 24576, None, 16, 16, 2.5, 16.0, "0000:00:10.0"),
    "rtx4000ada.xml": ("NVIDIA RTX 4000 SFF Ada Generation", 20475, None, 16, 16, 2.5, 16.0, "0000:06:00.0"),
    "t4.xml": ("Tesla T4", 15360, None, 8, 16, 8.0, 8.0, "0000:00:1e.0"),
}


def host_in(name):
    found = merge.from_file((FOLDER / name).read_bytes(), name)
    assert found.problems() == []
    (host,) = found.hosts
    return host, {finding.what for finding in found.findings}


@pytest.mark.parametrize("name", sorted(MATRICES))
def test_a_matrix_gives_what_a_person_reads_in_it(name):
    gpus, nics, links, nodes, paths = MATRICES[name]
    host, findings = host_in(name)
    assert (len(host.gpus), len(host.physical_nics), host.fabric_links()) == (gpus, nics, links)
    assert "".join("-" if gpu.numa is None else str(gpu.numa) for gpu in host.gpus) == nodes
    devices = {f"GPU{gpu.index}": gpu for gpu in host.gpus} | {nic.name: nic for nic in host.nics}
    between = Paths(host).between
    assert {pair: between(*(devices[one] for one in pair.split())) for pair in paths} == paths
    assert findings == ({"assumed-speed"} if links else set())


@pytest.mark.parametrize("name", sorted(QUERIES))
def test_a_query_gives_what_a_person_reads_in_it(name):
    host, findings = host_in(name)
    (gpu,), (device,) = host.gpus, host.pci
    pcie = device.width, device.max_width, device.speed_gts, device.max_speed_gts
    assert (gpu.name, gpu.memory_bytes >> 20, gpu.mig, *pcie, gpu.bus_id) == QUERIES[name]
    assert findings == ({"narrow-link"} if device.width < device.max_width else set())


def test_each_output_is_expected():
    assert {*MATRICES, *QUERIES} == {path.name for path in FOLDER.iterdir()} - {"README.md"}
