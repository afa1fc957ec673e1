from dataclasses import replace
from pathlib import Path

import pytest
from gpu_recordings import bus_id, h100s, recording

from probes.detection import merge
from probes.health import GpuHealth, HostHealth, gpu_problems, read_gpus, with_pci_tree
from probes.live import recorded

MACHINES = Path(__file__).parents[2] / "machines"


def problems(folder, answers, load=None):
    gpus, unread = read_gpus(recorded.driver_of(recording(folder, answers)), load)
    return gpu_problems(HostHealth("box", gpus=gpus, unread=unread))


def test_a_healthy_machine_has_no_problems(tmp_path):
    assert problems(tmp_path, h100s(8), load=lambda index: None) == []


def pcie(generation, width=16, index=1):
    return {
        "nvmlDeviceGetCurrPcieLinkGeneration": {str(index): generation},
        "nvmlDeviceGetCurrPcieLinkWidth": {str(index): width},
    }


TOO_HOT = "the GPU is too hot, and the hardware halves the clocks or more"
SLOWED = "the hardware halves the clocks or more, for heat, power or a sudden draw"
MHZ = "It runs at 345 MHz of 1980 MHz."
# For each finding: the answers of NVML that show it, its kind and severity, words of its text with the number
# and the normal value, and words of the command that mends it.
FINDINGS = {
    "lost": (
        {"nvmlDeviceGetTemperature": {"1": {"error": 15}}},
        ("gpu_failed", "fault", "GPU is lost", "dmesg"),
    ),
    "uncorrected errors": (
        {"nvmlDeviceGetTotalEccErrors": {"1,1,0": 3, "1,1,1": 5}},
        ("ecc", "fault", "3 uncorrected memory errors since the driver", "-r -i 0000:2b"),
    ),
    "uncorrected errors long ago": (
        {"nvmlDeviceGetTotalEccErrors": {"1,1,1": 1}},
        ("ecc_history", "remark", "1 uncorrected memory error in the life", "ROW_REMAPPER"),
    ),
    "ECC off": (
        {"nvmlDeviceGetEccMode": {"1": [0, 1]}},
        ("ecc_off", "fault", "on by default", "nvidia-smi -i 0000:2b:00.0 -e 1"),
    ),
    "a remap that waits": (
        {"nvmlDeviceGetRemappedRows": {"1": [0, 1, 1, 0]}},
        ("remap_pending", "fault", "normal: none", "nvidia-smi -r -i 0000:2b:00.0"),
    ),
    "a remap that failed": (
        {"nvmlDeviceGetRemappedRows": {"1": [2, 8, 0, 1]}},
        ("remap_failed", "fault", "(10 rows remapped so far); normal: no failure", "replaced"),
    ),
    "many retired pages": (
        {"nvmlDeviceGetRetiredPages": {"1,0": [0] * 20, "1,1": [0] * 3}},
        (
            "retired_pages",
            "remark",
            "23 pages of memory are retired; normal: 0, and at 60",
            "PAGE_RETIREMENT",
        ),
    ),
    "too many retired pages": (
        {"nvmlDeviceGetRetiredPages": {"1,0": [0] * 40, "1,1": [0] * 21}},
        ("retired_pages", "fault", "61 pages", "replaced"),
    ),
    "SRAM": (
        {"nvmlDeviceGetSramEccErrorStatus": {"1": {"bThresholdExceeded": 1}}},
        ("sram", "fault", "above the threshold", "replaced"),
    ),
    "half of the lanes": (
        pcie(5, width=8),
        ("pcie_width", "fault", "8 lanes; GPU and slot can have 16", "lspci -s 0000:2b:00.0"),
    ),
    "a slow link under load": (
        pcie(4),
        ("pcie_speed", "fault", "16 GT/s while data moves; GPU and slot can run at 32", "lspci"),
    ),
    "a link down": (
        {"nvmlDeviceGetNvLinkState": {"1,7": 0}},
        ("nvlink", "fault", "17 of 18 NVLinks are up; its model has 18", "nvidia-fabricmanager"),
    ),
    "recoveries": (
        {"nvmlDeviceGetNvLinkErrorCounter": {"1,2,1": 4}},
        ("nvlink_errors", "fault", "recoveries of a link 4; normal: 0", "nvlink -e -i 0000:2b:00.0"),
    ),
    "CRC errors": (
        {"nvmlDeviceGetNvLinkErrorCounter": {"1,2,2": 12, "1,3,2": 30}},
        ("nvlink_errors", "remark", "CRC errors of flits 42; normal: 0", "nvlink -e"),
    ),
    "too hot": (
        {"nvmlDeviceGetCurrentClocksEventReasons": {"1": 0x48}, "nvmlDeviceGetTemperature": {"1": 92}},
        ("clocks", "fault", f"(hw_thermal): {TOO_HOT}. {MHZ} 92 °C", "TEMPERATURE"),
    ),
    "power brake": (
        {"nvmlDeviceGetCurrentClocksEventReasons": {"1": 0x88}},
        ("clocks", "fault", "hw_power_brake", "ipmitool"),
    ),
    "another slowdown": (
        {"nvmlDeviceGetCurrentClocksEventReasons": {"1": 0x8}},
        ("clocks", "fault", f"(hw_slowdown): {SLOWED}. {MHZ}", "PERFORMANCE"),
    ),
    "power cap": (
        {"nvmlDeviceGetCurrentClocksEventReasons": {"1": 0x4}},
        ("clocks", "remark", "sw_power_cap", "-d POWER"),
    ),
    "warm": (
        {"nvmlDeviceGetCurrentClocksEventReasons": {"1": 0x20}},
        ("clocks", "remark", "sw_thermal", "fans"),
    ),
    "application clocks": (
        {"nvmlDeviceGetCurrentClocksEventReasons": {"1": 0x2}},
        ("clocks", "remark", "applications_clocks", "nvidia-smi -i 0000:2b:00.0 -rac"),
    ),
    "power limit": (
        {"nvmlDeviceGetPowerManagementLimit": {"1": 500000}},
        (
            "power_limit",
            "fault",
            "500 W, 200 W below the default of 700 W",
            "nvidia-smi -i 0000:2b:00.0 -pl 700",
        ),
    ),
    "MIG": ({"nvmlDeviceGetMigMode": {"1": [1, 1]}}, ("mig", "fault", "MIG is on", "-mig 0")),
    "prohibited": (
        {"nvmlDeviceGetComputeMode": {"1": 2}},
        ("compute_mode", "fault", "Prohibited", "nvidia-smi -i 0000:2b:00.0 -c 0"),
    ),
    "persistence": (
        {"nvmlDeviceGetPersistenceMode": {"1": 0}},
        ("persistence", "remark", "normal: on", "nvidia-smi -i 0000:2b:00.0 -pm 1"),
    ),
    "a process": (
        {"nvmlDeviceGetComputeRunningProcesses": {"1": [{"pid": 1}]}},
        ("processes", "remark", "Another process computes on the GPU", "PIDS"),
    ),
    "processes": (
        {"nvmlDeviceGetComputeRunningProcesses": {"1": [{"pid": 1}, {"pid": 2}]}},
        ("processes", "remark", "2 other processes compute on the GPU", "PIDS"),
    ),
    "another VBIOS": (
        {"nvmlDeviceGetVbiosVersion": {"1": "96.00.30.00.01"}},
        ("differs", "remark", "The VBIOS is 96.00.30.00.01; 2 of the 3 GPUs here have 96.00.61", "firmware"),
    ),
    "another clock": (
        {"nvmlDeviceGetApplicationsClock": {"1": 1410}},
        (
            "differs",
            "remark",
            "The application clock is 1410 MHz; 2 of the 3 GPUs here have 1980 MHz",
            "-rac",
        ),
    ),
    "a higher limit": (
        {
            "nvmlDeviceGetPowerManagementDefaultLimit": {"*": 600000},
            "nvmlDeviceGetEnforcedPowerLimit": {"1": 650000},
        },
        ("differs", "remark", "The power limit is 650 W; 2 of the 3 GPUs here have 700 W", "-pl"),
    ),
}


