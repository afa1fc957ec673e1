import dataclasses
import json
import os
from contextlib import contextmanager
from pathlib import Path

import pynvml
import pytest
from drawn_examples import drawn
from gpu_recordings import INVALID, LINKS, bus_id, h100s, recording
from hypothesis import given, settings, strategies as st

from probes.base import UnavailableError, not_finite
from probes.health import GpuHealth, HostHealth, gpu_problems, read_gpus, with_pci_tree
from probes.health.safe_driver import SafeDriver
from probes.live import recorded
from probes.nvml import RecordedNvml, RecordingNvml
from probes.topology import Gpu, Host, PciDevice

MACHINES = sorted((Path(__file__).parents[2] / "machines").glob("linux-*"))
# The only one whose driver was asked about its health.
[H200] = [folder for folder in MACHINES if folder.name == "linux-firecracker-h200"]


def read(folder, answers, load=None):
    return read_gpus(recorded.driver_of(recording(folder, answers)), load)


def test_what_a_real_driver_answers_is_read_and_nothing_is_wrong_with_it():
    [gpu], unread = read_gpus(recorded.driver_of(H200))
    assert (gpu.name, gpu.ecc_enabled, gpu.ecc_uncorrected, gpu.remapped_rows) == ("NVIDIA H200", True, 0, 0)
    assert (gpu.pcie_gts_most, gpu.pcie_width_most, gpu.power_limit_w) == (32.0, 16, 700.0)
    assert gpu.throttled == ("gpu_idle",)
    # A guest does not see the NVLinks of its host.
    assert gpu.nvlinks is None and "NVLinks" in unread
    assert gpu_problems(HostHealth("h200", gpus=(gpu,))) == []


def test_every_fact_of_a_healthy_gpu_is_read(tmp_path):
    gpus, unread = read(tmp_path, h100s(1))
    assert gpus == (
        GpuHealth(
            bus_id="0000:1b:00.0",
            name="NVIDIA H100 80GB HBM3",
            vbios="96.00.61.00.01",
            ecc_enabled=True,
            ecc_default=True,
            ecc_uncorrected=0,
            ecc_uncorrected_ever=0,
            remapped_rows=0,
            remap_pending=False,
            remap_failed=False,
            sram_worn=False,
            pcie_gts=32.0,
            pcie_width=16,
            pcie_gts_most=32.0,
            pcie_width_most=16,
            pcie_replays=0,
            nvlinks=LINKS,
            nvlinks_expected=LINKS,
            nvlink_errors={"crc_data": 0, "crc_flit": 0, "ecc_data": 0, "recovery": 0, "replay": 0},
            throttled=("gpu_idle",),
            sm_clock_mhz=345,
            sm_clock_most_mhz=1980,
            application_clock_mhz=1980,
            power_limit_w=700.0,
            power_limit_default_w=700.0,
            temperature_c=31,
            persistence=True,
            compute_mode="default",
            mig=False,
            processes=0,
        ),
    )
    assert list(unread) == ["PCIe links under load"]


def test_a_machine_without_a_driver_has_no_gpus_and_says_what_it_takes():
    class NoDriver:
        NVMLError = pynvml.NVMLError

        def nvmlInit(self):  # noqa: N802 - NVML's own name
            raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    gpus, unread = read_gpus(NoDriver())
    assert gpus == ()
    assert list(unread) == ["GPUs"]
    assert "Library Not Found" in unread["GPUs"]
    assert "install NVIDIA's driver" in unread["GPUs"]


@pytest.mark.parametrize(
    "folder", [folder for folder in MACHINES if folder != H200], ids=lambda folder: folder.name
)
def test_recordings_that_lack_the_questions_are_read_with_unknown_values(folder):
    gpus, unread = read_gpus(recorded.driver_of(folder))
    assert unread
    for gpu in gpus:
        assert (gpu.ecc_enabled, gpu.power_limit_w, gpu.persistence, gpu.processes) == (None,) * 4
        assert gpu.throttled == ()
        assert gpu.compute_mode == ""
    if gpus:
        assert "newer" in unread["ECC modes"]


def test_a_lost_gpu_is_kept_with_the_reason():
    folder = next(one for one in MACHINES if one.name == "linux-hyperv-h100")
    gpus, _ = read_gpus(recorded.driver_of(folder))
    assert [(gpu.bus_id, gpu.failure) for gpu in gpus] == [
        ("0001:00:00.0", ""),
        ("0002:00:00.0", ""),
        ("gpu2", "GPU is lost"),
    ]


