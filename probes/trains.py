"""Beta: how far apart the messages of a train arrive, as the receiver sees it.

Only the receiver's clock counts, so no acknowledgement queues behind data on its way back. A train
of large messages has one outstanding at a time and gives a sample for each, which can only be too
long. A train of small ones is buffered on its way and arrives in clumps, so it gives one sample, its
steady pace, which a late look at the clock may also shorten. Each message starts further on in a
large buffer, as the chunks of a collective do: measured on one buffer that stays in the cache, a
copy looks twice as fast as it will be.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from probes.columns import Bytes, Floats, floats
from probes.fit import theil_sen

__all__ = ["Train", "Trains", "plan", "receive", "send", "spacings", "warm_buffer"]

_TAG = 102
KIB, MIB = 1 << 10, 1 << 20
_BUFFER_BYTES = 32 * MIB
_PROBE = (32 * KIB, 4, 3)  # bytes, messages, times
# Below the size at which MPI libraries stop buffering (64 KiB over TCP), and above it: never both in
# one fit, as the handshake of large messages would be taken for their length.
_SMALL = tuple(8 * KIB << step for step in range(3))
_LARGE = tuple(128 * KIB << step for step in range(6))
# So long that neither the burst which a shaped link lets through at once nor the clumps in which the
# kernel hands data over (64 KiB) weigh much.
_TRAIN_BYTES, _LONGEST_TRAIN_S = MIB, 0.1
_SLOW_S_PER_BYTE = 5e-3 / _LARGE[0]
_LONGEST_MESSAGE_S = 20e-3


@dataclass(frozen=True)
class Train:
    """``messages`` of ``size_bytes``, sent ``times`` over."""

    size_bytes: int
    messages: int
    times: int


@dataclass
class Trains:
    """The seconds a message took, by its size; what a link did in all its trains."""

    seconds: dict[int, list[float]] = field(default_factory=dict)

    def add(self, other: Trains) -> None:
        for size, values in other.seconds.items():
            self.seconds.setdefault(size, []).extend(values)

    @property
    def buffered(self) -> bool:
        """Only small messages were sent: the link is slow."""
        return not any(size in _LARGE for size in self.seconds)

    def comparable(self) -> dict[int, list[float]]:
        """The samples that one line can describe: those of large messages, where there are any."""
        large = {size: values for size, values in self.seconds.items() if size in _LARGE}
        return large or self.seconds


def plan(seconds_per_byte: float, budget_s: float) -> list[Train]:
    """Which trains tell most about a link of about this speed within about ``budget_s`` seconds."""
    if seconds_per_byte > _SLOW_S_PER_BYTE:
        length = min(_TRAIN_BYTES, _LONGEST_TRAIN_S / seconds_per_byte)
        return [Train(size, max(16, int(length / size)), 1) for size in _SMALL]
    sizes = [size for size in _LARGE if size <= max(_LARGE[2], _LONGEST_MESSAGE_S / seconds_per_byte)]
    each_s = budget_s / len(sizes)
    counts = [int(max(5, min(32, each_s / (size * seconds_per_byte)))) for size in sizes]
    return [Train(size, count, 1) for size, count in zip(sizes, counts, strict=True)]


def send(comm: Any, peer: int) -> None:
    """Send what the receiver asks for."""
    _send(comm, peer, Train(*_PROBE))
    for train in comm.recv(source=peer, tag=_TAG):
        _send(comm, peer, train)


def receive(comm: Any, peer: int, budget_s: float) -> Trains:
    """Time trains from ``peer``, which must be in ``send``, for about ``budget_s`` seconds."""
    probes = _receive(comm, peer, Train(*_PROBE))
    # The middle one: the first may have been waiting for us, and any of them disturbed.
    trains = plan(float(np.median([np.diff(arrived).mean() for arrived in probes])) / _PROBE[0], budget_s)
    comm.send(trains, dest=peer, tag=_TAG)
    found = Trains()
    for train in trains:
        for arrived in _receive(comm, peer, train):
            seconds = spacings(arrived, buffered=train.size_bytes in _SMALL)
            found.add(Trains({train.size_bytes: seconds}))
    return found


def spacings(arrived_s: Floats, *, buffered: bool) -> list[float]:
    """Seconds a message from the arrival times of a train, without its first quarter (the burst)."""
    steady = arrived_s[len(arrived_s) // 4 :]
    if buffered:
        return [theil_sen(floats(range(len(steady))), steady).slope]
    return [float(gap) for gap in np.diff(steady)]


def _send(comm: Any, peer: int, train: Train) -> None:
    buffer = warm_buffer()
    for _ in range(train.times):
        for at in range(train.messages):
            comm.Send(_slice(buffer, at, train.size_bytes), peer, _TAG)


def _receive(comm: Any, peer: int, train: Train) -> list[Floats]:
    """When each message arrived, a row for each time the train came."""
    buffer = warm_buffer()
    rows = []
    for _ in range(train.times):
        arrived = np.empty(train.messages)
        for at in range(train.messages):
            comm.Recv(_slice(buffer, at, train.size_bytes), peer, _TAG)
            arrived[at] = time.perf_counter()
        rows.append(arrived)
    return rows


def _slice(buffer: Bytes, at: int, size_bytes: int) -> Bytes:
    start = at * size_bytes % len(buffer)
    return buffer[start : start + size_bytes]


_kept: list[Bytes] = []


def warm_buffer() -> Bytes:
    """The one buffer of this process, its pages touched once: do it before anything is timed."""
    if not _kept:
        _kept.append(np.ones(_BUFFER_BYTES, dtype=np.uint8))
    return _kept[0]
