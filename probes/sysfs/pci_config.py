"""The configuration space of PCI devices: the registers that decide how a device's transfers are routed.

Without root, Linux shows only the first 64 bytes of it, which hold none of these registers. Registers and
offsets are those of the PCI Express Base Specification (chapter 7).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

__all__ = ["is_whole", "read_config", "redirects_peers", "relaxed_ordering", "without_identity"]

# Sizes in bytes: the common header, which Linux shows to every user, the space before the extended
# capabilities, and the whole configuration space.
_HEADER_BYTES, _PLAIN_BYTES, _MOST_BYTES = 64, 256, 4096
# The list of capabilities: the offset of the status register, the flag in it that the list exists, and the
# offset of the pointer to the first entry.
_STATUS, _HAS_LIST, _FIRST = 0x06, 0x10, 0x34
# The capability "PCI Express": its id, its size in bytes (in version 2), the offset of Device Control in it,
# and the bit of Device Control that enables relaxed ordering.
_EXPRESS, _EXPRESS_BYTES, _DEVICE_CONTROL, _RELAXED = 0x10, 60, 8, 0x10
# The extended capability "Access Control Services": its id, its size in bytes, the offset of its control
# register, and three bits of that register (request redirect, completion redirect, egress control).
_ACS, _ACS_BYTES, _ACS_CONTROL, _REDIRECT = 0x000D, 8, 6, 0x04 | 0x08 | 0x20


def read_config(device: Path) -> bytes:
    """Return as much of a device's configuration space as this user may read."""
    try:
        with (device / "config").open("rb") as stream:
            return stream.read(_MOST_BYTES)
    except OSError:
        return b""


def is_whole(config: bytes) -> bool:
    """Return whether the capabilities could be read; Linux shows them only to root."""
    return len(config) > _HEADER_BYTES


def redirects_peers(config: bytes) -> bool:
    """Return whether Access Control Services send peer-to-peer transfers up to the root complex."""
    return any(
        _word(config, place + _ACS_CONTROL) & _REDIRECT for name, place in _extended(config) if name == _ACS
    )


def relaxed_ordering(config: bytes) -> bool | None:
    """Return whether the device may use relaxed ordering; None if that cannot be read."""
    for name, place in _plain(config):
        if name == _EXPRESS:
            return bool(_word(config, place + _DEVICE_CONTROL) & _RELAXED)
    return None


def without_identity(config: bytes) -> bytes:
    """Return the configuration with zeros for all bytes that this module does not read.

    So serial numbers, addresses of memory and registers of the vendor become zero.
    """
    kept = bytearray(len(config))

    def keep(start: int, count: int) -> None:
        kept[start : start + count] = config[start : start + count]

    keep(_STATUS, 2)
    keep(_FIRST, 1)
    for name, place in _plain(config):
        keep(place, _EXPRESS_BYTES if name == _EXPRESS else 2)
    for name, place in _extended(config):
        keep(place, _ACS_BYTES if name == _ACS else 4)
    # Zeros at the end are dropped, because missing bytes read as zeros. If there was more than the header,
    # two bytes beyond it stay, so that `is_whole` still holds.
    return bytes(kept).rstrip(b"\0").ljust(min(len(config), _HEADER_BYTES + 2), b"\0")


def _plain(config: bytes) -> Iterator[tuple[int, int]]:
    """Yield (id, offset) of each capability; a list with a cycle ends where it repeats."""
    if not is_whole(config) or not _word(config, _STATUS) & _HAS_LIST:
        return
    seen: set[int] = set()
    place = config[_FIRST] & 0xFC
    while _HEADER_BYTES <= place < len(config) - 1 and place not in seen:
        seen.add(place)
        yield config[place], place
        place = config[place + 1] & 0xFC


def _extended(config: bytes) -> Iterator[tuple[int, int]]:
    """Yield (id, offset) of each extended capability; a list with a cycle ends where it repeats."""
    seen: set[int] = set()
    place = _PLAIN_BYTES
    while _PLAIN_BYTES <= place < len(config) and place not in seen:
        seen.add(place)
        head = _word(config, place) | _word(config, place + 2) << 16
        # An empty list begins with zeros; a device that is gone reads as ones.
        if head in (0, 0xFFFFFFFF):
            return
        yield head & 0xFFFF, place
        place = head >> 20 & 0xFFC


def _word(config: bytes, place: int) -> int:
    return int.from_bytes(config[place : place + 2], "little")
