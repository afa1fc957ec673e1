"""The health of this host's NVIDIA GPUs, from the driver's NVML.

If the driver refuses a call, the call's value stays unknown, and ``unread`` says what it takes to read it.
The NVML module is an argument, so that recorded answers can be replayed.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any, TypeVar

from probes.base import UnavailableError, install
from probes.health.model import GpuHealth
from probes.health.safe_driver import SafeDriver
from probes.nvml import MOST_GPUS, bus_id_of, link_states
from probes.paths import load as bandwidth_tables, nvlink_of
from probes.topology import PCIE_GTS, Gpu, Host

__all__ = ["read_gpus", "with_pci_tree"]

_Number = TypeVar("_Number", int, float)

# The fact that each call answers, as ``unread`` names it.
_FACTS = {
    "nvmlInit": "GPUs",
    "nvmlDeviceGetCount": "GPUs",
    "nvmlDeviceGetHandleByIndex": "GPUs",
    "nvmlDeviceGetPciInfo": "bus ids",
    "nvmlDeviceGetName": "names",
    "nvmlDeviceGetVbiosVersion": "VBIOS versions",
    "nvmlDeviceGetEccMode": "ECC modes",
    "nvmlDeviceGetTotalEccErrors": "ECC errors",
    "nvmlDeviceGetRemappedRows": "remapped rows",
    "nvmlDeviceGetRetiredPages": "retired pages",
    "nvmlDeviceGetCurrPcieLinkGeneration": "PCIe links",
    "nvmlDeviceGetMaxPcieLinkGeneration": "PCIe links",
    "nvmlDeviceGetCurrPcieLinkWidth": "PCIe links",
    "nvmlDeviceGetMaxPcieLinkWidth": "PCIe links",
    "nvmlDeviceGetPcieReplayCounter": "PCIe replays",
    "nvmlDeviceGetNvLinkState": "NVLinks",
    "nvmlDeviceGetCurrentClocksThrottleReasons": "reasons of slow clocks",
    "nvmlDeviceGetClockInfo": "clocks",
    "nvmlDeviceGetMaxClockInfo": "clocks",
    "nvmlDeviceGetApplicationsClock": "application clocks",
    "nvmlDeviceGetPowerManagementLimit": "power limits",
    "nvmlDeviceGetPowerManagementDefaultLimit": "power limits",
    "nvmlDeviceGetTemperature": "temperatures",
    "nvmlDeviceGetPersistenceMode": "persistence modes",
    "nvmlDeviceGetComputeMode": "compute modes",
    "nvmlDeviceGetComputeRunningProcesses": "processes",
}
# A GPU that does not state its bus id is named by this prefix and its index, as in the topology.
_NO_BUS_ID = "gpu"
_LOAD = "PCIe links under load"

# Advice for a refused call, by NVML's error number (NVML_ERROR_… in nvml.h).
_REMEDIES = {
    3: "this model, its driver or the virtual machine does not offer it",
    4: "run as root",
    9: "load the kernel module: modprobe nvidia",
    12: "install NVIDIA's driver, or run on a host with NVIDIA GPUs",
    13: "a newer driver offers it, or a newer recording has it",
    18: "reload the kernel module or reboot: library and module are of two versions",
    999: "the kernel's log may say why: dmesg",
}
# NVML's errors that mean that the GPU itself failed: insufficient external power, lost interrupts, a
# corrupted infoROM, a GPU that fell off the bus, a reset that is required.
_FAILURES = (8, 11, 14, 15, 16)

# Bits of nvmlClocksEventReason… in nvml.h (nvmlClocksThrottleReason… before driver 535).
_CLOCK_REASONS = {
    0x1: "gpu_idle",
    0x2: "applications_clocks",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal",
    0x40: "hw_thermal",
    0x80: "hw_power_brake",
    0x100: "display_clocks",
}
# NVML_COMPUTEMODE_… in nvml.h.
_COMPUTE_MODES = {0: "default", 1: "exclusive_thread", 2: "prohibited", 3: "exclusive_process"}
# NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC, NVML_AGGREGATE_ECC, NVML_CLOCK_SM and
# NVML_TEMPERATURE_GPU in nvml.h.
_UNCORRECTED, _VOLATILE, _AGGREGATE, _SM, _DIE = 1, 0, 1, 1, 0
# NVML_PAGE_RETIREMENT_CAUSE_…: repeated single-bit errors, a double-bit error.
_RETIREMENT_CAUSES = (0, 1)
# NVML's error counters of an NVLink (NVML_NVLINK_ERROR_DL_… in nvml.h), which it has for GPUs up to Hopper.
_LINK_COUNTERS = {0: "replay", 1: "recovery", 2: "crc_flit", 3: "crc_data", 4: "ecc_data"}
# NVML's field values that count the errors of an NVLink on GPUs from Blackwell on.
_LINK_FIELDS = {
    "NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_EVENTS": "recovery",
    "NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS": "recovery_failed",
}
# The A800 and H800 have 400 GB/s of NVLink by their data sheets: 8 links, fewer than other GPUs of their
# architectures.
_FEWER_LINKS, _FEWER = re.compile(r"\b[AH]800\b"), 8
# A GH200 can stand alone, with no NVLink connected.
_ALONE = re.compile(r"\bGH200\b")


def read_gpus(
    nvml: Any, load: Callable[[int], object] | None = None
) -> tuple[tuple[GpuHealth, ...], dict[str, str]]:
    """Return the GPUs, and for each fact that could not be read, what it takes to read it.

    ``load`` is called with the index of a GPU and starts to move data over its PCIe link. If it returns a
    context manager, the link is read within its block. Without a driver there are no GPUs, and the entry
    "GPUs" says why.
    """
    driver = SafeDriver(nvml)
    driver.ask("nvmlInit")
    if driver.refused:
        return (), _unread(nvml, driver.refused)
    try:
        found, refused = _read(driver)
        unread = _unread(nvml, refused + driver.refused)
        # The links are loaded after everything else was read, so that the load of one GPU does not show as a
        # process on the next.
        return tuple(_under_load(driver, found, load, unread)), unread
    finally:
        driver.ask("nvmlShutdown", quiet=True)


def with_pci_tree(gpus: tuple[GpuHealth, ...], host: Host) -> tuple[GpuHealth, ...]:
    """Return the GPUs with what the kernel's PCI tree adds to the driver's answers.

    The bridge above a GPU limits the speed and the width of its link. Drivers do not see this limit: they
    report 16 lanes for a GPU in a slot of four. GPUs that do not tell their bus id get the bus ids of the
    NVIDIA GPUs in the tree that did not answer, if there are as many of them.
    """
    places = {device.bus_id: device for device in host.pci}
    limited = []
    for gpu in _placed(gpus, host):
        bridge = places.get(places[gpu.bus_id].parent) if gpu.bus_id in places else None
        if bridge is not None:
            gpu = replace(
                gpu,
                pcie_gts_most=_least(gpu.pcie_gts_most, bridge.max_speed_gts),
                pcie_width_most=_least(gpu.pcie_width_most, bridge.max_width),
            )
        limited.append(gpu)
    return tuple(limited)


def _placed(gpus: tuple[GpuHealth, ...], host: Host) -> Iterator[GpuHealth]:
    """Yield the GPUs; GPUs without a bus id get the unused bus ids in order, if there are as many.

    NVML numbers GPUs in the order of their bus ids.
    """
    known = {gpu.bus_id for gpu in gpus}
    left = sorted(gpu.bus_id for gpu in host.gpus if gpu.vendor == "nvidia" and gpu.bus_id not in known)
    nameless = [gpu for gpu in gpus if gpu.bus_id.startswith(_NO_BUS_ID)]
    names = dict(zip((gpu.bus_id for gpu in nameless), left, strict=False))
    for gpu in gpus:
        fits = gpu in nameless and len(nameless) == len(left)
        yield replace(gpu, bus_id=names[gpu.bus_id]) if fits else gpu


def _read(driver: SafeDriver) -> tuple[dict[int, tuple[Any, GpuHealth]], Counter[tuple[str, str]]]:
    """Return (handle, health) of each GPU by its index, and the refused calls."""
    found: dict[int, tuple[Any, GpuHealth]] = {}
    refused: Counter[tuple[str, str]] = Counter()
    failures = {str(driver.nvml.NVMLError(code)) for code in _FAILURES}
    for index in range(min(driver.count("nvmlDeviceGetCount") or 0, MOST_GPUS)):
        one = SafeDriver(driver.nvml)
        handle = one.ask("nvmlDeviceGetHandleByIndex", index)
        gpu = GpuHealth(f"{_NO_BUS_ID}{index}") if handle is None else _gpu(one, handle, index)
        failure = next((reason for _, reason in one.refused if reason in failures), "")
        if handle is not None or failure:
            found[index] = handle, replace(gpu, failure=failure)
        refused += one.refused
    return found, refused


def _gpu(driver: SafeDriver, handle: Any, index: int) -> GpuHealth:
    gpu = GpuHealth(
        bus_id=_bus_id(driver, handle, index),
        name=driver.text("nvmlDeviceGetName", handle),
        vbios=driver.text("nvmlDeviceGetVbiosVersion", handle),
    )
    reasons = _clock_reasons(driver, handle)
    gpu = _with_settings(driver, handle, gpu)
    gpu = _with_memory(driver, handle, gpu)
    gpu = _with_pcie(driver, handle, gpu)
    gpu = _with_nvlinks(driver, handle, gpu)
    # A change of clocks shows as a slowdown for a moment, so only reasons that are there in both readings
    # count.
    later = _clock_reasons(driver, handle)
    return replace(gpu, throttled=tuple(reason for reason in reasons if reason in later))


def _bus_id(driver: SafeDriver, handle: Any, index: int) -> str:
    place = driver.ask("nvmlDeviceGetPciInfo", handle)
    try:
        return bus_id_of(place)
    except (AttributeError, TypeError, ValueError):
        return f"{_NO_BUS_ID}{index}"


def _with_settings(driver: SafeDriver, handle: Any, gpu: GpuHealth) -> GpuHealth:
    mode = driver.count("nvmlDeviceGetComputeMode", handle)
    # GPUs that cannot be partitioned refuse this call, which is no failure.
    mig = driver.counts("nvmlDeviceGetMigMode", 1, handle, quiet=True)
    limits = (
        driver.count("nvmlDeviceGetPowerManagementLimit", handle),
        driver.count("nvmlDeviceGetEnforcedPowerLimit", handle, quiet=True),
    )
    return replace(
        gpu,
        sm_clock_mhz=driver.count("nvmlDeviceGetClockInfo", handle, _SM),
        sm_clock_most_mhz=driver.count("nvmlDeviceGetMaxClockInfo", handle, _SM),
        application_clock_mhz=driver.count("nvmlDeviceGetApplicationsClock", handle, _SM),
        power_limit_w=_watts(_least(*limits)),
        power_limit_default_w=_watts(driver.count("nvmlDeviceGetPowerManagementDefaultLimit", handle)),
        temperature_c=driver.count("nvmlDeviceGetTemperature", handle, _DIE),
        persistence=driver.flag("nvmlDeviceGetPersistenceMode", handle),
        compute_mode="" if mode is None else _COMPUTE_MODES.get(mode, ""),
        mig=None if mig is None else mig[0] != 0,
        processes=_processes(driver, handle),
    )


def _with_memory(driver: SafeDriver, handle: Any, gpu: GpuHealth) -> GpuHealth:
    mode = driver.counts("nvmlDeviceGetEccMode", 1, handle)
    default = driver.counts("nvmlDeviceGetDefaultEccMode", 1, handle, quiet=True)
    call = "nvmlDeviceGetTotalEccErrors"
    since_load, ever = (
        driver.count(call, handle, _UNCORRECTED, counter) if mode and mode[0] else None
        for counter in (_VOLATILE, _AGGREGATE)
    )
    # GPUs remap rows from Ampere on and retire pages before that, so one of the two is refused.
    rows = driver.counts("nvmlDeviceGetRemappedRows", 4, handle, quiet=True)
    pages = [
        driver.counts("nvmlDeviceGetRetiredPages", 0, handle, cause, quiet=True)
        for cause in _RETIREMENT_CAUSES
    ]
    known = [page for page in pages if page is not None]
    if rows is None and not known:
        rows = driver.counts("nvmlDeviceGetRemappedRows", 4, handle)
    return replace(
        gpu,
        ecc_enabled=None if mode is None else mode[0] != 0,
        ecc_default=None if default is None else default[0] != 0,
        ecc_uncorrected=since_load,
        ecc_uncorrected_ever=ever,
        remapped_rows=None if rows is None else rows[0] + rows[1],
        remap_pending=None if rows is None else rows[2] != 0,
        remap_failed=None if rows is None else rows[3] != 0,
        retired_pages=sum(map(len, known)) if known else None,
        sram_worn=_sram_worn(driver, handle),
    )


def _sram_worn(driver: SafeDriver, handle: Any) -> bool | None:
    """Return whether SRAM errors exceed NVIDIA's threshold for replacement; None if not known."""
    kind = getattr(driver.nvml, "c_nvmlEccSramErrorStatus_v1_t", None)
    if kind is None:
        return None
    status = kind()
    if driver.ask("nvmlDeviceGetSramEccErrorStatus", handle, ctypes.byref(status), quiet=True) is None:
        return None
    return bool(status.bThresholdExceeded)


