"""Recordings of machines with H100 GPUs, as detect records them, with changes of single answers.

The values are those of public reports of nvidia-smi -q on such machines at rest.
"""

import copy
import json

IDLE, ACTIVE_LINK, NOT_SUPPORTED, INVALID = 0x1, 1, {"error": 3}, {"error": 2}
LINKS = 18
H100 = {
    "nvmlInit": {"*": None},
    "nvmlShutdown": {"*": None},
    "nvmlDeviceGetName": {"*": "NVIDIA H100 80GB HBM3"},
    "nvmlDeviceGetVbiosVersion": {"*": "96.00.61.00.01"},
    "nvmlDeviceGetCudaComputeCapability": {"*": [9, 0]},
    "nvmlDeviceGetEccMode": {"*": [1, 1]},
    "nvmlDeviceGetDefaultEccMode": {"*": [1]},
    "nvmlDeviceGetTotalEccErrors": {"*": 0},
    "nvmlDeviceGetRemappedRows": {"*": [0, 0, 0, 0]},
    "nvmlDeviceGetRetiredPages": {"*": NOT_SUPPORTED},
    "nvmlDeviceGetSramEccErrorStatus": {"*": {"bThresholdExceeded": 0}},
    "nvmlDeviceGetCurrPcieLinkGeneration": {"*": 5},
    "nvmlDeviceGetMaxPcieLinkGeneration": {"*": 5},
    "nvmlDeviceGetGpuMaxPcieLinkGeneration": {"*": 5},
    "nvmlDeviceGetCurrPcieLinkWidth": {"*": 16},
    "nvmlDeviceGetMaxPcieLinkWidth": {"*": 16},
    "nvmlDeviceGetPcieReplayCounter": {"*": 0},
    "nvmlDeviceGetFieldValues": {"*,91": {"nvmlReturn": 0, "value": {"uiVal": LINKS}}},
    "nvmlDeviceGetNvLinkState": {"*": ACTIVE_LINK},
    "nvmlDeviceGetNvLinkErrorCounter": {"*": 0},
    "nvmlDeviceGetCurrentClocksEventReasons": {"*": IDLE},
    "nvmlDeviceGetClockInfo": {"*": 345},
    "nvmlDeviceGetMaxClockInfo": {"*": 1980},
    "nvmlDeviceGetApplicationsClock": {"*": 1980},
    "nvmlDeviceGetPowerManagementLimit": {"*": 700000},
    "nvmlDeviceGetEnforcedPowerLimit": {"*": 700000},
    "nvmlDeviceGetPowerManagementDefaultLimit": {"*": 700000},
    "nvmlDeviceGetTemperature": {"*": 31},
    "nvmlDeviceGetPersistenceMode": {"*": 1},
    "nvmlDeviceGetComputeMode": {"*": 0},
    "nvmlDeviceGetMigMode": {"*": [0, 0]},
    "nvmlDeviceGetComputeRunningProcesses": {"*": []},
}


def bus_id(index):
    """The bus id of GPU ``index`` of these machines."""
    return f"0000:{0x1B + 0x10 * index:02x}:00.0"


def h100s(count=2, **changes):
    """NVML's answers on a host with this many GPUs; ``changes`` update the answers of single functions."""
    answers = copy.deepcopy(H100)
    answers["nvmlDeviceGetCount"] = {"*": count}
    answers["nvmlDeviceGetPciInfo"] = {
        str(index): {"busId": f"0000{bus_id(index)}", "pciDeviceId": 0x233010DE} for index in range(count)
    }
    for function, known in changes.items():
        answers.setdefault(function, {}).update(known)
    return answers


def recording(folder, answers):
    """Write a recording with these answers of NVML to ``folder``, and return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "nvml.json").write_text(json.dumps(answers))
    (folder / "sysfs.txt").write_text("# no PCI devices\n[sys/bus/pci/devices]\n# is there\n")
    return folder
