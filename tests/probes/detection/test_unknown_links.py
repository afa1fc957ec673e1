"""GPUs whose model has NVLinks, in a topology that shows none: said wherever it is so, and nowhere else."""

from dataclasses import replace

import pytest

from probes.detection.unknown_links import unknown_nvlinks
from probes.topology import FabricLink, Gpu, Host


def host(name, **changed):
    gpu = Gpu("", "nccl_xml", vendor="nvidia", name=name, arch="sm_80", method_of={"arch": "table"})
    return Host("a", "nccl_xml", gpus=tuple(replace(gpu, bus_id=f"{n}", **changed) for n in range(8)))


@pytest.mark.parametrize(
    ("machine", "said"),
    [
        (
            host("A100 SXM4 40GB"),
            "its 8 A100 SXM4 40GB have NVLinks but no source shows them: add",
        ),
        (host("A100 PCIe 80GB"), "its 8 A100 PCIe 80GB may have NVLinks but no source shows"),
        (host("", arch="", vendor=""), "its 8 GPUs of unknown model may have NVLinks"),
        (host("A100 SXM4 40GB", method_of={}), "have NVLinks but report none: the driver or a virtual"),
    ],
)
def test_what_may_be_there_is_said(machine, said):
    found = unknown_nvlinks(machine)
    assert (found.what, found.where) == ("nvlinks-unknown", "a")
    assert said in found.text


@pytest.mark.parametrize(
    "machine",
    [
        host("GeForce RTX 4090", arch="sm_89"),
        host("A100 PCIe 80GB", method_of={}),
        host("MI300X", vendor="amd", arch="gfx942"),
        host("A100 SXM4 40GB", mig=True),
        host("A100 SXM4 40GB", usable=False),
        replace(
            host("A100 SXM4 40GB"),
            fabric=(FabricLink("0", "nvswitch", "switch", "nvlink", 12, "nvml"),),
        ),
    ],
)
def test_nothing_is_said_where_all_is_told_or_nothing_can_be_there(machine):
    assert unknown_nvlinks(machine) is None
