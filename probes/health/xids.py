"""The meaning of XIDs, the faults that NVIDIA's driver writes into the kernel's log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from probes.health.model import KernelEvent, Severity

__all__ = ["XidMeaning", "meaning"]

_SUPPORT = (
    "drain the host, reset the GPU (nvidia-smi -r -i {device}); if it comes back, have the GPU replaced"
)
_REPLACE = "drain the host and have the GPU replaced"
_RESET = "drain the host and reset the GPU (nvidia-smi -r -i {device}); if it comes back, restart the host"
_LATER = "reset the GPU at the next break (nvidia-smi -r -i {device})"
_BUS = (
    "restart the host; if it comes back, reseat the GPU, then try it in another slot, then have it replaced"
)
_ENGINE = "restart the application; if it comes back on this GPU alone, have the GPU replaced"
_LINK = "reset all GPUs of the host (nvidia-smi -r); if it comes back, have the NVLink part replaced"


@dataclass(frozen=True)
class XidMeaning:
    """The meaning of an XID; ``severity`` is "harmless" if no part of the machine is to blame."""

    text: str
    severity: Severity | Literal["harmless"]
    remedy: str = ""


# XIDs of the engines that copy, and of those that encode and decode video and pictures.
_COPY = (39, 40, 41, 70, 71, 72, 75, 76, 77, 85, *range(126, 136))
_VIDEO = (60, 68, 82, 83, 84, 86, 88, 89, *range(96, 106), 139, 142)
# NVIDIA's catalogue of XIDs (docs.nvidia.com/deploy/xid-errors, "Analyzing Xid Errors with the Xid Catalog")
# gives the meaning of each XID and what to do: restart the application, ignore it, reset the GPU, restart the
# host, or contact support. An XID is a fault here if a broken part is the reason for a reset, a restart of
# the host, or support.
_XIDS: dict[int, XidMeaning] = {
    **dict.fromkeys((8, 11, 69, 80), XidMeaning("an application misused the GPU", "harmless")),
    13: XidMeaning("an application raised an exception of the graphics engine", "harmless"),
    31: XidMeaning("an application accessed memory that it does not have", "harmless"),
    32: XidMeaning(
        "commands arrived damaged over PCIe",
        "remark",
        "look for PCIe errors of the GPU in the kernel's log; reseat it if there are any",
    ),
    **dict.fromkeys(
        (37, 38, 44), XidMeaning("the GPU's firmware reported an error of no effect", "harmless")
    ),
    **dict.fromkeys(_COPY, XidMeaning("a copy engine failed", "remark", _ENGINE)),
    **dict.fromkeys(_VIDEO, XidMeaning("a video engine failed", "remark", _ENGINE)),
    43: XidMeaning("an application hit a fault of its own and was stopped", "harmless"),
    45: XidMeaning("an application ended and its work on the GPU was removed", "harmless"),
    46: XidMeaning("the GPU stopped processing", "fault", _RESET),
    48: XidMeaning("an uncorrectable memory error (double bit ECC)", "fault", _SUPPORT),
    54: XidMeaning("the GPU's power cable is not connected", "fault", "connect the power cable of the GPU"),
    **dict.fromkeys((61, 62), XidMeaning("the GPU's power controller halted", "fault", _SUPPORT)),
    63: XidMeaning("a memory row was remapped, or a page retired, after errors", "remark", _LATER),
    64: XidMeaning("a damaged memory row could not be remapped, or a page not retired", "fault", _REPLACE),
    **dict.fromkeys(
        (66, 67), XidMeaning("the driver made a forbidden access", "remark", "update the driver")
    ),
    74: XidMeaning("an NVLink failed", "fault", _LINK),
    78: XidMeaning("a virtual GPU did not start", "remark", "update the vGPU software of host and guest"),
    79: XidMeaning("the GPU has fallen off the bus", "fault", _BUS),
    92: XidMeaning("many single-bit memory errors were corrected", "remark", _LATER),
    94: XidMeaning("a memory error was contained in one application", "remark", _LATER),
    95: XidMeaning("an uncontained memory error", "fault", _SUPPORT),
    **dict.fromkeys((106, 107, 162), XidMeaning("a message of no effect", "harmless")),
    109: XidMeaning("the GPU did not switch between applications in time", "fault", _RESET),
    110: XidMeaning("a security fault, which is rare unless a part is broken", "fault", _SUPPORT),
    119: XidMeaning("the GPU's system processor (GSP) did not answer in time", "fault", _RESET),
    120: XidMeaning("the GPU's system processor (GSP) failed", "fault", _RESET),
    121: XidMeaning("errors between CPU and GPU (C2C) were corrected", "remark", _LATER),
    136: XidMeaning("an NVLink could not be trained", "fault", _LINK),
    137: XidMeaning("an application accessed another GPU's memory that it does not have", "harmless"),
    140: XidMeaning("an uncorrectable memory error that could not be repaired", "fault", _SUPPORT),
    141: XidMeaning("a fast path of CUDA was not taken", "harmless"),
    143: XidMeaning("the GPU could not be initialized", "fault", _SUPPORT),
    **dict.fromkeys(range(144, 151), XidMeaning("an NVLink failed", "fault", _LINK)),
    154: XidMeaning("the driver states what the GPU needs after another XID", "remark", _RESET),
    155: XidMeaning("an NVLink was taken down by software", "remark", _LINK),
    156: XidMeaning("a part of the GPU was retired after errors", "remark", _LATER),
    157: XidMeaning("a damaged part of the GPU could not be retired", "fault", _REPLACE),
    158: XidMeaning("the GPU stopped answering", "fault", _SUPPORT),
    **dict.fromkeys(
        (160, 161), XidMeaning("a memory channel was retired, or could not be", "remark", _LATER)
    ),
    167: XidMeaning("the GPU did not answer over PCIe in time", "fault", _BUS),
    168: XidMeaning(
        "memory errors in the driver's protected region", "remark", "turn ECC on (nvidia-smi -e 1)"
    ),
    **dict.fromkeys((171, 172), XidMeaning("an uncorrectable memory error", "fault", _SUPPORT)),
}
_UNKNOWN = XidMeaning(
    "an XID without an entry here", "remark", "look it up: docs.nvidia.com/deploy/xid-errors"
)
# XIDs of NVLink errors whose text alone says whether they are fatal.
_BY_TEXT = range(144, 151)


def meaning(event: KernelEvent) -> XidMeaning:
    """Return the meaning of an XID; for NVLink errors and XID 154, it depends on the text."""
    found = _XIDS.get(event.code, _UNKNOWN)
    if event.code in _BY_TEXT and "nonfatal" in event.text.lower().replace("-", ""):
        return XidMeaning("an NVLink had an error of no effect", "harmless")
    if event.code == 154 and "(none)" in event.text.lower().rpartition(" to ")[2]:
        return XidMeaning("the GPU needs nothing any more", "harmless")
    return found