@pytest.mark.parametrize("name", FINDINGS)
def test_each_finding_is_told_once_of_the_gpu_that_has_it(tmp_path, name):
    changes, (kind, severity, text, remedy) = FINDINGS[name]
    (found,) = problems(tmp_path, h100s(3, **changes), load=lambda index: None)
    assert (found.host, found.part, found.kind, found.severity) == ("box", bus_id(1), kind, severity)
    assert text in found.text
    assert remedy in found.remedy


HARMLESS = {
    "idle": {"nvmlDeviceGetCurrentClocksEventReasons": {"*": 0x1}},
    "a few retired pages": {"nvmlDeviceGetRetiredPages": {"*,0": [0] * 4, "*,1": []}},
    "remapped rows": {"nvmlDeviceGetRemappedRows": {"1": [3, 0, 0, 0]}},
    "ECC off as by default": {
        "nvmlDeviceGetEccMode": {"*": [0, 0]},
        "nvmlDeviceGetDefaultEccMode": {"*": [0]},
    },
    "one program at a time": {"nvmlDeviceGetComputeMode": {"*": 3}},
    "a limit as by default, rounded": {"nvmlDeviceGetPowerManagementLimit": {"*": 699600}},
    "links as their like have": {
        "nvmlDeviceGetName": {"*": "NVIDIA H100 PCIe"},
        "nvmlDeviceGetNvLinkState": {"*,5": 0, "*,6": 0},
    },
    "a card without a bridge": {
        "nvmlDeviceGetName": {"*": "NVIDIA H100 PCIe"},
        "nvmlDeviceGetNvLinkState": {f"2,{number}": 0 for number in range(18)},
    },
    "an answer that nobody gives": {"nvmlDeviceGetPowerManagementLimit": {"*": {"error": 3}}},
}


