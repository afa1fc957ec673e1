"""Delays of a lab on kernels without netem: a process that holds each frame for a time.

    python -m exec.lab.forwarder NEAR FAR SECONDS_FROM_NEAR SECONDS_FROM_FAR [NEAR FAR …]

The process joins pairs of interfaces of its network namespace: a frame that arrives at one leaves by the
other after the delay. Once all interfaces are open, it works in the background until it is killed. Frames
cross with the headers of segmentation offload (packet(7), PACKET_VNET_HDR), so two segments that the kernel
passes as one stay one.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

__all__ = ["MOST_JOINTS", "Joint"]

# Pairs of interfaces of one process: select(2) takes file descriptors up to 1023.
MOST_JOINTS = 400
# Constants of linux/if_ether.h, linux/if_packet.h and asm-generic/socket.h that Python does not name.
_ETH_P_ALL = 3
_SOL_PACKET, _VNET_HDR, _IGNORE_OUTGOING = 263, 15, 23
_SNDBUFFORCE, _RCVBUFFORCE = 32, 33
# Bytes that a socket may hold in each direction: 0.3 s at 200 Mbit/s, the most that a lab should carry.
_BUFFER_BYTES = 8 << 20
# A frame has at most a virtio header and 64 KiB, the limit of segmentation offload.
_FRAME_BYTES = 70_000
# Frames read from one interface before the others get a turn.
_FRAMES_A_TURN = 64
# The lowest priority of real time: enough to run before all usual programs.
_PRIORITY = 1


@dataclass(frozen=True)
class Joint:
    """A pair of interfaces, and the delay of the frames that arrive at each."""

    near: str
    far: str
    from_near_s: float
    from_far_s: float

    def arguments(self) -> list[str]:
        """Return the joint as arguments of this module."""
        return [self.near, self.far, f"{self.from_near_s:.9f}", f"{self.from_far_s:.9f}"]


@dataclass(frozen=True)
class _Way:
    """One direction of a joint: the frames on their way, each with the time when it leaves."""

    arrive: socket.socket
    leave: socket.socket
    delay_s: float
    frames: deque[tuple[float, bytes]] = field(default_factory=deque)

    def receive(self) -> None:
        with contextlib.suppress(OSError):
            for _ in range(_FRAMES_A_TURN):
                frame = self.arrive.recv(_FRAME_BYTES)
                self.frames.append((time.monotonic() + self.delay_s, frame))

    def send_due(self, now_s: float) -> None:
        while self.frames and self.frames[0][0] <= now_s:
            # A full queue drops frames, as a switch does.
            with contextlib.suppress(OSError):
                self.leave.send(self.frames.popleft()[1])


def main(arguments: Sequence[str]) -> None:
    """Open all interfaces, then forward frames in a background process."""
    ways = list(_ways(arguments))
    if os.fork():
        return
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nothing, stream)
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(_PRIORITY))
    _forward(ways)


def _ways(arguments: Sequence[str]) -> Iterator[_Way]:
    for at in range(0, len(arguments), 4):
        near, far, from_near_s, from_far_s = arguments[at : at + 4]
        first, second = _opened(near), _opened(far)
        yield _Way(first, second, float(from_near_s))
        yield _Way(second, first, float(from_far_s))


def _opened(device: str) -> socket.socket:
    found = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    for option in (_VNET_HDR, _IGNORE_OUTGOING):
        found.setsockopt(_SOL_PACKET, option, 1)
    for option in (_SNDBUFFORCE, _RCVBUFFORCE):
        found.setsockopt(socket.SOL_SOCKET, option, _BUFFER_BYTES)
    # The socket receives nothing before bind names a protocol, so it has all options by then.
    found.bind((device, _ETH_P_ALL))
    found.setblocking(False)
    return found


def _forward(ways: Sequence[_Way]) -> None:
    arriving = {way.arrive: way for way in ways}
    while True:
        for way in ways:
            way.send_due(time.monotonic())
        next_s = min((way.frames[0][0] for way in ways if way.frames), default=None)
        wait_s = None if next_s is None else max(0.0, next_s - time.monotonic())
        for ready in select.select(list(arriving), (), (), wait_s)[0]:
            arriving[ready].receive()


if __name__ == "__main__":
    main(sys.argv[1:])
