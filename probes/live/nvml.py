"""This machine's NVIDIA GPUs and NVLinks as the driver's NVML tells them.

Each call is made on its own: what the driver cannot or may not say stays unknown and is noted. The
module of NVML is an argument, so that recorded answers replay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from probes.spelling import is_hidden, normal_bus_id
from probes.topology import FabricLink, Gpu, Host, PciDevice, Topology

__all__ = ["METHOD", "read"]

METHOD = "nvml"
_LINK_COUNT_FIELD = 91
_LINK_SPEED_FIELD = 164
_MOST_LINKS = 36
_PCIE_GTS = {1: 2.5, 2: 5.0, 3: 8.0, 4: 16.0, 5: 32.0, 6: 64.0}
_LINK_VERSIONS = {1: "1.0", 2: "2.0", 3: "2.2", 4: "3.0", 5: "3.1", 6: "4.0", 7: "5.0", 8: "6.0"}
# The module's NVML_P2P_CAPS_INDEX_READ is a tuple by mistake.
_P2P_READ = 0
_NO_DRIVER = "no NVIDIA driver answers"


@dataclass
class _Driver:
    """NVML with each call guarded; why calls failed is counted by call and reason."""

    nvml: Any
    refused: Counter[tuple[str, str]] = field(default_factory=Counter)

    def ask(self, call: str, *arguments: object, quiet: bool = False) -> Any:
        """The answer of a call; None where the driver or this module does not have it."""
        try:
            return getattr(self.nvml, call)(*arguments)
        except (self.nvml.NVMLError, AttributeError) as error:
            if not quiet:
                self.refused[call, str(error)] += 1
            return None

    def text(self, call: str, handle: object) -> str:
        answer = self.ask(call, handle)
        return answer.decode(errors="replace") if isinstance(answer, bytes) else str(answer or "")

    def field(self, handle: object, field_id: int, scope: int | None = None) -> int | None:
        """A field value; drivers that do not have the field say so in the value, not by an error."""
        wanted = field_id if scope is None else (field_id, scope)
        values = self.ask("nvmlDeviceGetFieldValues", handle, [wanted], quiet=True)
        if not values or values[0].nvmlReturn != 0:
            return None
        return int(values[0].value.uiVal)


def read(host: str, nvml: Any) -> Topology:
    """What NVML says of one host: GPUs, their PCIe links, NVLinks and who can read whom.

    Without a driver the result is a host without GPUs and a note.
    """
    driver = _Driver(nvml)
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return Topology((Host(host, METHOD),), notes=(f"{host}: nvml: {_NO_DRIVER} ({error})",))
    try:
        found = _host(host, driver)
    finally:
        driver.ask("nvmlShutdown", quiet=True)
    notes = tuple(
        f"{host}: nvml: {call} is not answered: {reason}" + (f" ({count} times)" if count > 1 else "")
        for (call, reason), count in driver.refused.items()
    )
    return Topology((found,), notes=notes)


def _host(host: str, driver: _Driver) -> Host:
    handles: dict[str, Any] = {}
    gpus, pci, fabric = [], [], []
    for index in range(driver.ask("nvmlDeviceGetCount") or 0):
        handle = driver.ask("nvmlDeviceGetHandleByIndex", index)
        place = None if handle is None else driver.ask("nvmlDeviceGetPciInfo", handle)
        if place is None:
            continue
        bus_id = _bus_id(place)
        handles[bus_id] = handle
        gpus.append(_gpu(driver, handle, index, bus_id))
        pci.append(_pci(driver, handle, bus_id, place))
    for bus_id, handle in handles.items():
        fabric += _links(driver, handle, bus_id, handles)
    gpus = [_with_peers(driver, gpu, handles) for gpu in gpus]
    return Host(host, METHOD, pci=tuple(pci), gpus=tuple(gpus), fabric=tuple(fabric))


def _gpu(driver: _Driver, handle: Any, index: int, bus_id: str) -> Gpu:
    memory = driver.ask("nvmlDeviceGetMemoryInfo", handle)
    capability = driver.ask("nvmlDeviceGetCudaComputeCapability", handle)
    # GPUs that cannot be partitioned refuse the question: that is an answer, not a gap.
    mig = driver.ask("nvmlDeviceGetMigMode", handle, quiet=True)
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
    )


def _pci(driver: _Driver, handle: Any, bus_id: str, place: Any) -> PciDevice:
    now, most = (
        driver.ask(f"nvmlDeviceGet{which}PcieLinkGeneration", handle, quiet=True) for which in ("Curr", "Max")
    )
    return PciDevice(
        bus_id=bus_id,
        method=METHOD,
        vendor=f"0x{place.pciDeviceId & 0xFFFF:04x}",
        device=f"0x{place.pciDeviceId >> 16:04x}",
        speed_gts=_PCIE_GTS.get(now),
        width=driver.ask("nvmlDeviceGetCurrPcieLinkWidth", handle, quiet=True) or None,
        max_speed_gts=_PCIE_GTS.get(most),
        max_width=driver.ask("nvmlDeviceGetMaxPcieLinkWidth", handle, quiet=True) or None,
    )


def _links(driver: _Driver, handle: Any, source: str, gpus: Container[str]) -> list[FabricLink]:
    found: dict[str, FabricLink] = {}
    for number in _active_links(driver, handle):
        target, kind = _far_end(driver, handle, number, gpus)
        version = driver.ask("nvmlDeviceGetNvLinkVersion", handle, number, quiet=True)
        rate_mbs = driver.field(handle, _LINK_SPEED_FIELD, number)
        first = FabricLink(
            source=source,
            target=target,
            target_kind=kind,
            kind="nvlink",
            count=0,
            method=METHOD,
            version=_LINK_VERSIONS.get(version, ""),
            gbs=rate_mbs / 1000 if rate_mbs else None,
        )
        before = found.get(target, first)
        found[target] = replace(before, count=before.count + 1)
    return list(found.values())


def _active_links(driver: _Driver, handle: Any) -> Iterator[int]:
    """The numbers of the links that are up. Beyond the last one drivers answer with either of two errors."""
    nvml = driver.nvml
    for number in range(driver.field(handle, _LINK_COUNT_FIELD) or _MOST_LINKS):
        try:
            state = nvml.nvmlDeviceGetNvLinkState(handle, number)
        except (nvml.NVMLError_NotSupported, nvml.NVMLError_InvalidArgument):
            return
        except nvml.NVMLError as error:
            driver.refused["nvmlDeviceGetNvLinkState", str(error)] += 1
            continue
        if state == 1:
            yield number


def _far_end(
    driver: _Driver, handle: Any, number: int, gpus: Container[str]
) -> tuple[str, Literal["gpu", "switch", "cpu", "unknown"]]:
    place = driver.ask("nvmlDeviceGetNvLinkRemotePciInfo", handle, number, quiet=True)
    target = "" if place is None else _bus_id(place)
    kind = driver.ask("nvmlDeviceGetNvLinkRemoteDeviceType", handle, number, quiet=True)
    if target in gpus:
        return target, "gpu"
    # A virtual machine hides its switches behind a bus id of ones.
    if target and is_hidden(target):
        return "nvswitch", "switch"
    known: dict[int, Literal["switch", "cpu"]] = {1: "cpu", 2: "switch"}
    return target or ("nvswitch" if kind == 2 else ""), known.get(kind, "unknown")


def _with_peers(driver: _Driver, gpu: Gpu, handles: Mapping[str, Any]) -> Gpu:
    here = handles[gpu.bus_id]
    peers = tuple(
        bus_id
        for bus_id, there in handles.items()
        if bus_id != gpu.bus_id and driver.ask("nvmlDeviceGetP2PStatus", here, there, _P2P_READ) == 0
    )
    return replace(gpu, peers=peers)


def _bus_id(place: Any) -> str:
    raw = place.busId
    try:
        return normal_bus_id(raw.decode() if isinstance(raw, bytes) else raw)
    except ValueError:
        return f"{place.domain:04x}:{place.bus:02x}:{place.device:02x}.0"