@pytest.mark.parametrize("name", HARMLESS)
def test_what_is_usual_is_no_problem(tmp_path, name):
    assert problems(tmp_path, h100s(3, **HARMLESS[name]), load=lambda index: None) == []


def test_a_slow_link_at_rest_is_no_problem(tmp_path):
    assert problems(tmp_path, h100s(2, nvmlDeviceGetCurrPcieLinkGeneration={"*": 1})) == []


def test_a_bridge_with_fewer_links_than_that_of_its_like_is_a_problem(tmp_path):
    changes = {"nvmlDeviceGetName": {"*": "NVIDIA H100 PCIe"}, "nvmlDeviceGetNvLinkState": {"1,5": 0}}
    (found,) = problems(tmp_path, h100s(3, **changes))
    assert (found.kind, found.part) == ("nvlink", bus_id(1))
    assert "GPUs of the same model in this host have 18" in found.text


def test_another_model_is_told_by_name_alone(tmp_path):
    changes = {
        "nvmlDeviceGetName": {"1": "NVIDIA H200"},
        "nvmlDeviceGetVbiosVersion": {"1": "96.00.A0.00.01"},
    }
    (found,) = problems(tmp_path, h100s(3, **changes))
    assert (found.kind, found.part) == ("differs", bus_id(1))
    assert "The name is NVIDIA H200; 2 of the 3 GPUs here have NVIDIA H100 80GB HBM3" in found.text


def test_unknown_values_are_no_problems():
    assert gpu_problems(HostHealth("box", gpus=(GpuHealth("0000:01:00.0"), GpuHealth("gpu1")))) == []


@pytest.mark.parametrize("width", [None, 16])
def test_the_width_under_load_counts_if_it_is_known(width):
    gpu = GpuHealth("0000:01:00.0", pcie_width=8, pcie_width_most=16, pcie_width_load=width)
    found = gpu_problems(HostHealth("box", gpus=(gpu,)))
    assert [one.kind for one in found] == ([] if width else ["pcie_width"])


def test_errors_that_interrupt_and_errors_that_do_not_are_told_apart():
    gpu = GpuHealth("0000:01:00.0", nvlink_errors={"recovery": 1, "replay": 2, "crc_data": 0})
    found = gpu_problems(HostHealth("box", gpus=(gpu,)))
    assert [(one.severity, one.text.split(": ")[1].split(";")[0]) for one in found] == [
        ("fault", "recoveries of a link 1"),
        ("remark", "replays 2"),
    ]


# The recorded machines have these faults, which detection finds too, and no others.
KNOWN = {
    "linux-asus-rtx4090": [("0000:01:00.0", "pcie_width")],
    "linux-hyperv-h100": [("000a:00:00.0", "gpu_failed")],
    "linux-nvidia-dgxa100": [("0000:35:00.0", "nvlink")],
}


@pytest.mark.parametrize("name", sorted(path.name for path in MACHINES.glob("linux-*")))
def test_the_recorded_machines_have_no_false_findings(name):
    gpus, _ = read_gpus(recorded.driver_of(MACHINES / name))
    (host,) = merge.combined([merge.read_recording(MACHINES / name)]).hosts
    health = HostHealth(name, gpus=with_pci_tree(gpus, host))
    assert [(one.part, one.kind) for one in gpu_problems(health)] == KNOWN.get(name, [])


def test_a_text_names_no_option_with_two_dashes():
    gpu = GpuHealth(
        "0000:01:00.0", failure="GPU is lost", ecc_enabled=False, ecc_uncorrected=1, remap_failed=True
    )
    gpu = replace(gpu, remap_pending=True, retired_pages=60, sram_worn=True, mig=True, persistence=False)
    found = gpu_problems(HostHealth("box", gpus=(gpu,)))
    assert len(found) == 9
    assert all(one.text and one.remedy and not one.text[0].islower() for one in found)
    assert not [one for one in found if "--" in one.text + one.remedy]