def _with_pcie(driver: SafeDriver, handle: Any, gpu: GpuHealth) -> GpuHealth:
    gts, width = _link(driver, handle)
    most = driver.count("nvmlDeviceGetMaxPcieLinkGeneration", handle)
    own = driver.count("nvmlDeviceGetGpuMaxPcieLinkGeneration", handle, quiet=True)
    return replace(
        gpu,
        pcie_gts=gts,
        pcie_width=width,
        pcie_gts_most=PCIE_GTS.get(_least(most, own) or 0),
        pcie_width_most=driver.count("nvmlDeviceGetMaxPcieLinkWidth", handle) or None,
        pcie_replays=driver.count("nvmlDeviceGetPcieReplayCounter", handle),
    )


def _link(driver: SafeDriver, handle: Any) -> tuple[float | None, int | None]:
    """Return the current GT/s per lane, and the current number of lanes, of the PCIe link."""
    generation = driver.count("nvmlDeviceGetCurrPcieLinkGeneration", handle)
    return PCIE_GTS.get(generation or 0), driver.count("nvmlDeviceGetCurrPcieLinkWidth", handle) or None


def _with_nvlinks(driver: SafeDriver, handle: Any, gpu: GpuHealth) -> GpuHealth:
    capability = driver.counts("nvmlDeviceGetCudaComputeCapability", 2, handle, quiet=True)
    arch = f"sm_{capability[0]}{capability[1]}" if capability else ""
    model = Gpu(gpu.bus_id, "nvml", name=gpu.name, arch=arch)
    if nvlink_of(model) == "none":
        return gpu
    call = "nvmlDeviceGetNvLinkState"
    refused = driver.refused.total()
    try:
        states = dict(link_states(driver, handle))
    except (LookupError, TypeError, ValueError):
        states = {}
    if not states:
        # A virtual machine hides the states of links, and so do drivers for models without links. This call
        # puts the refusal on record.
        driver.ask(call, handle, 0)
    all_known = driver.refused.total() == refused
    return replace(
        gpu,
        nvlinks=sum(states.values()) if states and all_known else None,
        nvlinks_expected=_expected_links(model),
        nvlink_errors=_link_errors(driver, handle, [number for number, is_up in states.items() if is_up]),
    )


