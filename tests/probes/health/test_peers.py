from dataclasses import replace
from pathlib import Path

import pytest
from machine_changes import recorded

from probes.health import HostHealth, missing_peers, peer_problems
from probes.topology import Gpu, Host, Matrix

MACHINES = sorted(path.name for path in (Path(__file__).parents[2] / "machines").glob("linux-*"))


def host(word, name="NVIDIA L40S", count=2, usable=True):
    gpus = tuple(
        Gpu(f"0000:0{n}:00.0", "nvml", index=n, vendor="nvidia", name=name, arch="sm_89", usable=usable)
        for n in range(count)
    )
    if name == "NVIDIA H100 80GB HBM3":
        gpus = tuple(replace(gpu, arch="sm_90") for gpu in gpus)
    names = tuple(gpu.bus_id for gpu in gpus)
    cells = tuple(tuple("X" if a == b else word for b in names) for a in names)
    return Host("box", "nvml", gpus=gpus, matrices=(Matrix("p2p_read", names, cells, "nvml"),))


# The driver's word and what else is known of the host; the severity, and words of text and remedy.
CASES = {
    "disabled": ("DR", {}, "fault", "disabled by a setting of the driver", "modprobe.d"),
    "topology": ("TNS", {}, "remark", "topology does not support it (the driver says TNS)", "topo -p2p r"),
    "ACS": (
        "TNS",
        {"acs": ("0000:00:01.0", "0000:40:01.0")},
        "fault",
        "ACS sends traffic between peers over the processor at 0000:00:01.0, 0000:40:01.0",
        "setpci -s 0000:00:01.0 ECAP_ACS+6.w=0000, and so for each",
    ),
    "IOMMU": ("TNS", {"iommu": "translating"}, "fault", "The IOMMU translates addresses", "iommu=pt"),
    "IOMMU that passes through": ("TNS", {"iommu": "passthrough"}, "remark", "TNS", "topo"),
    "model": ("CNS", {"iommu": "translating"}, "remark", "the chipset does not support it", "topo -p2p r"),
    "guest": ("NS", {"virtual_machine": "kvm"}, "remark", "The virtual machine (kvm) may hide", "provider"),
}


@pytest.mark.parametrize("name", CASES)
def test_pairs_without_peer_access_have_a_likely_reason(name):
    word, known, severity, text, remedy = CASES[name]
    (found,) = peer_problems(host(word), HostHealth("box", **known))
    assert (found.host, found.part, found.kind, found.severity) == (
        "box",
        "GPU0-GPU1",
        "peer_to_peer",
        severity,
    )
    assert text in found.text
    assert remedy in found.remedy


def test_gpus_with_links_on_their_board_always_reach_each_other():
    (found,) = peer_problems(host("NS", "NVIDIA H100 80GB HBM3"), HostHealth("box"))
    assert found.severity == "fault"
    assert "nvidia-fabricmanager" in found.remedy


def test_pairs_of_one_reason_are_one_problem():
    eight = host("GNS", count=8)
    (found,) = peer_problems(eight, HostHealth("box"))
    assert found.part == "28 GPU pairs"
    assert found.text.startswith(
        "GPU0-GPU1, GPU0-GPU2, GPU0-GPU3, GPU0-GPU4, GPU0-GPU5, GPU0-GPU6 and 22 more"
    )
    assert len(missing_peers(eight)) == 28
    assert missing_peers(eight)[0] == "GPU0-GPU1 GNS"


@pytest.mark.parametrize("word", ["OK", "U", ""])
def test_pairs_that_can_or_of_which_nothing_is_known_are_no_problem(word):
    assert peer_problems(host(word), HostHealth("box", acs=("0000:00:01.0",), iommu="translating")) == []
    assert missing_peers(host(word)) == ()


def test_gpus_that_are_not_given_to_this_process_do_not_count():
    assert peer_problems(host("CNS", usable=False), HostHealth("box")) == []


@pytest.mark.parametrize("name", MACHINES)
def test_only_the_geforce_cards_of_the_recorded_machines_cannot_reach_each_other(name):
    (one,) = recorded(name).hosts
    found = peer_problems(one, HostHealth(name))
    assert [(problem.part, problem.severity) for problem in found] == (
        [("GPU0-GPU1", "remark")] if name == "linux-asus-rtx4090" else []
    )
