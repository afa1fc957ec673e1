"""The XML of ``nvidia-smi -q -x``: what the driver says of each GPU, by the path of its element.

Versions of the driver differ in where a value is and in what they print for an unknown one ("N/A", "Unknown
Error", "Requested functionality has been deprecated"). So a caller names every path at which a value may be,
and a value that does not have the expected form counts as unknown.
"""

from __future__ import annotations

from dataclasses import dataclass

from probes.base import DataError, decimal, normal_bus_id, whole
from probes.files import XmlElement, parse_xml

__all__ = ["GpuQuery", "Query", "read_query"]

_ROOT = "nvidia_smi_log"
_HINT = "Give all that nvidia-smi -q -x prints."
_SWITCH = {"Enabled": True, "Disabled": False}
_ANSWER = {"Yes": True, "No": False}
# The most GPUs that one document may list; no host has more.
_MOST_GPUS = 256
# A value above this counts as unknown: no count, clock, power or size of memory in MiB comes near.
_LARGEST = 10**12


@dataclass(frozen=True)
class GpuQuery:
    """The answers about one GPU. Paths look like "pci/pci_gpu_link_info/pcie_gen/max_link_gen"."""

    bus_id: str
    element: XmlElement

    def find(self, path: str) -> XmlElement | None:
        """Return the first element at a path; None if there is none."""
        here: XmlElement | None = self.element
        for tag in path.split("/"):
            here = next((child for child in here.children if child.tag == tag), None) if here else None
        return here

    def text(self, *paths: str) -> str:
        """Return the text of the first of several paths that exists; "" if none does."""
        found = (self.find(path) for path in paths)
        return next((" ".join(element.text.split()) for element in found if element is not None), "")

    def word(self, *paths: str) -> str:
        """Return the text of a value; "" if the driver prints a placeholder for an unknown one."""
        text = self.text(*paths)
        return "" if text in ("N/A", "Unknown Error") or text.startswith("[") else text

    def count(self, *paths: str) -> int | None:
        """Return a whole number; None for any other text."""
        return whole(self.text(*paths), high=_LARGEST)

    def amount(self, unit: str, *paths: str) -> float | None:
        """Return a number followed by ``unit``, as in "1410 MHz" or "16x"; None for any other text."""
        text = self.text(*paths)
        return decimal(text.removesuffix(unit).strip(), 0.0, _LARGEST) if text.endswith(unit) else None

    def whole_amount(self, unit: str, *paths: str) -> int | None:
        """Return a number followed by ``unit``, rounded to a whole one; None for any other text."""
        amount = self.amount(unit, *paths)
        return None if amount is None else round(amount)

    def enabled(self, *paths: str) -> bool | None:
        """Return True for "Enabled", False for "Disabled"; None for any other text."""
        return _SWITCH.get(self.text(*paths))

    def yes(self, *paths: str) -> bool | None:
        """Return True for "Yes", False for "No"; None for any other text."""
        return _ANSWER.get(self.text(*paths))


@dataclass(frozen=True)
class Query:
    """The answers about the GPUs of one host, in the order of the driver.

    ``attached`` is the number of GPUs that the host has. A query of a single GPU lists fewer.
    """

    gpus: tuple[GpuQuery, ...]
    attached: int | None
    driver: str
    cuda: str


def read_query(content: bytes, source: str) -> Query:
    """Read the XML; raises DataError for another document, and for a GPU without a valid bus id."""
    try:
        root = parse_xml(content, source, _ROOT)
        if root.tag != _ROOT:
            raise DataError(source, [f"expected <{_ROOT}>, found <{root.tag}>"])
        return _query(root, source)
    except DataError as error:
        error.hint = error.hint or _HINT
        raise


def _query(root: XmlElement, source: str) -> Query:
    elements = [element for element in root.children if element.tag == "gpu"]
    if not 0 < len(elements) <= _MOST_GPUS:
        raise DataError(source, [f"expected 1 to {_MOST_GPUS} <gpu> in <{_ROOT}>, found {len(elements)}"])
    gpus: list[GpuQuery] = []
    problems: list[str] = []
    for element in elements:
        try:
            gpu = GpuQuery(normal_bus_id(_place(element)), element)
        except ValueError as error:
            problems.append(f"line {element.line}: <gpu>: {error}")
            continue
        if any(gpu.bus_id == other.bus_id for other in gpus):
            problems.append(f"line {element.line}: <gpu>: {gpu.bus_id} is there a second time")
        gpus.append(gpu)
    if problems:
        raise DataError(source, problems)
    about = GpuQuery("", root)
    return Query(
        tuple(gpus), about.count("attached_gpus"), about.text("driver_version"), about.text("cuda_version")
    )


def _place(element: XmlElement) -> str:
    """Return the bus id from an element's id, or from <pci> in logs whose ids were removed."""
    return element.get("id") or GpuQuery("", element).text("pci/pci_bus_id")
