"""The instants at which a schedule of whole chunks can end, where all links are alike.

Let every send hold its link and its ports for the time h, and arrive α later. Move each send to the left as
far as its links and its data allow, with the order at every link and port as it is: the schedule ends no
later. Now each send starts at 0, when another send frees a link, or when data arrives. So all starts are of
the form i·h + j·α with i ≥ j ≥ 0, and all ends are i·h + j·α with i ≥ j ≥ 1. A lower bound may be raised to
the next of these instants.
"""

from __future__ import annotations

import math

import numpy as np

from synth.network import Network

__all__ = ["next_end_s"]

# Times and costs are equal within this share: sums of floats round.
_ALIKE = 1e-9
# The most different numbers j that are tried; beyond, instants are so close that nothing is gained.
_MOST = 10_000


def next_end_s(network: Network, chunk_bytes: int, bound_s: float) -> float:
    """Return the first instant from ``bound_s`` on at which a schedule can end.

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
    holds = np.maximum(flights, np.ceil((bound_s * (1 - _ALIKE) - flights * flight) / hold))
    return max(bound_s, float((holds * hold + flights * flight).min()))
