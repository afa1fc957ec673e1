"""Costs of a ring on a network: alpha and beta of DeAR's equations, from a simulation."""

from __future__ import annotations

from synth.collective import collective
from synth.fusion.costs import RingCosts
from synth.methods import ring
from synth.network import Network
from synth.simulation import replay

__all__ = ["ring_costs"]

# The larger of the two sizes; the smaller is 1 byte. At this distance rounding of the times does not change
# the slope.
_LARGE_CHUNK_BYTES = 4 << 20


def ring_costs(network: Network) -> RingCosts:
    """Return the costs of a ring on ``network``: alpha and beta from its all_gather, simulated at two sizes.

    Raises NotApplicableError if no ring connects all ranks.
    """
    gather = collective("all_gather", network.ranks, 1)
    schedule = ring.synthesize(network, gather, _LARGE_CHUNK_BYTES)
    steps = network.ranks - 1
    small_s, large_s = (replay(schedule, chunk_bytes=size).time_s / steps for size in (1, _LARGE_CHUNK_BYTES))
    beta_s = (large_s - small_s) / (_LARGE_CHUNK_BYTES - 1)
    return RingCosts(network.ranks, max(0.0, small_s - beta_s), beta_s)