def test_a_gpu_that_falls_off_the_bus_between_two_questions_is_lost(tmp_path):
    gpus, _ = read(tmp_path, h100s(2, nvmlDeviceGetTemperature={"1": {"error": 15}}))
    assert [gpu.failure for gpu in gpus] == ["", "GPU is lost"]


def test_a_gpu_that_may_not_be_used_is_no_failed_gpu(tmp_path):
    gpus, unread = read(tmp_path, h100s(2, nvmlDeviceGetHandleByIndex={"0": 0, "1": {"error": 4}}))
    assert [gpu.bus_id for gpu in gpus] == [bus_id(0)]
    assert unread["GPUs"] == "nvmlDeviceGetHandleByIndex: Insufficient Permissions: run as root"


def test_old_gpus_retire_pages_instead_of_remapping_rows(tmp_path):
    pages = {"0,0": [4096] * 3, "0,1": [8192] * 4}
    answers = h100s(1, nvmlDeviceGetRetiredPages=pages, nvmlDeviceGetRemappedRows={"*": {"error": 3}})
    (gpu,), unread = read(tmp_path, answers)
    assert (gpu.retired_pages, gpu.remapped_rows, gpu.remap_pending) == (7, None, None)
    assert "remapped rows" not in unread


def test_the_most_of_a_link_is_what_system_and_gpu_can(tmp_path):
    (gpu,), _ = read(tmp_path, h100s(1, nvmlDeviceGetGpuMaxPcieLinkGeneration={"*": 4}))
    assert gpu.pcie_gts_most == 16.0


def test_the_lower_of_two_power_limits_holds(tmp_path):
    (gpu,), _ = read(tmp_path, h100s(1, nvmlDeviceGetEnforcedPowerLimit={"*": 550000}))
    assert (gpu.power_limit_w, gpu.power_limit_default_w) == (550.0, 700.0)


def test_reasons_of_slow_clocks_have_the_name_of_older_drivers_too(tmp_path):
    answers = h100s(1, nvmlDeviceGetCurrentClocksThrottleReasons={"*": 0x48})
    del answers["nvmlDeviceGetCurrentClocksEventReasons"]
    (gpu,), unread = read(tmp_path, answers)
    assert gpu.throttled == ("hw_slowdown", "hw_thermal")
    assert "reasons of slow clocks" not in unread


def test_a_slowdown_that_has_ended_at_the_second_look_is_none(tmp_path):
    driver = recorded.driver_of(recording(tmp_path, h100s(1)))
    masks = iter([0x9, 0x1])
    driver.nvmlDeviceGetCurrentClocksEventReasons = lambda handle: next(masks)
    (gpu,), _ = read_gpus(driver)
    assert gpu.throttled == ("gpu_idle",)


@pytest.mark.parametrize(
    ("name", "capability", "expected"),
    [
        ("NVIDIA H100 80GB HBM3", [9, 0], 18),
        ("NVIDIA A100-SXM4-80GB", [8, 0], 12),
        ("NVIDIA A800-SXM4-80GB", [8, 0], 8),
        ("Tesla V100-SXM2-32GB", [7, 0], 6),
        ("NVIDIA B200", [10, 0], 18),
        ("NVIDIA GH200 480GB", [9, 0], None),
        ("NVIDIA H100 PCIe", [9, 0], None),
    ],
)
def test_models_with_links_on_their_board_have_a_number_of_them(tmp_path, name, capability, expected):
    changes = {
        "nvmlDeviceGetName": {"*": name},
        "nvmlDeviceGetCudaComputeCapability": {"*": capability},
        "nvmlDeviceGetNvLinkState": {"0,3": 0},
    }
    (gpu,), _ = read(tmp_path, h100s(1, **changes))
    assert (gpu.nvlinks, gpu.nvlinks_expected) == (17, expected)


def test_links_are_unknown_if_one_does_not_answer_or_a_guest_hides_them(tmp_path):
    (gpu,), unread = read(tmp_path / "a", h100s(1, nvmlDeviceGetNvLinkState={"0,4": {"error": 999}}))
    assert gpu.nvlinks is None
    assert "dmesg" in unread["NVLinks"]
    (gpu,), unread = read(tmp_path / "b", h100s(1, nvmlDeviceGetNvLinkState={"*": {"error": 3}}))
    assert gpu.nvlinks is None
    assert "virtual machine" in unread["NVLinks"]


