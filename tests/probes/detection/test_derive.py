from dataclasses import replace

import pytest

from probes.detection.derive import complete
from probes.paths import load
from probes.topology import FabricLink, Gpu, Host, Topology

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
