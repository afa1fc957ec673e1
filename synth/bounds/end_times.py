"""Possible end times of schedules of whole chunks, on a network whose links are all alike.

Let every send hold its link and its ports for the time h, and arrive α later. Move each send to the left as
far as its links and its data allow, with the order at every link and port as it is: the schedule ends no
later. Now each send starts at 0, when another send frees a link or port, or when data arrives. So all starts
are of the form i·h + j·α with i ≥ j ≥ 0, and all ends are i·h + j·α with i ≥ j ≥ 1. A lower bound may be
raised to the next of these times.
"""

from __future__ import annotations

import math

import numpy as np

from synth.network import Network

__all__ = ["next_end_s"]

# Costs are equal within this share: floats round.
_ALIKE = 1e-9
# A bound that is above an end time by less than this share is not raised to the next one: solvers round.
_SURE = 1e-6
# The most numbers j that are tried; with more, end times are so close that nothing is gained.
_MOST = 10_000


def next_end_s(network: Network, chunk_bytes: int, bound_s: float) -> float:
    """Return the first time from ``bound_s`` on at which a schedule can end.

    The result is ``bound_s`` itself if links differ, or if transfers queue in a network.
    """
    hold_s, travel_s = network.hold_s(chunk_bytes), network.travel_s(chunk_bytes)
    ports_s = network.held_s(chunk_bytes)
    hold, flight = float(hold_s[0]), float(travel_s[0] - hold_s[0])
    alike = np.allclose(ports_s, hold, _ALIKE, 0.0) and np.allclose(travel_s, travel_s[0], _ALIKE, 0.0)
    if not (alike and hold > 0.0 and 0.0 < bound_s < math.inf) or network.queues:
        return bound_s
    most = math.ceil(bound_s / (hold + flight)) + 1
    if most > _MOST:
        return bound_s
    flights = np.arange(1, most + 1)
    holds = np.maximum(flights, np.ceil((bound_s * (1 - _SURE) - flights * flight) / hold))
    return max(bound_s, float((holds * hold + flights * flight).min()))
