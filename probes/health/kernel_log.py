"""Faults in the kernel's log: XIDs of NVIDIA's GPUs and switches, PCIe errors (AER), machine checks.

Lines may have any beginning (time, host, "kernel:"), as dmesg, journalctl and /dev/kmsg write them.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress

from probes.base import normal_bus_id, shortened, visible
from probes.health.model import KernelEvent

__all__ = ["kernel_events", "read_kernel_log"]

# NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python, GPU has fallen off the bus.
# NVRM: Xid (PCI:0000:3b:00 GPU-I:05): 94, …    with MIG;    NVRM: Xid (0000:03:00): 14, …    older drivers
_XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]{5,16})(?: [^)]{1,40})?\): ([0-9]{1,5})(?:, *|$)(.*)")
# nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 28006, Non-fatal, Link 46 …
_SXID = re.compile(r"SXid \((?:PCI:)?([0-9a-fA-F:.]{5,16})\): ([0-9]{1,5})(?:, *|$)(.*)")
# Fields of an XID that name a user's process and differ from one message to the next.
_PROCESS = re.compile(r"\b(?:pid|name)=(?:'[^']*'|[^,]*)(?:, *|$)")
# A switch prints each event in three lines. Two of the lines hold only registers, and begin like this.
_REGISTERS = re.compile(r"Data \{|Severity [0-9]")
_BUS = r"([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])"
# mlx5_core 0000:41:00.0: AER: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)
_BUS_ERROR = re.compile(_BUS + r": (?:AER: )?PCIe Bus Error: severity=([^,]{1,40}), type=([^,]{1,40})")
# pcieport 0000:40:01.1: AER: Multiple Corrected error received: 0000:41:00.0
_RECEIVED = re.compile(
    r"AER: (?:Multiple )?(Correct\w+|Uncorrect\w+(?: \([\w-]+\))?) error (?:message )?received(?: from)?:? "
    + _BUS
)
# mce: [Hardware Error]: CPU 3: Machine Check Exception: 5 Bank 4: …
# EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0 …
# {1}[Hardware Error]: event severity: corrected    if the machine's firmware handles errors itself
_MACHINE_CHECK = re.compile(
    r"\[Hardware Error\]: ((?:CPU [0-9]+: )?Machine check.{0,200})"
    r"|EDAC (MC[0-9]+: [0-9]+ [CU]E .{0,200})"
    r"|\[Hardware Error\]: +(event severity: \w+)",
    re.IGNORECASE,
)
_CHECKED = re.compile(r"CPU [0-9]+|MC[0-9]+")
# The most characters of a log that are searched. The kernel's log is 1 MiB at most by default
# (CONFIG_LOG_BUF_SHIFT); a journal may be longer. ``_MOST_TEXT`` is the most characters of a fault's text
# that are kept.
_MOST_CHARACTERS = 64 << 20
_MOST_TEXT = 160
# The longest message of /dev/kmsg in bytes (CONSOLE_EXT_LOG_MAX of the kernel), and the most messages that
# are read, so that reading ends even if the kernel keeps writing.
_MESSAGE_BYTES = 8192
_MOST_MESSAGES = 1_000_000


def kernel_events(text: str) -> tuple[KernelEvent, ...]:
    """Return the faults that the log names; equal faults become one, with their count.

    Equal faults have the same kind, device, code and severity (for an XID, the same outcome in its text). The
    text is that of the first. Faults are in order of first appearance; PCIe errors that only a port's line
    names come last.
    """
    found: Counter[tuple[str, str, int, str]] = Counter()
    texts: dict[tuple[str, str, int, str], str] = {}
    detailed: set[tuple[str, str]] = set()
    received: Counter[tuple[str, str]] = Counter()
    for line in text[:_MOST_CHARACTERS].splitlines():
        if bus := _RECEIVED.search(line):
            received[normal_bus_id(bus[2]), _severity(bus[1])] += 1
            continue
        for kind, device, code, message, group in _events(line):
            key = (kind, device, code, group)
            found[key] += 1
            texts.setdefault(key, message)
            if kind == "aer":
                detailed.add((device, group))
    events = [KernelEvent(*key[:3], texts[key], count) for key, count in found.items()]
    # A port's line ("error received") is dropped if the log also has the device's own line of this severity,
    # which says more.
    events += [
        KernelEvent("aer", device, 0, severity, count)
        for (device, severity), count in received.items()
        if (device, severity) not in detailed
    ]
    return tuple(events)


def read_kernel_log() -> str:
    """Return the messages that the kernel still holds; raises OSError if this user may not read them."""
    found: list[str] = []
    handle = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        with suppress(BlockingIOError):  # the end
            for _ in range(_MOST_MESSAGES):
                try:
                    message = os.read(handle, _MESSAGE_BYTES).decode("utf-8", "replace")
                except BrokenPipeError:  # the kernel has overwritten the next message
                    continue
                # A message is "priority,number,time,flags;text". Lines about its device may follow; they
                # begin with a space.
                found.append(message.partition(";")[2].partition("\n")[0])
    finally:
        os.close(handle)
    return "\n".join(found)


def _events(line: str) -> Iterator[tuple[str, str, int, str, str]]:
    """Yield the fault in a line: its kind, device, code, text, and severity or outcome."""
    if xid := _XID.search(line):
        message = _shown(_PROCESS.sub("", xid[3]))
        yield "xid", _device(xid[1]), int(xid[2]), message, _outcome(message)
    elif sxid := _SXID.search(line):
        if not _REGISTERS.match(sxid[3]):
            yield "sxid", _device(sxid[1]), int(sxid[2]), _shown(sxid[3]), _outcome(sxid[3])
    elif error := _BUS_ERROR.search(line):
        severity = _severity(error[2])
        yield "aer", normal_bus_id(error[1]), 0, _shown(f"{severity}, {error[3]}"), severity
    elif check := _MACHINE_CHECK.search(line):
        message = _shown(next(part for part in check.groups() if part is not None))
        severity, part = _check_severity(message), _CHECKED.search(message)
        yield "mce", part[0] if part else "", 0, f"{severity}: {message}", severity


def _outcome(text: str) -> str:
    """Return the word of an XID's text on which its meaning may depend; "" for most."""
    word = text.lower().replace("-", "")
    if "recovery action" in word:
        return word.rpartition(" to ")[2]
    return next((mark for mark in ("nonfatal", "fatal") if mark in word), "")


def _shown(text: str) -> str:
    return visible(shortened(text.strip(), _MOST_TEXT))


def _severity(word: str) -> str:
    """Return "corrected", "non-fatal" or "fatal", however a release of the kernel spells it."""
    word = word.lower()
    if word.startswith("correct"):
        return "corrected"
    return "non-fatal" if "non-fatal" in word or "nonfatal" in word else "fatal"


def _check_severity(text: str) -> str:
    word = text.lower()
    if re.search(
        r"mc[0-9]+: [0-9]+ ue |machine check exception|uncorrected|severity: (fatal|recoverable)", word
    ):
        return "uncorrected"
    return "corrected"


def _device(name: str) -> str:
    """Return the normal bus id, with function 0 if none is named; other names are kept."""
    name = name if "." in name else f"{name}.0"
    with suppress(ValueError):
        return normal_bus_id(name)
    return name
