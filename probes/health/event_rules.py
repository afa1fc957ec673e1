"""Rules for faults in the kernel's log: which of them mean that a part of the host is broken."""

from __future__ import annotations

from collections.abc import Iterator

from probes.base import plural
from probes.health.model import HostHealth, HostProblem, KernelEvent, Severity
from probes.health.xids import meaning

__all__ = ["event_problems"]

# Severity, text and remedy of a problem.
_Found = tuple[Severity, str, str]
# SXID 22013, "Minion Link DLREQ interrupt", comes at each start of a healthy switch (Fabric Manager's guide,
# non-fatal SXIDs).
_HARMLESS_SXIDS = frozenset({22013})
# Most corrected errors that are normal. port_rules has the same bound for a port's errors of the wire.
_MOST_CORRECTED = 10


def event_problems(health: HostHealth) -> Iterator[HostProblem]:
    """Yield a problem for each event that its rule calls a fault or a remark."""
    for event in health.events:
        judge = _JUDGES.get(event.kind)
        found = judge(event) if judge else None
        if found is not None:
            yield HostProblem(health.host, event.device or "CPU and memory", event.kind, *found)


def _xid(event: KernelEvent) -> _Found | None:
    found = meaning(event)
    if found.severity == "harmless":
        return None
    said = f" ({event.text})" if event.text else ""
    text = f"XID {event.code} {_times(event)}: {found.text}{said}; a healthy GPU has none"
    return found.severity, text, found.remedy.format(device=event.device)


def _sxid(event: KernelEvent) -> _Found | None:
    if event.code in _HARMLESS_SXIDS:
        return None
    text = f"SXID {event.code} {_times(event)}: {event.text}; a healthy NVSwitch has none"
    if event.text.lower().startswith("fatal"):
        reset = (
            "reset all GPUs of the host (nvidia-smi -r); if it comes back, have the NVSwitch board replaced"
        )
        return "fault", text, reset
    return "remark", text, f"look up SXID {event.code} in the guide of NVIDIA's Fabric Manager"


def _aer(event: KernelEvent) -> _Found | None:
    corrected = event.text.startswith("corrected")
    if corrected and event.count <= _MOST_CORRECTED:
        return None
    normal = f"up to {_MOST_CORRECTED} corrected ones are normal" if corrected else "0 are normal"
    return (
        "remark" if corrected else "fault",
        f"{plural(event.count, 'PCIe error')} in the kernel's log ({event.text}); {normal}",
        f"reseat the device at {event.device}; if it comes back, replace its riser or the device",
    )


def _machine_check(event: KernelEvent) -> _Found | None:
    corrected = event.text.startswith("corrected")
    if corrected and event.count <= _MOST_CORRECTED:
        return None
    normal = f"up to {_MOST_CORRECTED} corrected ones are normal" if corrected else "0 are normal"
    text = f"{plural(event.count, 'machine check')} in the kernel's log ({event.text}); {normal}"
    memory = "find the memory module (ras-mc-ctl, or the BMC's log) and have it replaced"
    other = "read the BMC's log (ipmitool sel list) for the part, and have it replaced if it comes back"
    return "remark" if corrected else "fault", text, memory if event.device.startswith("MC") else other


_JUDGES = {"xid": _xid, "sxid": _sxid, "aer": _aer, "mce": _machine_check}


def _times(event: KernelEvent) -> str:
    return "once" if event.count == 1 else f"{event.count} times"
