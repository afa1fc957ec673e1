"""This machine's NVIDIA GPUs and NVLinks, from the driver's NVML.

If the driver does not answer a call, the value stays unknown and, unless the call is optional, a note says
so. Other calls are not affected. The NVML module is an argument, so that recorded answers can be replayed.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID

from probes.base import plural
from probes.nvml.call import METHOD, Driver, bus_id_of
from probes.nvml.links import peers_of, read_links, read_matrices
from probes.topology import PCIE_GTS, FabricState, Finding, Gpu, Host, PciDevice, Topology

__all__ = ["METHOD", "MOST_GPUS", "read"]

_FABRIC_STATES: Mapping[int, FabricState] = {
    0: "not supported",
    1: "not started",
    2: "in progress",
    3: "completed",
}
_NO_DRIVER = "no NVIDIA driver answers"
_HANDLE, _LOST = "nvmlDeviceGetHandleByIndex", "GPU is lost"
_CURE = "it fell off the bus; see dmesg for NVRM lines, then reset it or reboot"

# Most GPUs read from one host: more than any host has. It bounds the number that a recording may state.
MOST_GPUS = 1024


def read(host: str, nvml: Any) -> Topology:
    """Read one host from NVML: GPUs, their PCIe links, NVLinks and peer access.

    Without a driver the result is a host without GPUs and a note.
    """
    driver = Driver(nvml)
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return Topology((Host(host, METHOD),), notes=(f"{host}: nvml: {_NO_DRIVER} ({error})",))
    try:
        found = _host(host, driver)
    finally:
        driver.ask("nvmlShutdown", quiet=True)
    lost = driver.refused.pop((_HANDLE, _LOST), 0)
    text = f"{plural(lost, 'GPU')} lost, by NVML: {_CURE}"
    doubts = [Finding("lost-gpu", f"{host}/nvml", text)] if lost else []
    notes = tuple(
        f"{host}: nvml: {call} is not answered: {reason}" + (f" ({count} times)" if count > 1 else "")
        for (call, reason), count in driver.refused.items()
    )
    return Topology((found,), tuple(doubts), notes)


def _host(host: str, driver: Driver) -> Host:
    handles: dict[str, Any] = {}
    gpus, pci, fabric = [], [], []
    for index in range(min(driver.ask("nvmlDeviceGetCount") or 0, MOST_GPUS)):
        handle = driver.ask(_HANDLE, index)
        place = None if handle is None else driver.ask("nvmlDeviceGetPciInfo", handle)
        if place is None:
            continue
        bus_id = bus_id_of(place)
        handles[bus_id] = handle
        gpus.append(_gpu(driver, handle, index, bus_id))
        pci.append(_pci(driver, handle, bus_id, place))
    for bus_id, handle in handles.items():
        fabric += read_links(driver, handle, bus_id, handles)
    matrices = tuple(read_matrices(driver, handles))
    return Host(
        name=host,
        method=METHOD,
        pci=tuple(pci),
        gpus=tuple(replace(gpu, peers=peers_of(gpu, matrices)) for gpu in gpus),
        fabric=tuple(fabric),
        matrices=matrices,
    )


def _gpu(driver: Driver, handle: Any, index: int, bus_id: str) -> Gpu:
    memory = driver.ask("nvmlDeviceGetMemoryInfo", handle)
    capability = driver.ask("nvmlDeviceGetCudaComputeCapability", handle)
    # GPUs that cannot be partitioned refuse this call, which is no failure.
    mig = driver.ask("nvmlDeviceGetMigMode", handle, quiet=True)
    cluster, clique, state = _fabric_of(driver, handle)
    return Gpu(
        bus_id=bus_id,
        method=METHOD,
        index=index,
        vendor="nvidia",
        name=driver.text("nvmlDeviceGetName", handle),
        uuid=driver.text("nvmlDeviceGetUUID", handle),
        memory_bytes=int(memory.total) if memory else None,
        arch="sm_{}{}".format(*capability) if capability else "",
        compute_capability="{}.{}".format(*capability) if capability else "",
        mig=bool(mig[0]) if mig else None,
        usable=True,
        fabric_cluster=cluster,
        fabric_clique=clique,
        fabric_state=state,
    )


def _fabric_of(driver: Driver, handle: Any) -> tuple[str, int | None, FabricState]:
    """Return (cluster, clique, state) of the NVLink domain between hosts; older drivers lack the call."""
    kind = getattr(driver.nvml, "c_nvmlGpuFabricInfo_v2_t", None)
    if kind is None:
        return "", None, ""
    info = kind()
    if driver.ask("nvmlDeviceGetGpuFabricInfoV", handle, ctypes.byref(info), quiet=True) is None:
        return "", None, ""
    state: FabricState = _FABRIC_STATES.get(info.state, "")
    if state != "completed":
        return "", None, state
    return str(UUID(bytes=bytes(info.clusterUuid))), int(info.cliqueId), state


def _pci(driver: Driver, handle: Any, bus_id: str, place: Any) -> PciDevice:
    now, most = (
        driver.ask(f"nvmlDeviceGet{which}PcieLinkGeneration", handle, quiet=True) for which in ("Curr", "Max")
    )
    return PciDevice(
        bus_id=bus_id,
        method=METHOD,
        vendor=f"0x{place.pciDeviceId & 0xFFFF:04x}",
        device=f"0x{place.pciDeviceId >> 16:04x}",
        speed_gts=PCIE_GTS.get(now),
        width=driver.ask("nvmlDeviceGetCurrPcieLinkWidth", handle, quiet=True) or None,
        max_speed_gts=PCIE_GTS.get(most),
        max_width=driver.ask("nvmlDeviceGetMaxPcieLinkWidth", handle, quiet=True) or None,
    )
