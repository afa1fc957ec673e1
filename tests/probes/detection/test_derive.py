from dataclasses import replace

import pytest

from probes.detection.derive import complete
from probes.paths import load
from probes.topology import FabricLink, Gpu, Host, Nic, PciDevice, Topology

NAME = "NVIDIA H100 80GB HBM3"
GPUS = tuple(Gpu(f"0000:{n}1:00.0", "nccl_xml", index=n, vendor="nvidia", name=NAME) for n in range(3))


def links(*counts, kind="switch"):
    """NVLinks of each GPU into a switch, or to the first GPU; 0 is no record."""
    target = "nvswitch" if kind == "switch" else GPUS[0].bus_id
    return tuple(
        FabricLink(gpu.bus_id, target, kind, "nvlink", count, "nccl_xml")
        for gpu, count in zip(GPUS, counts, strict=True)
        if count
    )


def found(fabric, gpus=GPUS):
    host = Host("box", "nccl_xml", gpus=gpus, fabric=fabric)
    findings = complete(Topology((host,)), load()).findings
    return [(finding.where, finding.text) for finding in findings if finding.what == "link-down"]


def test_a_gpu_without_the_links_into_switches_that_equal_gpus_have():
    """A tray of GB300 whose second GPU had lost its NVLinks was read without a word on it."""
    assert found(links(18, 0, 18)) == [("box/0000:11:00.0", "0 up; others like it have 18 up")]
    assert found(links(18, 18, 17)) == [("box/0000:21:00.0", "17 up; others like it have 18 up")]
    assert found(links(18, 18, 18)) == []


@pytest.mark.parametrize(
    "change", [{"name": "NVIDIA L40S"}, {"usable": False}, {"mig": True}, {"arch": "sm_80"}]
)
def test_a_gpu_that_cannot_be_compared_is_no_finding(change):
    assert found(links(18, 0, 18), (GPUS[0], replace(GPUS[1], **change), GPUS[2])) == []


def test_bridges_may_join_some_gpus_alone():
    assert found(links(0, 4, 0, kind="gpu")) == []


def slow_ports(*speeds_mbit):
    pci = tuple(
        PciDevice(f"0000:0{n}:00.0", "nccl_xml", vendor="0x15b3", device="0x1021")
        for n in range(len(speeds_mbit))
    )
    nics = tuple(
        Nic(f"mlx5_{n}", "nccl_xml", physical=True, bus_id=one.bus_id, speed_mbit=speed)
        for n, (one, speed) in enumerate(zip(pci, speeds_mbit, strict=True))
    )
    found = complete(Topology((Host("box", "nccl_xml", pci=pci, nics=nics),)), load()).findings
    return [(one.where, one.text) for one in found if one.what == "slow-port"]


def test_one_port_that_is_slower_than_all_others_of_its_model_is_named():
    assert slow_ports(*[400_000] * 3, 100_000, *[400_000] * 4) == [
        ("box/mlx5_3", "100 Gbit/s; the 7 other ports of its model have 400 Gbit/s")
    ]


@pytest.mark.parametrize("speeds", [(400_000,) * 8, (400_000,) * 8 + (200_000,) * 2, (100_000, 400_000)])
def test_ports_for_storage_and_login_are_slower_by_intent(speeds):
    assert slow_ports(*speeds) == []