def test_a_model_without_nvlink_is_not_asked_for_links(tmp_path):
    changes = {"nvmlDeviceGetName": {"*": "NVIDIA L40S"}, "nvmlDeviceGetNvLinkState": {"*": {"error": 3}}}
    (gpu,), unread = read(tmp_path, h100s(1, **changes))
    assert (gpu.nvlinks, gpu.nvlinks_expected) == (None, None)
    assert "NVLinks" not in unread


def test_errors_of_all_links_are_summed_and_those_of_new_gpus_are_field_values(tmp_path):
    counters = {"*": 0, "0,2,1": 3, "0,5,1": 4, "0,5,2": 9}
    (gpu,), _ = read(tmp_path / "a", h100s(1, nvmlDeviceGetNvLinkErrorCounter=counters))
    assert (gpu.nvlink_errors["recovery"], gpu.nvlink_errors["crc_flit"]) == (7, 9)
    field = f"0,{pynvml.NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_EVENTS}:6"
    answers = h100s(1, nvmlDeviceGetFieldValues={field: {"nvmlReturn": 0, "value": {"uiVal": 5}}})
    del answers["nvmlDeviceGetNvLinkErrorCounter"]
    (gpu,), _ = read(tmp_path / "b", answers)
    assert gpu.nvlink_errors == {"recovery": 5}


def test_processes_other_than_this_one_are_counted(tmp_path):
    running = [{"pid": os.getpid(), "usedGpuMemory": 1}, {"pid": 1, "usedGpuMemory": None}]
    (gpu,), _ = read(tmp_path, h100s(1, nvmlDeviceGetComputeRunningProcesses={"*": running}))
    assert gpu.processes == 1


class Loaded:
    """A driver whose PCIe links are fast only while one of its loads runs."""

    def __init__(self, driver):
        self.driver, self.busy, self.order = driver, None, []

    def __getattr__(self, name):
        found = getattr(self.driver, name)
        if name == "nvmlDeviceGetCurrPcieLinkGeneration":
            return lambda handle: found(handle) if self.busy == handle else 1
        if name == "nvmlDeviceGetComputeRunningProcesses":
            self.order.append("processes")
        return found

    @contextmanager
    def load(self, index):
        self.order.append(f"load {index}")
        self.busy = index
        try:
            yield
        finally:
            self.busy = None


def test_links_are_read_while_data_moves_and_after_everything_else(tmp_path):
    driver = Loaded(recorded.driver_of(recording(tmp_path, h100s(2))))
    gpus, unread = read_gpus(driver, driver.load)
    assert [(gpu.pcie_gts, gpu.pcie_gts_load, gpu.pcie_width_load) for gpu in gpus] == [(2.5, 32.0, 16)] * 2
    assert driver.order == ["processes", "processes", "load 0", "load 1"]
    assert unread == {}


def test_a_load_that_only_starts_copies_needs_no_block(tmp_path):
    (gpu,), _ = read(tmp_path, h100s(1), load=lambda index: index)
    assert gpu.pcie_gts_load == 32.0


def test_a_gpu_that_cannot_be_loaded_keeps_its_other_facts(tmp_path):
    def load(index):
        raise UnavailableError("CUDA: no such device", hint="See doctor.")

    (gpu,), unread = read(tmp_path, h100s(1), load)
    assert (gpu.pcie_gts, gpu.pcie_gts_load) == (32.0, None)
    assert unread == {"PCIe links under load": "CUDA: no such device; See doctor."}


def test_without_a_load_the_links_under_load_are_unknown_and_said_so(tmp_path):
    (gpu,), unread = read(tmp_path, h100s(1))
    assert (gpu.pcie_gts_load, gpu.pcie_width_load) == (None, None)
    assert "cupy" in unread["PCIe links under load"]