def _expected_links(gpu: Gpu) -> int | None:
    """Return how many NVLinks a GPU of this model has on its board; None if that depends on the machine."""
    if _FEWER_LINKS.search(gpu.name):
        return _FEWER if nvlink_of(gpu) == "board" else None
    known = bandwidth_tables().nvlink.get(gpu.arch)
    return known.most if known and nvlink_of(gpu) == "board" and not _ALONE.search(gpu.name) else None


def _link_errors(driver: SafeDriver, handle: Any, numbers: list[int]) -> dict[str, int]:
    """Return the errors of all links together, by kind; kinds that the driver does not count are left out."""
    found: Counter[str] = Counter()
    known: set[str] = set()
    for number in numbers:
        for name, count in _errors_of(driver, handle, number):
            found[name] += count
            known.add(name)
    return {name: found[name] for name in sorted(known)}


def _errors_of(driver: SafeDriver, handle: Any, number: int) -> Iterator[tuple[str, int]]:
    counted = False
    for counter, name in _LINK_COUNTERS.items():
        count = driver.count("nvmlDeviceGetNvLinkErrorCounter", handle, number, counter, quiet=True)
        if count is not None:
            counted = True
            yield name, count
    for constant, name in _LINK_FIELDS.items():
        field_id = None if counted else getattr(driver.nvml, constant, None)
        value = None if field_id is None else driver.field(handle, field_id, number)
        if value is not None:
            yield name, value


