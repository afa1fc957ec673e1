"""A topology from ``nvidia-smi -q -x``: GPUs, their PCIe links and NVLink domains, without paths.

The query has the bus ids and models that the matrix of ``nvidia-smi topo -m`` lacks. It lacks the NVLinks,
which the matrix has. Drivers print several texts for an unknown value ("N/A", "Unknown Error", "Requested
functionality has been deprecated"), so a value that does not have the expected form counts as unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath

from probes.base import DataError, decimal, normal_bus_id, plural, whole
from probes.files import XmlElement, parse_xml
from probes.topology import PCIE_GTS, FabricState, Gpu, Host, PciDevice, Topology

__all__ = ["METHOD", "read"]

METHOD = "smi_query"
_ROOT = "nvidia_smi_log"
_HINT = "Give all that nvidia-smi -q -x prints."
_GEN, _WIDTH = "pci/pci_gpu_link_info/pcie_gen/", "pci/pci_gpu_link_info/link_widths/"
_MIB = 1 << 20
# The most lanes of a PCIe link (PCI Express Base Specification); a larger width counts as unknown.
_MOST_LANES = 32
# The most GPUs that one document may list; no host has more.
_MOST_GPUS = 256
# A value above this counts as unknown: no count of links, lanes or cliques and no memory in MiB comes near.
_LARGEST = 10**12
_MIG_MODES = {"Enabled": True, "Disabled": False}
_FABRIC_STATES: Mapping[str, FabricState] = {
    "Not Supported": "not supported",
    "Not Started": "not started",
    "In Progress": "in progress",
    "Completed": "completed",
}


@dataclass(frozen=True)
class _GpuQuery:
    """The answers about one GPU. Paths look like "pci/pci_gpu_link_info/pcie_gen/max_link_gen"."""

    bus_id: str
    element: XmlElement

    def text(self, path: str) -> str:
        """Return the text of the first element at a path; "" if there is none."""
        here: XmlElement | None = self.element
        for tag in path.split("/"):
            here = next((child for child in here.children if child.tag == tag), None) if here else None
        return "" if here is None else " ".join(here.text.split())

    def word(self, path: str) -> str:
        """Return the text of a value; "" if the driver prints a placeholder for an unknown one."""
        text = self.text(path)
        return "" if text in ("N/A", "Unknown Error") or text.startswith("[") else text

    def count(self, path: str) -> int | None:
        """Return a whole number; None for any other text."""
        return whole(self.text(path), high=_LARGEST)

    def amount(self, unit: str, path: str) -> int | None:
        """Return a number followed by ``unit``, as in "16x", rounded; None for any other text."""
        number, found, rest = self.text(path).rpartition(unit)
        amount = decimal(number.strip(), 0.0, _LARGEST) if found and not rest else None
        return None if amount is None else round(amount)


def read(content: bytes, source: str) -> Topology:
    """Read the GPUs of one host; raises DataError for another document, or for a GPU without a bus id."""
    try:
        root = parse_xml(content, source, _ROOT)
        if root.tag != _ROOT:
            raise DataError(source, [f"expected <{_ROOT}>, found <{root.tag}>"])
        gpus = _queries(root, source)
    except DataError as error:
        error.hint = error.hint or _HINT
        raise
    name, attached = PurePath(source).stem, _GpuQuery("", root).count("attached_gpus")
    # GPUs are numbered by their place in the list only if it has all GPUs of the host. Minor numbers may be
    # in another order than the driver's numbers.
    numbered = attached in (None, len(gpus))
    host = Host(
        name=name,
        method=METHOD,
        pci=tuple(map(_pci, gpus)),
        gpus=tuple(_gpu(gpu, number if numbered else None) for number, gpu in enumerate(gpus)),
    )
    few = f"{plural(len(gpus), 'GPU')} listed of {attached} that the host has: their numbers are not known"
    return Topology((host,), notes=() if numbered else (f"{name}: {few}",))


def _queries(root: XmlElement, source: str) -> list[_GpuQuery]:
    elements = [element for element in root.children if element.tag == "gpu"]
    if not 0 < len(elements) <= _MOST_GPUS:
        raise DataError(source, [f"expected 1 to {_MOST_GPUS} <gpu> in <{_ROOT}>, found {len(elements)}"])
    gpus: list[_GpuQuery] = []
    problems: list[str] = []
    for element in elements:
        try:
            gpu = _GpuQuery(normal_bus_id(_place(element)), element)
        except ValueError as error:
            problems.append(f"line {element.line}: <gpu>: {error}")
            continue
        if any(gpu.bus_id == other.bus_id for other in gpus):
            problems.append(f"line {element.line}: <gpu>: {gpu.bus_id} is there a second time")
        gpus.append(gpu)
    if problems:
        raise DataError(source, problems)
    return gpus


def _place(element: XmlElement) -> str:
    """Return the bus id from an element's id, or from <pci> in logs whose ids were removed."""
    return element.get("id") or _GpuQuery("", element).text("pci/pci_bus_id")


def _gpu(query: _GpuQuery, index: int | None) -> Gpu:
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
        memory_bytes=total_mib * _MIB if total_mib else None,
        mig=_MIG_MODES.get(query.text("mig_mode/current_mig")),
        fabric_cluster=query.word("fabric/clusterUuid") if joined else "",
        fabric_clique=query.count("fabric/cliqueId") if joined else None,
        fabric_state=state,
    )


def _pci(query: _GpuQuery) -> PciDevice:
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


def _lanes(query: _GpuQuery, path: str) -> int | None:
    lanes = query.amount("x", path)
    return lanes if lanes is not None and 0 < lanes <= _MOST_LANES else None
