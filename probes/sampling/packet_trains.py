"""Beta by packet trains: the spacing of messages as they arrive at the receiver.

Only the receiver's clock counts, so acknowledgements that queue behind data do not matter. In a train of
large messages only one message is outstanding at a time. Each message gives a sample, which can only be too
long. A train of small messages is buffered on the way and arrives in clumps. It gives one sample: the seconds
per message between the ends of clumps. This sample may also be too short, if the clock is read late.

The receiver requests each train, so the mean time per message since the request can only be too long. If the
gaps are shorter than that mean by more than a few per cent, the train was delayed and came in a burst; its
gaps are rejected. Each message starts where the last one ended in a large buffer, as the chunks of a
collective do. A copy from a small buffer that stays in the cache would look twice as fast.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from probes.base import Bytes, Floats, floats
from probes.statistics import theil_sen

__all__ = [
    "HURRY",
    "Train",
    "Trains",
    "is_buffered",
    "is_enough",
    "is_slow",
    "judged",
    "plan",
    "receive",
    "receive_train",
    "send",
    "send_train",
    "spacings",
    "warm_buffer",
]

# Each kind of probe has its own tag, so that probes never receive each other's messages.
_TAG = 102
KIB, MIB = 1 << 10, 1 << 20
# Larger than the caches of a core, so that messages come from memory.
_BUFFER_BYTES = 32 * MIB
# The first look at a link's speed, as (bytes, messages, times): 32 KiB, which take 0.26 s at 1 Mbit/s. A link
# that looks slow gets _MORE_LOOKS, so that the median ignores a disturbed look. A link that looks fast gets a
# closer look, _PROBE, over several clumps, so that no slow link is taken for a fast one.
_LOOK, _MORE_LOOKS = (4 * KIB, 8, 1), 2
_PROBE = (32 * KIB, 4, 3)
# Largest message that MPI libraries buffer (64 KiB over TCP). Sizes below and above it are never in one fit,
# because the handshake of large messages would count as transfer time.
_EAGER = 64 * KIB
# Sizes of the messages of a slow link, and of a fast one. Two sizes show whether a message has a fixed cost.
# `plan` takes as many of the large sizes, up to 4 MiB, as the time allows.
_SMALL = (4 * KIB, 8 * KIB)
_LARGE = tuple(128 * KIB << step for step in range(6))
# A link is slow if even the smallest of the large messages takes over 5 ms. The least trains of large
# messages, five each of three sizes, would then take over 0.17 s.
_SLOW_S_PER_BYTE = 5e-3 / _LARGE[0]
# A train of small messages lasts for _TRAIN_S, and for at least _ROUND_TRIPS. An idle TCP connection starts
# with 10 segments (RFC 6928) and doubles them each round trip. It sends 0.9 MB in six round trips, which are
# the first quarter of the train and are left out.
_TRAIN_S, _ROUND_TRIPS = 0.04, 24
# Such a train has at most the bytes that the fastest slow link carries in _TRAIN_S (1 MiB), or up to _LONGEST
# times as many if round trips are long. The first quarter of the smallest train is 32 KiB. As it is left out,
# the burst that a shaped link lets through (4 KiB in a lab) has no weight.
_MOST_TRAIN_BYTES, _LEAST_TRAIN_BYTES, _LONGEST = MIB, 128 * KIB, 4.0
# The sleep of a rank between two looks for a message: short beside a small message on a slow link (0.15 ms).
_NAP_S = 5e-5
# A train came in a burst if the gaps between its messages are below this share of the mean time per message
# since the request. The request takes one round trip and the messages _ROUND_TRIPS or more, so the gaps of an
# undisturbed train are at least 24/25 of that mean; the rest is for noise.
HURRY = 0.94
# A requested size is left out if one of its messages takes longer, unless it is the smallest size. The fewest
# messages of a train then take 5 s.
_LONGEST_WANTED_S = 1.0
# Trains of a slow link are sent up to _TIMES times, until their paces differ by less than the factor _AGREE.
# Rates of an undisturbed link vary by 1 to 3 % (as in benchmarks/accept_campaign.py).
_AGREE, _TIMES = 1.03, 3
# Links that are measured at the same time may delay a link's trains, by a factor of 2 if two links share a
# port. They do if at least _TRAINS_HELD_UP trains of the link differ by more than the factor _HELD_UP, which
# is more than noise. Then no more trains are sent, because the link will be measured alone.
_HELD_UP, _TRAINS_HELD_UP = 1.25, 4
# The fewest and the most messages in a train of large messages: five have three gaps after the first quarter.
_FEWEST_MESSAGES, _MOST_MESSAGES = 5, 32
# The fewest and the most messages in a train of small messages. Twelve have eight gaps after the first
# quarter. The upper bound matters if a user requests tiny messages: at 2.4 us each they take _TRAIN_S.
_FEWEST_BUFFERED, _MOST_BUFFERED = 12, 1 << 14

Between = Callable[[], None]


@dataclass(frozen=True)
class Train:
    """A train of ``messages`` of ``size_bytes``, sent ``times`` times.

    On a slow link the receiver sleeps between messages (``calmly``), so that the waiting ranks of a crowded
    host do not take the cores from each other.
    """

    size_bytes: int
    messages: int
    times: int
    calmly: bool = False


@dataclass
class Trains:
    """Measurements of a link's trains: the seconds of a message, by its size.

    ``whole_s_per_byte`` has the time per byte of each train from its request to its end, which can only be
    too long.
    """

    seconds: dict[int, list[float]] = field(default_factory=dict)
    whole_s_per_byte: list[float] = field(default_factory=list)

    def add(self, other: Trains) -> None:
        for size, values in other.seconds.items():
            self.seconds.setdefault(size, []).extend(values)
        self.whole_s_per_byte.extend(other.whole_s_per_byte)

    def joined(self, other: Trains) -> Trains:
        """Return the measurements of both, without changing either."""
        both = Trains()
        both.add(self)
        both.add(other)
        return both

    def comparable(self) -> dict[int, list[float]]:
        """Return the samples that one line can describe: large messages, unless the link is slow.

        If a pass mistakes a slow link for a fast one, it sends large messages, whose times are then useless.
        """
        small = {size: values for size, values in self.seconds.items() if is_buffered(size)}
        large = {size: values for size, values in self.seconds.items() if size not in small}
        if small and large:
            slowest = min(self.whole_s_per_byte, default=float(np.median(large[max(large)])) / max(large))
            if is_slow(slowest):
                return small
        return large or small


def is_buffered(size_bytes: int) -> bool:
    """Return whether an MPI library accepts a message of this size before its receiver requests it."""
    return size_bytes <= _EAGER


def is_slow(seconds_per_byte: float) -> bool:
    """Return whether a link is so slow that only small messages show its pace in a short time."""
    return seconds_per_byte > _SLOW_S_PER_BYTE


def plan(
    seconds_per_byte: float, budget_s: float, wanted: Sequence[int] = (), round_trip_s: float = 0.0
) -> list[Train]:
    """Plan the most informative trains for a link of about this speed within about ``budget_s`` seconds.

    ``wanted`` are sizes that the user requests; those that take over a second per message are left out,
    except the smallest. ``round_trip_s`` is the approximate time of an answer.
    """
    if wanted:
        sizes = [s for s in sorted(wanted) if s * seconds_per_byte <= _LONGEST_WANTED_S] or [min(wanted)]
    elif is_slow(seconds_per_byte):
        sizes = list(_SMALL)
    else:
        # The budget decides the number of sizes, each with the fewest messages. A line needs at least three.
        sizes = [
            size
            for count, size in enumerate(_LARGE, start=1)
            if count <= 3 or _FEWEST_MESSAGES * sum(_LARGE[:count]) * seconds_per_byte <= budget_s
        ]
    each_s = budget_s / len(sizes)
    buffered_s = max(_TRAIN_S, _ROUND_TRIPS * round_trip_s)
    return [_train(size, seconds_per_byte, buffered_s if is_buffered(size) else each_s) for size in sizes]


def _train(size: int, seconds_per_byte: float, budget_s: float) -> Train:
    if is_buffered(size):
        most_bytes = _MOST_TRAIN_BYTES * min(budget_s / _TRAIN_S, _LONGEST)
        length = max(_LEAST_TRAIN_BYTES, min(most_bytes, budget_s / seconds_per_byte))
        return Train(
            size, max(_FEWEST_BUFFERED, min(_MOST_BUFFERED, int(length / size))), 1, is_slow(seconds_per_byte)
        )
    messages = min(_MOST_MESSAGES, budget_s / (size * seconds_per_byte))
    return Train(size, int(max(_FEWEST_MESSAGES, messages)), 1)


def send(comm: Any, peer: int) -> None:
    """Send the trains that the receiver requests."""
    while (train := _next_request(comm, peer)) is not None:
        send_train(comm, peer, train)


def _next_request(comm: Any, peer: int) -> Train | None:
    """Return the next request of ``peer``; sleep until it comes, to leave the cores to the peer."""
    while not comm.Iprobe(peer, _TAG):
        time.sleep(_NAP_S)
    request: Train | None = comm.recv(source=peer, tag=_TAG)
    return request


def receive(
    comm: Any,
    peer: int,
    budget_s: float,
    wanted: Sequence[int] = (),
    between: Between = lambda: None,
    *,
    alone: bool = False,
) -> Trains:
    """Time trains from ``peer``, which must be in ``send``, for about ``budget_s`` seconds.

    ``between`` is called before each train, as a sign that data still arrives. ``alone`` says that no other
    link is measured at the same time.
    """
    pace, round_trip_s = _speed(comm, peer)
    trains = plan(pace, budget_s, wanted, round_trip_s)
    # Small messages of a user's choice are mostly overhead, so their time does not bound the time per byte.
    bounded = not wanted or max(wanted) > _EAGER or is_slow(pace)
    found = Trains()
    for _ in range(_TIMES):
        for train in trains:
            between()
            asked_s, rows = _ask(comm, peer, train)
            for arrived in rows:
                found.add(judged(train.size_bytes, arrived, asked_s if bounded else None))
                asked_s = float(arrived[-1])
        if wanted or not is_slow(pace) or is_enough(found, alone=alone):
            break
    comm.send(None, dest=peer, tag=_TAG)
    return found


def is_enough(found: Trains, *, alone: bool) -> bool:
    """Return whether trains of a slow link agree on its pace, or (if not ``alone``) others delay them."""
    paces = [value / size for size, values in found.seconds.items() for value in values]
    if len(paces) < 2:
        return False
    apart = max(paces) / min(paces)
    return apart < _AGREE or (apart > _HELD_UP and len(paces) >= _TRAINS_HELD_UP and not alone)


def _speed(comm: Any, peer: int) -> tuple[float, float]:
    """Return the approximate seconds per byte from ``peer``, and the seconds until it answers."""
    look = Train(*_LOOK)
    looks = [_ask(comm, peer, look)]
    if is_slow(_pace(looks[0][1][0]) / look.size_bytes):
        looks += [_ask(comm, peer, look) for _ in range(_MORE_LOOKS)]
    round_trip_s = min(float(rows[0][0]) - asked_s for asked_s, rows in looks)
    # The median, because any look may be disturbed.
    pace = float(np.median([_pace(rows[0]) for _, rows in looks])) / look.size_bytes
    if not is_slow(pace):
        probe = Train(*_PROBE)
        _, rows = _ask(comm, peer, probe)
        # A repetition may arrive in one clump and look too fast. The messages of all repetitions in a row
        # have the pauses between clumps, so the link counts as no faster than these.
        middle = float(np.median([_pace(arrived) for arrived in rows]))
        pace = max(middle, _pace(np.concatenate(rows))) / probe.size_bytes
    return pace, round_trip_s


def _pace(arrived_s: Floats) -> float:
    """Return the mean seconds per message."""
    return float(np.diff(arrived_s).mean())


def _ask(comm: Any, peer: int, train: Train) -> tuple[float, list[Floats]]:
    """Request ``train``; return the time of the request and the arrival times of its messages."""
    asked_s = time.perf_counter()
    comm.send(train, dest=peer, tag=_TAG)
    return asked_s, receive_train(comm, peer, train)


def judged(size_bytes: int, arrived_s: Floats, asked_s: float | None) -> Trains:
    """Return the samples of a train of ``size_bytes`` messages, and its time per byte since ``asked_s``.

    If the train came in a burst, it has no samples.
    """
    buffered = is_buffered(size_bytes)
    seconds = spacings(arrived_s, buffered=buffered)
    if asked_s is None:
        return Trains({size_bytes: seconds})
    whole_s = float(arrived_s[-1]) - asked_s
    each_s = whole_s / len(arrived_s)
    if buffered:
        # All messages after the first quarter together took no longer than the whole train. This bounds their
        # pace, which uneven clumps can make too long.
        seconds = [min(seconds[0], whole_s / (len(arrived_s) - _burst(arrived_s)))]
    burst = buffered and seconds[0] < HURRY * each_s
    return Trains({} if burst else {size_bytes: seconds}, [each_s / size_bytes])


def _burst(arrived_s: Floats) -> int:
    """Return the number of messages at the start of a train that do not count: a quarter.

    A shaped link may let them through at once, and a TCP connection may not have reached its pace.
    """
    return len(arrived_s) // 4


def spacings(arrived_s: Floats, *, buffered: bool) -> list[float]:
    """Return seconds per message from the arrival times of a train, without its first quarter."""
    steady = arrived_s[_burst(arrived_s) :]
    gaps = np.diff(steady)
    if not buffered:
        return [float(gap) for gap in gaps]
    # At the end of a clump, all arrived data has been read; within a clump, more has arrived than was read.
    ends = np.flatnonzero(gaps > gaps.mean() / 2)
    if len(ends) < 3:
        ends = np.arange(len(steady))
    return [theil_sen(floats(ends), steady[ends]).slope]


def receive_train(comm: Any, peer: int, train: Train) -> list[Floats]:
    """Return arrival times in each repetition of a train; ``peer`` must be in ``send_train``."""
    buffer = warm_buffer()
    rows = []
    for _ in range(train.times):
        arrived = np.empty(train.messages)
        for at in range(train.messages):
            if train.calmly:
                request = comm.Irecv(_slice(buffer, at, train.size_bytes), peer, _TAG)
                while not request.Test():
                    time.sleep(_NAP_S)
            else:
                comm.Recv(_slice(buffer, at, train.size_bytes), peer, _TAG)
            arrived[at] = time.perf_counter()
        rows.append(arrived)
    return rows


def send_train(comm: Any, peer: int, train: Train) -> None:
    """Send one train to ``peer``, which expects it."""
    buffer = warm_buffer()
    for _ in range(train.times):
        for at in range(train.messages):
            comm.Send(_slice(buffer, at, train.size_bytes), peer, _TAG)


def _slice(buffer: Bytes, at: int, size_bytes: int) -> Bytes:
    start = at * size_bytes % len(buffer)
    return buffer[start : start + size_bytes]


_kept: list[Bytes] = []


def warm_buffer() -> Bytes:
    """Return the one buffer of this process with its pages touched; call it before anything is timed."""
    if not _kept:
        _kept.append(np.ones(_BUFFER_BYTES, dtype=np.uint8))
    return _kept[0]
