"""The concurrent-flow linear program: least time of point-to-point demands in splittable chunks.

The program finds the least T such that every demand is routed and no link or port is held longer than T. It
is exact for collectives such as all_to_all if a chunk may be split over any paths. HiGHS solves it through
SciPy, for small networks only.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import coo_array

from probes.base import Floats, Indices
from synth.network import Network

__all__ = ["fits", "least_time_s"]

# HiGHS solves programs of this size in about a second.
_MOST_VARIABLES = 8000


def fits(network: Network, demands: Floats) -> bool:
    """Return whether the program is small enough to be solved in about a second."""
    return int((demands.sum(axis=1) > 0).sum()) * network.links <= _MOST_VARIABLES


def least_time_s(network: Network, demands: Floats, held_s: Floats) -> float:
    """Return the least time for ``demands[source, target]`` chunks; each holds link e for ``held_s[e]``.

    The program has a variable for each source and link: the chunks of that source on that link. Return 0 if
    the solver fails.
    """
    sources = np.flatnonzero(demands.sum(axis=1) > 0)
    links, ranks = network.links, network.ranks
    count = len(sources) * links
    if not count:
        return 0.0
    # At each rank but the source, inflow less outflow is the rank's demand from this source.
    block = np.repeat(np.arange(len(sources)), links)
    variable = np.arange(count)
    src, dst = np.tile(network.src, len(sources)), np.tile(network.dst, len(sources))
    rows = np.concatenate((block * ranks + dst, block * ranks + src))
    data = np.concatenate((np.ones(count), -np.ones(count)))
    ends = (rows, np.concatenate((variable, variable)))
    balance = coo_array((data, ends), shape=(len(sources) * ranks, count + 1))
    constrained = np.ones((len(sources), ranks), dtype=bool)
    constrained[np.arange(len(sources)), sources] = False
    kept = np.flatnonzero(constrained.ravel())
    resource = np.concatenate((np.arange(links), links + network.link_port))
    user: Indices = np.concatenate((np.arange(links), network.port_user))
    shift = np.arange(len(sources))[:, None] * links
    resources = links + len(network.ports)
    # Seconds are scaled to the size that the solver's tolerances expect.
    unit = float(held_s.max())
    part = np.concatenate((np.ones(links), network.port_part))
    held = np.concatenate((np.tile(held_s[user] * part / unit, len(sources)), -np.ones(resources)))
    holder = np.concatenate((np.tile(resource, len(sources)), np.arange(resources)))
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
        b_eq=demands[sources].ravel()[kept],
        method="highs",
    )
    # The bound is lowered a little, so that the solver's tolerance cannot lift it above the true optimum.
    return float(found.fun) * unit * (1 - 1e-6) if found.status == 0 else 0.0
