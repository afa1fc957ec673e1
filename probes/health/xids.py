"""The meaning of XIDs, the faults that NVIDIA's driver writes into the kernel's log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from probes.health.model import KernelEvent, Severity

__all__ = ["Meaning", "meaning"]

_SUPPORT = (
    "drain the host, reset the GPU (nvidia-smi -r -i {device}); if it comes back, have the GPU replaced"
)
_REPLACE = "drain the host and have the GPU replaced"
_RESET = "drain the host and reset the GPU (nvidia-smi -r -i {device}); if it comes back, restart the host"
_LATER = "reset the GPU at the next break (nvidia-smi -r -i {device})"
_BUS = (
    "restart the host; if it comes back, reseat the GPU, then try it in another slot, then have it replaced"
)
_LINK = "reset all GPUs of the host (nvidia-smi -r); if it comes back, have the NVLink part replaced"


@dataclass(frozen=True)
class Meaning:
    """The meaning of an XID; ``severity`` is "harmless" if an application, and no part, is to blame."""

    text: str
    severity: Severity | Literal["harmless"]
    remedy: str = ""


# NVIDIA's catalogue of XIDs (docs.nvidia.com/deploy/xid-errors, "Analyzing Xid Errors with the Xid Catalog")
# gives each its meaning and what to do: restart the application, ignore, reset the GPU, restart the host,
# contact support. A fault here is an XID that asks for a reset, a restart or support because of a part.
_XIDS: dict[int, Meaning] = {
    **dict.fromkeys((8, 11, 69, 80), Meaning("an application misused the GPU", "harmless")),
    13: Meaning("an application raised an exception of the graphics engine", "harmless"),
    31: Meaning("an application accessed memory that it does not have", "harmless"),
    32: Meaning(
        "commands arrived damaged over PCIe",
        "remark",
        "look for PCIe errors of the GPU in the kernel's log; reseat it if there are any",
    ),
    **dict.fromkeys((37, 38, 44), Meaning("the GPU's firmware reported an error of no effect", "harmless")),
    43: Meaning("an application hit a fault of its own and was stopped", "harmless"),
    45: Meaning("an application ended and its work on the GPU was removed", "harmless"),
    46: Meaning("the GPU stopped processing", "fault", _RESET),
    48: Meaning("an uncorrectable memory error (double bit ECC)", "fault", _SUPPORT),
    54: Meaning("the GPU's power cable is not connected", "fault", "connect the power cable of the GPU"),
    **dict.fromkeys((61, 62), Meaning("the GPU's power controller halted", "fault", _SUPPORT)),
    63: Meaning("a memory row was remapped, or a page retired, after errors", "remark", _LATER),
    64: Meaning("a damaged memory row could not be remapped, or a page not retired", "fault", _REPLACE),
    74: Meaning("an NVLink failed", "fault", _LINK),
    78: Meaning("a virtual GPU did not start", "remark", "update the vGPU software of host and guest"),
    79: Meaning("the GPU has fallen off the bus", "fault", _BUS),
    92: Meaning("many single-bit memory errors were corrected", "remark", _LATER),
    94: Meaning("a memory error was contained in one application", "remark", _LATER),
    95: Meaning("an uncontained memory error", "fault", _SUPPORT),
    **dict.fromkeys((106, 107, 162), Meaning("a message of no effect", "harmless")),
    109: Meaning("the GPU did not switch between applications in time", "fault", _RESET),
    110: Meaning("a security fault, which is rare unless a part is broken", "fault", _SUPPORT),
    119: Meaning("the GPU's system processor (GSP) did not answer in time", "fault", _RESET),
    120: Meaning("the GPU's system processor (GSP) failed", "fault", _RESET),
    121: Meaning("errors between CPU and GPU (C2C) were corrected", "remark", _LATER),
    136: Meaning("an NVLink could not be trained", "fault", _LINK),
    137: Meaning("an application accessed another GPU's memory that it does not have", "harmless"),
    140: Meaning("an uncorrectable memory error that could not be repaired", "fault", _SUPPORT),
    141: Meaning("a fast path of CUDA was not taken", "harmless"),
    143: Meaning("the GPU could not be initialized", "fault", _SUPPORT),
    **dict.fromkeys(range(144, 151), Meaning("an NVLink failed", "fault", _LINK)),
    154: Meaning("the driver states what the GPU needs after another XID", "remark", _RESET),
    155: Meaning("an NVLink was taken down by software", "remark", _LINK),
    156: Meaning("a part of the GPU was retired after errors", "remark", _LATER),
    157: Meaning("a damaged part of the GPU could not be retired", "fault", _REPLACE),
    158: Meaning("the GPU stopped answering", "fault", _SUPPORT),
    **dict.fromkeys((160, 161), Meaning("a memory channel was retired, or could not be", "remark", _LATER)),
    167: Meaning("the GPU did not answer over PCIe in time", "fault", _BUS),
    168: Meaning("memory errors in the driver's protected region", "remark", "turn ECC on (nvidia-smi -e 1)"),
    **dict.fromkeys((171, 172), Meaning("an uncorrectable memory error", "fault", _SUPPORT)),
}
_UNKNOWN = Meaning("an XID without an entry here", "remark", "look it up: docs.nvidia.com/deploy/xid-errors")
# NVLink errors of these XIDs are fatal or not, which only their text says.
_BY_TEXT = range(144, 151)


def meaning(event: KernelEvent) -> Meaning:
    """Return the meaning of an XID; that of an NVLink error depends on the event's text."""
    found = _XIDS.get(event.code, _UNKNOWN)
    if event.code in _BY_TEXT and "nonfatal" in event.text.lower().replace("-", ""):
        return Meaning("an NVLink had an error of no effect", "harmless")
    if event.code == 154 and "(none)" in event.text.lower().rpartition(" to ")[2]:
        return Meaning("the GPU needs nothing any more", "harmless")
    return found
