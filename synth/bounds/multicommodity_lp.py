"""The concurrent-flow linear program: least time of demands of one target each, in splittable chunks.

The program finds the least T such that every demand is routed and no link or port is held longer than T. It
is exact for collectives such as all_to_all if a chunk may be split over any paths. Data that several ranks
hold may start at any of them. HiGHS solves the program through SciPy, for small networks only.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import coo_array

from probes.base import Floats, Indices, Mask
from synth.network import Network

__all__ = ["fits", "least_time_s"]

# HiGHS solves programs of this size in about a second.
_MOST_VARIABLES = 8000


def fits(network: Network, demands: Floats) -> bool:
    """Return whether the program is small enough to be solved in about a second."""
    return int((demands.sum(axis=1) > 0).sum()) * network.links <= _MOST_VARIABLES


def least_time_s(network: Network, demands: Floats, held_s: Floats, holders: Mask) -> float:
    """Return the least time for ``demands[row, target]`` chunks; each holds link e for ``held_s[e]``.

    The chunks of a row may start at each of the ranks ``holders[row]``. The program has a variable for each
    row and link: the chunks of that row on that link. Return 0 if the solver fails.
    """
    used = demands.any(axis=1)
    demands, holders = demands[used], holders[used]
    links, count = network.links, len(demands) * network.links
    if not count:
        return 0.0
    # At each rank that is no holder, inflow less outflow is the rank's demand.
    block = np.repeat(np.arange(len(demands)), links)
    variable = np.arange(count)
    src, dst = np.tile(network.src, len(demands)), np.tile(network.dst, len(demands))
    rows = np.concatenate((block * network.ranks + dst, block * network.ranks + src))
    data = np.concatenate((np.ones(count), -np.ones(count)))
    ends = (rows, np.concatenate((variable, variable)))
    balance = coo_array((data, ends), shape=(demands.size, count + 1))
    kept = np.flatnonzero(~holders.ravel())
    resource = np.concatenate((np.arange(links), links + network.link_port))
    user: Indices = np.concatenate((np.arange(links), network.port_user))
    shift = np.arange(len(demands))[:, None] * links
    resources = links + len(network.ports)
    # Seconds are scaled to the size that the solver's tolerances expect.
    unit = float(held_s.max())
    part = np.concatenate((np.ones(links), network.port_part))
    held = np.concatenate((np.tile(held_s[user] * part / unit, len(demands)), -np.ones(resources)))
    holder = np.concatenate((np.tile(resource, len(demands)), np.arange(resources)))
    column = np.concatenate(((user + shift).ravel(), np.full(resources, count)))
    capacity = coo_array((held, (holder, column)), shape=(resources, count + 1))
    cost = np.zeros(count + 1)
    cost[-1] = 1.0
    # Imported only here, because the import takes a tenth of a second.
    from scipy.optimize import linprog

    found = linprog(
        cost,
        A_ub=capacity.tocsr(),
        b_ub=np.zeros(resources),
        A_eq=balance.tocsr()[kept],
        b_eq=demands.ravel()[kept],
        method="highs",
    )
    # The bound is lowered a little, so that the solver's tolerance cannot lift it above the true optimum.
    return float(found.fun) * unit * (1 - 1e-6) if found.status == 0 else 0.0
