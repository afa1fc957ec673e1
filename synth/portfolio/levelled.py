"""Levelled networks: a few faster links are slowed down to the cost of all others.

A schedule takes no longer on faster links than on slower ones. So a network that translations would map to
itself but for some faster links is also planned as if all were alike, with the methods for such networks.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from probes.base import Floats, floats
from synth.network import Network
from synth.networks import found_symmetry

__all__ = ["levelled"]

# A cost is rare if at most this share of the links have it.
_RARE = 0.1


def levelled(network: Network) -> Network | None:
    """Return the network with rare low costs raised to the next common ones.

    Return None unless translations map the result, and not the network, to itself. Networks that queue are
    not levelled. O(ranks²).
    """
    if network.queues or network.memory or not network.links:
        return None
    alpha_s, beta = (_raised(each) for each in (network.alpha_s, network.beta_s_per_byte))
    if np.array_equal(alpha_s, network.alpha_s) and np.array_equal(beta, network.beta_s_per_byte):
        return None
    found = replace(network, alpha_s=alpha_s, beta_s_per_byte=beta)
    return found if found_symmetry(network) is None and found_symmetry(found) is not None else None


def _raised(cost: Floats) -> Floats:
    """Return the costs, with each rare one replaced by the next higher common one, if there is one."""
    values, counts = np.unique(cost, return_counts=True)
    common = values[counts > _RARE * len(cost)]
    if not len(common):
        return cost
    place = np.searchsorted(common, cost)
    return floats(np.where(place < len(common), common[np.minimum(place, len(common) - 1)], cost))
