import pynvml
import pytest

from probes.detection import merge
from probes.detection.derive import complete
from probes.nvml import gpus as nvml
from probes.nvml.record import RecordedNvml
from probes.paths.bandwidth import load
from probes.topology import Gpu, Host, Topology

TWO = {
    "nvmlInit": {"*": None},
    "nvmlShutdown": {"*": None},
    "nvmlDeviceGetCount": {"*": 2},
    "nvmlDeviceGetPciInfo": {
        str(n): {"busId": f"0000000{n}:01:00.0", "pciDeviceId": 0x234210DE} for n in range(2)
    },
    "nvmlDeviceGetCudaComputeCapability": {"*": [9, 0]},
    "nvmlDeviceGetNvLinkState": {"*": {"error": 3}},
}
UUID = list(range(16))


def read(**answers):
    return nvml.read("h", RecordedNvml({**TWO, **answers}, pynvml)).hosts[0]


def value(number, code=0):
    return {"nvmlReturn": code, "value": {"uiVal": number}}


def test_the_nvlink_domain_of_a_gpu():
    info = {"state": 3, "status": 0, "cliqueId": 5, "clusterUuid": UUID}
    gpu = read(nvmlDeviceGetGpuFabricInfoV={"*": info}).gpus[0]
    assert (gpu.fabric_cluster, gpu.fabric_clique, gpu.fabric_state) == (
        "00010203-0405-0607-0809-0a0b0c0d0e0f",
        5,
        "completed",
    )


@pytest.mark.parametrize(
    ("state", "word"), [(0, "not supported"), (1, "not started"), (2, "in progress"), (77, "")]
)
def test_a_domain_that_is_not_there_has_no_clique(state, word):
    info = {"state": state, "status": 0, "cliqueId": 5, "clusterUuid": UUID}
    gpu = read(nvmlDeviceGetGpuFabricInfoV={"*": info}).gpus[0]
    assert (gpu.fabric_cluster, gpu.fabric_clique, gpu.fabric_state) == ("", None, word)
    host = Host("h", "m", gpus=(gpu,))
    found = [f.what for f in complete(Topology((host,)), load()).findings]
    assert found == (["fabric-not-ready"] if word in ("not started", "in progress") else [])


def test_an_old_driver_without_domains_says_nothing_of_them():
    found = nvml.read("h", RecordedNvml(TWO, pynvml))
    assert found.hosts[0].gpus[0].fabric_state == ""
    assert not any("Fabric" in note for note in found.notes)


def test_chip_to_chip_links_lead_to_the_cpu_of_the_gpus_own_node():
    fields = {"*,170": value(10), "*,172": value(44712), "*": value(0, 3)}
    host = read(nvmlDeviceGetFieldValues=fields)
    assert [(link.kind, link.target, link.count, link.gbs) for link in host.fabric] == [
        ("c2c", "cpu", 10, 44.712)
    ] * 2
    gpus = tuple(Gpu(gpu.bus_id, "m", numa=n) for n, gpu in enumerate(host.gpus))
    placed = merge.merge([Topology((Host("h", "m", gpus=gpus),)), Topology((host,))])
    done = complete(placed, load()).hosts[0]
    assert [link.target for link in done.fabric] == ["numa0", "numa1"]


def test_a_field_that_answers_nonsense_is_no_thousand_links():
    assert read(nvmlDeviceGetFieldValues={"*": value(25781)}).fabric == ()


def test_links_up_and_down_are_told_apart_with_their_numbers():
    host = read(
        nvmlDeviceGetFieldValues={"*,91": value(4), "*": value(0, 3)},
        nvmlDeviceGetNvLinkState={"0,2": 0, "*,3": {"error": 3}, "*": 1},
        nvmlDeviceGetNvLinkRemotePciInfo={
            "0": {"busId": "00000001:01:00.0"},
            "1": {"busId": "00000000:01:00.0"},
        },
        nvmlDeviceGetNvLinkVersion={"*": 6},
    )
    assert [(link.source[:4], link.state, link.count, link.numbers) for link in host.fabric] == [
        ("0000", "up", 2, (0, 1)),
        ("0000", "down", 1, (2,)),
        ("0001", "up", 3, (0, 1, 2)),
    ]
    assert {link.version for link in host.fabric} == {"4.0"}
    assert host.fabric_links() == 3


def test_what_gpus_can_do_to_each_other():
    host = read(
        nvmlDeviceGetP2PStatus={"*": {"error": 3}, "0,1,0": 0, "1,0,0": 4, "0,1,2": 5},
        nvmlDeviceGetTopologyCommonAncestor={"0,1": 50, "1,0": 50},
    )
    told = {matrix.what: matrix.cells for matrix in host.matrices}
    assert told == {
        "path": (("X", "SYS"), ("SYS", "X")),
        "p2p_read": (("X", "OK"), ("DR", "X")),
        "p2p_nvlink": (("X", "NS"), ("", "X")),
    }
    assert [gpu.peers for gpu in host.gpus] == [("0001:01:00.0",), ()]


def test_one_gpu_is_asked_nothing_of_pairs():
    assert read(nvmlDeviceGetCount={"*": 1}, nvmlDeviceGetP2PStatus={"*": 0}).matrices == ()


def test_mig_is_noted():
    host = Host("h", "m", gpus=(Gpu("0000:01:00.0", "m", index=0, mig=True),))
    assert any("MIG" in note for note in complete(Topology((host,)), load()).notes)
