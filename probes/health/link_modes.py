"""The highest speed that a network interface supports, as its driver states it (ethtool's link modes)."""

from __future__ import annotations

import array
import fcntl
import socket
import struct

__all__ = ["most_speed_mbit", "speed_of_modes"]

# ioctl SIOCETHTOOL with the command ETHTOOL_GLINKSETTINGS (linux/sockios.h, linux/ethtool.h).
_IOCTL, _COMMAND = 0x8946, 0x4C
# The size of struct ethtool_link_settings before its masks, and the offset of the byte that holds the number
# of 32-bit words of a mask.
_HEAD_BYTES, _WORDS_AT = 48, 15
# Three masks of at most 127 words follow, of 4 bytes each. struct ifreq has a name of 16 bytes and a union of
# 24.
_BUFFER_BYTES = _HEAD_BYTES + 3 * 127 * 4
_NAME_BYTES, _REQUEST_BYTES = 16, 40
# Bits of enum ethtool_link_mode_bit_indices in linux/ethtool.h, by their speed in Mbit/s; the other bits are
# slower or no speeds (autonegotiation, pause, kinds of connectors, FEC).
_BITS: dict[int, tuple[int, ...]] = {
    1_000: (4, 5, 17, 41, 68),
    2_500: (15, 47),
    5_000: (48,),
    10_000: (12, 18, 19, 20, *range(42, 47)),
    20_000: (21, 22),
    25_000: (31, 32, 33),
    40_000: (23, 24, 25, 26),
    50_000: (34, 35, 40, *range(52, 57)),
    56_000: (27, 28, 29, 30),
    100_000: (36, 37, 38, 39, *range(57, 62), *range(75, 80)),
    200_000: (*range(62, 67), *range(80, 85), *range(103, 109)),
    400_000: (*range(69, 74), *range(85, 90), *range(109, 115)),
    800_000: (*range(93, 99), *range(115, 121)),
}


def speed_of_modes(modes: int) -> int | None:
    """Return the highest speed in Mbit/s of a mask of link modes; None if none is known."""
    found = [speed for speed, bits in _BITS.items() if any(modes >> bit & 1 for bit in bits)]
    return max(found, default=None)


def most_speed_mbit(interface: str) -> int | None:
    """Return the highest speed that this interface of this machine supports; None if its driver is silent."""
    if len(interface.encode()) >= _NAME_BYTES:
        return None
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
            words = abs(_asked(end, interface, 0)[_WORDS_AT] - 256)
            answer = _asked(end, interface, words)
    except OSError:
        return None
    return speed_of_modes(int.from_bytes(answer[_HEAD_BYTES : _HEAD_BYTES + 4 * words], "little"))


def _asked(end: socket.socket, interface: str, words: int) -> bytes:
    """Return the driver's answer; for 0 ``words``, it holds the number needed, negated."""
    settings = array.array("B", bytes(_BUFFER_BYTES))
    struct.pack_into("=I", settings, 0, _COMMAND)
    settings[_WORDS_AT] = words
    request = struct.pack("16sP", interface.encode(), settings.buffer_info()[0]).ljust(_REQUEST_BYTES, b"\0")
    fcntl.ioctl(end, _IOCTL, request)
    return settings.tobytes()