def _clock_reasons(driver: SafeDriver, handle: Any) -> tuple[str, ...]:
    """Return the names of the reasons for which clocks are held down now."""
    mask = driver.count("nvmlDeviceGetCurrentClocksEventReasons", handle, quiet=True)
    if mask is None:
        mask = driver.count("nvmlDeviceGetCurrentClocksThrottleReasons", handle) or 0
    return tuple(name for bit, name in _CLOCK_REASONS.items() if mask & bit)


def _processes(driver: SafeDriver, handle: Any) -> int | None:
    """Return how many processes other than this one compute on the GPU."""
    call = "nvmlDeviceGetComputeRunningProcesses"
    running = driver.ask(call, handle)
    if not isinstance(running, list):
        return None
    return len([process for process in running if getattr(process, "pid", None) != os.getpid()])


def _under_load(
    driver: SafeDriver,
    found: Mapping[int, tuple[Any, GpuHealth]],
    load: Callable[[int], object] | None,
    unread: dict[str, str],
) -> Iterator[GpuHealth]:
    """Yield each GPU with its PCIe link read while data moves; ``unread`` gets what failed."""
    if load is None and found:
        hint = install("cuda12", "cuda13")
        unread[_LOAD] = f"idle links are slow, and only CuPy can move data over them: {hint}"
    for index, (handle, gpu) in found.items():
        if load is None or gpu.failure:
            yield gpu
            continue
        try:
            with _block(load(index)):
                gts, width = _link(driver, handle)
        except UnavailableError as error:
            unread[_LOAD] = f"{error}; {error.hint}" if error.hint else str(error)
            yield gpu
        else:
            yield replace(gpu, pcie_gts_load=gts, pcie_width_load=width)


def _block(started: object) -> AbstractContextManager[object]:
    return started if isinstance(started, AbstractContextManager) else nullcontext()


def _unread(nvml: Any, refused: Counter[tuple[str, str]]) -> dict[str, str]:
    """Return the refused calls of each fact, with the reasons and the remedies."""
    remedies = {str(nvml.NVMLError(code)): remedy for code, remedy in _REMEDIES.items()}
    calls: dict[tuple[str, str], list[str]] = {}
    for call, reason in refused:
        calls.setdefault((_FACTS.get(call, call), reason), []).append(call)
    found: dict[str, list[str]] = {}
    for (fact, reason), asked in sorted(calls.items()):
        remedy = f": {remedies[reason]}" if reason in remedies else ""
        found.setdefault(fact, []).append(f"{', '.join(sorted(asked))}: {reason}{remedy}")
    return {fact: "; ".join(texts) for fact, texts in found.items()}


def _least(*values: _Number | None) -> _Number | None:
    return min((value for value in values if value is not None), default=None)


def _watts(milliwatts: int | None) -> float | None:
    return None if milliwatts is None else milliwatts / 1000
