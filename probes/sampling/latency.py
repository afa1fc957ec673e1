"""Alpha by ping-pong: half the round trip of messages that are too small for beta to matter."""

from __future__ import annotations

import time
from typing import Any

from probes.base import Floats, floats

__all__ = ["answer", "round_trips"]

# Each kind of probe has its own tag, so that probes never receive each other's messages.
_TAG = 101
# The number of first round trips. They may open the connection, so they only show the pace and are not
# counted.
_WARM = 20
# The least and the most round trips that are counted. A minimum needs a few even on a slow link; more than
# these do not improve the minimum of a fast link.
_LEAST, _MOST = 20, 2000
# After this many times its planned time, a measurement ends with fewer round trips than planned, because a
# lost message is sent again and arrives 0.2 s late. ``_LAST`` is the first byte of the last message.
_LATE = 4
_LAST = 1


def round_trips(comm: Any, peer: int, budget_s: float) -> Floats:
    """Return round-trip times (s) to ``peer``, which runs ``answer``, for about ``budget_s``.

    Half the smallest is alpha. Ping-pong needs no common clock, but cannot show a difference between the two
    directions.
    """
    ball = bytearray(8)
    warm = [_round_trip(comm, peer, ball) for _ in range(_WARM)]
    count = int(max(_LEAST, min(_MOST, budget_s / max(sorted(warm)[len(warm) // 2], 1e-9))))
    until_s = time.perf_counter() + _LATE * budget_s
    found: list[float] = []
    while not ball[0]:
        late = len(found) >= _LEAST - 1 and time.perf_counter() > until_s
        ball[0] = _LAST if late or len(found) == count - 1 else 0
        found.append(_round_trip(comm, peer, ball))
    return floats(found)


def answer(comm: Any, peer: int) -> None:
    """Send each message back at once, up to the one marked as the last."""
    ball = bytearray(8)
    while not ball[0]:
        _return(comm, peer, ball)


def _round_trip(comm: Any, peer: int, ball: bytearray) -> float:
    started_s = time.perf_counter()
    comm.Send(ball, peer, _TAG)
    comm.Recv(ball, peer, _TAG)
    return time.perf_counter() - started_s


def _return(comm: Any, peer: int, ball: bytearray) -> None:
    comm.Recv(ball, peer, _TAG)
    comm.Send(ball, peer, _TAG)
