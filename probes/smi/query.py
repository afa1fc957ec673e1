"""A topology from ``nvidia-smi -q -x``: GPUs, their PCIe links and NVLink domains, without paths.

The query has the bus ids and models that the matrix of ``nvidia-smi topo -m`` lacks. It lacks the NVLinks,
which the matrix has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Literal, TypeAlias

from probes.base import plural
from probes.smi.query_xml import GpuQuery, Query, read_query
from probes.topology import PCIE_GTS, Gpu, Host, PciDevice, Topology

__all__ = ["METHOD", "read"]

METHOD = "smi_query"
_GEN, _WIDTH = "pci/pci_gpu_link_info/pcie_gen/", "pci/pci_gpu_link_info/link_widths/"
_MIB = 1 << 20
# The most lanes of a PCIe link (PCI Express Base Specification); a larger width counts as unknown.
_MOST_LANES = 32
_FabricState: TypeAlias = Literal["not supported", "not started", "in progress", "completed", ""]
_FABRIC_STATES: Mapping[str, _FabricState] = {
    "Not Supported": "not supported",
    "Not Started": "not started",
    "In Progress": "in progress",
    "Completed": "completed",
}


def read(content: bytes, source: str) -> Topology:
    """Read the GPUs of one host; raises DataError for another document."""
    query, name = read_query(content, source), PurePath(source).stem
    # GPUs are numbered by their place in the list only if it has all GPUs of the host. Minor numbers may be
    # in another order than the driver's numbers.
    numbered = query.attached in (None, len(query.gpus))
    host = Host(
        name=name,
        method=METHOD,
        pci=tuple(_pci(gpu) for gpu in query.gpus),
        gpus=tuple(_gpu(gpu, number if numbered else None) for number, gpu in enumerate(query.gpus)),
    )
    return Topology((host,), notes=tuple(_notes(name, query, numbered)))


def _notes(name: str, query: Query, numbered: bool) -> Iterator[str]:
    if not numbered:
        listed = plural(len(query.gpus), "GPU")
        yield f"{name}: {listed} listed of {query.attached} that the host has: their numbers are not known"


def _gpu(query: GpuQuery, index: int | None) -> Gpu:
    total_mib = query.amount("MiB", "fb_memory_usage/total")
    state = _FABRIC_STATES.get(query.text("fabric/state"), "")
    joined = state == "completed"
    return Gpu(
        bus_id=query.bus_id,
        method=METHOD,
        index=index,
        vendor="nvidia",
        name=query.word("product_name"),
        uuid=query.word("uuid"),
        memory_bytes=round(total_mib * _MIB) if total_mib else None,
        mig=query.enabled("mig_mode/current_mig"),
        fabric_cluster=query.word("fabric/clusterUuid") if joined else "",
        fabric_clique=query.count("fabric/cliqueId") if joined else None,
        fabric_state=state,
    )


def _pci(query: GpuQuery) -> PciDevice:
    device, maker = _ids(query.text("pci/pci_device_id"))
    board, board_maker = _ids(query.text("pci/pci_sub_system_id"))
    base, sub = (query.text(f"pci/pci_{part}_class") for part in ("base", "sub"))
    known = [part for part in (base, sub) if len(part) == 1 and part in "0123456789ABCDEF"]
    return PciDevice(
        bus_id=query.bus_id,
        method=METHOD,
        role="device",
        pci_class=f"0x0{base}0{sub}".lower() if len(known) == 2 else "",
        vendor=maker,
        device=device,
        subsystem_vendor=board_maker,
        subsystem_device=board,
        speed_gts=PCIE_GTS.get(query.count(f"{_GEN}current_link_gen") or 0),
        width=_lanes(query, f"{_WIDTH}current_link_width"),
        max_speed_gts=PCIE_GTS.get(query.count(f"{_GEN}max_link_gen") or 0),
        max_width=_lanes(query, f"{_WIDTH}max_link_width"),
    )


def _ids(text: str) -> tuple[str, str]:
    """Return (device, vendor) of "20B210DE"; both empty for any other text."""
    digits = text.lower().removeprefix("0x")
    if len(digits) != 8 or not all(digit in "0123456789abcdef" for digit in digits):
        return "", ""
    return f"0x{digits[:4]}", f"0x{digits[4:]}"


def _lanes(query: GpuQuery, path: str) -> int | None:
    lanes = query.whole_amount("x", path)
    return lanes if lanes is not None and 0 < lanes <= _MOST_LANES else None
