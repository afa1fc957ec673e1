"""Alpha by ping-pong: half the round trip of messages that are too small for beta to matter."""

from __future__ import annotations

import time
from typing import Any

from probes.columns import Floats, floats

__all__ = ["answer", "round_trips"]

_TAG = 101
_WARM = 20
_LEAST, _MOST = 20, 2000


def round_trips(comm: Any, peer: int, budget_s: float) -> Floats:
    """Round-trip times (s) to ``peer``, which must be in ``answer``, for about ``budget_s`` seconds.

    Half the smallest is alpha. It needs no common clock; what differs between the two directions is
    not seen.
    """
    ball = bytearray(8)
    warm = [_round_trip(comm, peer, ball) for _ in range(_WARM)]
    count = int(max(_LEAST, min(_MOST, budget_s / max(sorted(warm)[len(warm) // 2], 1e-9))))
    comm.Send(count.to_bytes(8, "little"), peer, _TAG)
    return floats([_round_trip(comm, peer, ball) for _ in range(count)])


def answer(comm: Any, peer: int) -> None:
    """Send each ball back at once, as often as the peer says."""
    ball = bytearray(8)
    for _ in range(_WARM):
        _return(comm, peer, ball)
    comm.Recv(ball, peer, _TAG)
    for _ in range(int.from_bytes(ball, "little")):
        _return(comm, peer, ball)


def _round_trip(comm: Any, peer: int, ball: bytearray) -> float:
    started_s = time.perf_counter()
    comm.Send(ball, peer, _TAG)
    comm.Recv(ball, peer, _TAG)
    return time.perf_counter() - started_s


def _return(comm: Any, peer: int, ball: bytearray) -> None:
    comm.Recv(ball, peer, _TAG)
    comm.Send(ball, peer, _TAG)