def test_a_slot_limits_what_a_link_can():
    gpu = GpuHealth("0000:01:00.0", pcie_gts_most=32.0, pcie_width_most=16)
    slot = PciDevice("0000:00:01.0", "sysfs", max_speed_gts=16.0, max_width=8)
    card = PciDevice("0000:01:00.0", "sysfs", parent="0000:00:01.0")
    (limited,) = with_pci_tree((gpu,), Host("h", "sysfs", pci=(slot, card)))
    assert (limited.pcie_gts_most, limited.pcie_width_most) == (16.0, 8)
    unknown = dataclasses.replace(gpu, bus_id="0000:99:00.0")
    assert with_pci_tree((unknown,), Host("h", "sysfs", pci=(slot, card))) == (unknown,)


def test_a_lost_gpu_has_the_bus_id_that_no_other_answers_for():
    names = ("0000:01:00.0", "0000:02:00.0", "0000:03:00.0")
    host = Host("h", "sysfs", gpus=tuple(Gpu(name, "sysfs", vendor="nvidia") for name in names))
    gpus = (GpuHealth(names[0]), GpuHealth("gpu1", failure="GPU is lost"), GpuHealth(names[2]))
    assert tuple(gpu.bus_id for gpu in with_pci_tree(gpus, host)) == names
    assert with_pci_tree(gpus[:2], host) == gpus[:2]


def test_a_recording_keeps_the_answers_on_health(tmp_path):
    answers = h100s(2, nvmlDeviceGetComputeRunningProcesses={"1": [{"pid": 1, "usedGpuMemory": 5}]})
    first = recorded.driver_of(recording(tmp_path / "a", answers))
    files = recorded.record(tmp_path, first, readers=[read_gpus])
    again = recording(tmp_path / "b", json.loads(files["nvml.json"]))
    assert read_gpus(recorded.driver_of(again)) == read_gpus(first)
    assert read_gpus(first)[0][1].processes == 1


def test_objects_of_pynvml_are_recorded_with_their_fields():
    class Driver:
        NVMLError = pynvml.NVMLError

        def nvmlDeviceGetComputeRunningProcesses(self, handle):  # noqa: N802 - NVML's own name
            return [pynvml.nvmlStructToFriendlyObject(pynvml.c_nvmlProcessInfo_v3_t())]

    recording_driver = RecordingNvml(Driver())
    recording_driver.nvmlDeviceGetComputeRunningProcesses(0)
    kept = json.loads(json.dumps(recording_driver.answers))["nvmlDeviceGetComputeRunningProcesses"]["0"]
    assert kept[0]["pid"] == 0


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=6)
    | st.sampled_from(
        [{"error": 3}, {"error": 15}, {"error": "x"}, {"error": []}, {"value": {"uiVal": "x"}}]
    ),
    lambda inside: st.lists(inside, max_size=4) | st.dictionaries(st.text(max_size=4), inside, max_size=3),
    max_leaves=5,
)
FUNCTIONS = sorted(h100s(1))


@given(st.dictionaries(st.sampled_from(FUNCTIONS), st.dictionaries(st.just("*"), JSON), max_size=6))
@settings(max_examples=drawn(80), deadline=None)
def test_no_answer_of_a_wrong_type_crashes_the_reader(changes):
    changes = {function: known for function, known in changes.items() if known}
    answers = h100s(1)
    answers.update(changes)
    gpus, unread = read_gpus(RecordedNvml(answers, pynvml))
    types = {field.name: field.type for field in dataclasses.fields(GpuHealth)}
    for gpu in gpus:
        assert list(not_finite(gpu, "gpu")) == []
        for name, kind in types.items():
            value = getattr(gpu, name)
            if kind == "int | None":
                assert value is None or (type(value) is int and 0 <= value < 2**64)
            elif kind == "str":
                assert isinstance(value, str)
    assert all(isinstance(text, str) for text in unread.values())


@given(JSON)
@settings(max_examples=drawn(60), deadline=None)
def test_a_count_is_a_whole_number_or_unknown(answer):
    driver = SafeDriver(RecordedNvml({"nvmlAsk": {"*": answer}}, pynvml))
    count = driver.count("nvmlAsk", 0)
    assert count is None or count == answer
    assert count is not None or driver.refused or answer is None


def test_invalid_link_numbers_end_the_links(tmp_path):
    answers = h100s(1, nvmlDeviceGetNvLinkState={"0,12": INVALID})
    del answers["nvmlDeviceGetFieldValues"]
    (gpu,), _ = read(tmp_path, answers)
    assert gpu.nvlinks == 12
