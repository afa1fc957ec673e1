"""PCI bus ids and CPU lists in Linux's spelling."""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = [
    "cpu_list",
    "cpu_mask",
    "cpu_numbers",
    "first_number",
    "is_cpu_list",
    "is_hidden",
    "mask_numbers",
    "nccl_guid",
    "normal_bus_id",
    "plain_guid",
]

_BUS_ID = re.compile(r"(?:([0-9a-f]{1,8}):)?([0-9a-f]{1,2}):([0-9a-f]{1,2})\.([0-7f])")
_RUN = re.compile(r"([0-9]{1,7})(?:-([0-9]{1,7}))?")
# Highest accepted CPU number, and most accepted runs in a list. Linux numbers far fewer CPUs (NR_CPUS is at
# most 8192 on x86).
_MOST_CPUS = 1 << 20
# Most characters of a mask. A word of 32 bits takes at most 11 of them, so over 40,000 numbers fit.
_LONGEST_MASK = 16384
_GUID = re.compile(r"0x[0-9a-f]{1,16}|[0-9a-f]{16}")


def normal_bus_id(text: str) -> str:
    """Return a PCI bus id as sysfs writes it, ``0000:1b:00.0``, from any spelling; raises ValueError.

    NVML writes the domain as eight upper-case digits; people often leave it out.
    """
    match = _BUS_ID.fullmatch(text.strip().lower())
    if match is None:
        raise ValueError(f"expected a PCI bus id such as 0000:1b:00.0, found {text!r}")
    domain, bus, device, function = match.groups()
    return f"{int(domain or '0', 16):04x}:{int(bus, 16):02x}:{int(device, 16):02x}.{function}"


def is_hidden(bus_id: str) -> bool:
    """Return whether this is the all-ones bus id that a virtual machine shows for a device it hides."""
    return bus_id.startswith("ffff") and bus_id.split(":", 1)[1][:5] == "ff:ff"


def cpu_list(numbers: Iterable[int]) -> str:
    """Return the kernel's list form of CPU numbers: "0-2,5" for 0, 1, 2, 5."""
    runs: list[tuple[int, int]] = []
    for value in sorted(set(numbers)):
        if runs and value == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], value)
        else:
            runs.append((value, value))
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def is_cpu_list(text: str) -> bool:
    """Return whether this is the kernel's list form of CPUs, numbered up to a million; "" is a list, too."""
    runs = [_RUN.fullmatch(part) for part in text.split(",")] if text else []
    return all(
        run is not None and int(run[1]) <= int(run[2] or run[1]) <= _MOST_CPUS and len(runs) <= _MOST_CPUS
        for run in runs
    )


def cpu_numbers(listed: str) -> list[int]:
    """Return the CPU numbers of the kernel's list form: 0, 1, 2, 5 for "0-2,5"."""
    runs = [part.partition("-") for part in listed.split(",") if part]
    return [cpu for first, _, last in runs for cpu in range(int(first), int(last or first) + 1)]


def first_number(listed: str) -> int | None:
    """Return the lowest number of a list in the kernel's form; None for an empty list or any other text."""
    if not listed or not is_cpu_list(listed):
        return None
    return min(int(part.partition("-")[0]) for part in listed.split(","))


def cpu_mask(listed: str) -> str:
    """Return the kernel's mask form of a CPU list: 32-bit words separated by commas, "" for an empty list."""
    mask = 0
    for first, _, last in (part.partition("-") for part in listed.split(",") if part):
        mask |= (1 << int(last or first) + 1) - (1 << int(first))
    words = [f"{mask >> shift & 0xFFFFFFFF:08x}" for shift in range(0, mask.bit_length(), 32)]
    return ",".join(reversed(words))


def mask_numbers(mask: str) -> list[int]:
    """Return the numbers in a mask of 32-bit words: 0, 64 and 65 for "0x3,,0x1"; [] if it is malformed.

    An empty word is 0. Masks that are longer than any machine's are refused, too.
    """
    try:
        words = [int(word or "0", 16) for word in mask.split(",")] if len(mask) <= _LONGEST_MASK else []
    except ValueError:
        return []
    value = 0
    for word in words:
        value = value << 32 | word
    return [number for number, bit in enumerate(reversed(f"{value:b}")) if bit == "1"]


def plain_guid(text: str) -> str:
    """Return the 16 hex digits of a port's GUID from sysfs ("506b:4b03:…") or NCCL's files; "" if none.

    The GUID is in network order. NCCL prints it as an integer in the byte order of the CPU, so its bytes are
    reversed. For sockets NCCL writes a small number instead. This and any other text give "".
    """
    digits = text.strip().lower().replace(":", "")
    if not _GUID.fullmatch(digits):
        return ""
    if digits.startswith("0x"):
        digits = bytes.fromhex(digits[2:].zfill(16)[-16:])[::-1].hex() if int(digits, 16) >> 32 else ""
    return digits if digits.strip("0") else ""


def nccl_guid(text: str) -> str:
    """Return a GUID as NCCL's files write it; a GUID already in that form stays as it is."""
    plain = plain_guid(text)
    return text if text.startswith("0x") or not plain else f"0x{bytes.fromhex(plain)[::-1].hex().lstrip('0')}"
