"""The concurrent-flow linear program: how fast point-to-point demands can flow when chunks are cut at will.

Exact where all_to_all and its like may split over any paths: the least T such that every demand is routed
and no link or port is held longer than T. By HiGHS, through scipy; for small networks.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import coo_array

from probes.base import Floats, Indices
from synth.network import Network

__all__ = ["fits", "least_time_s"]

_MOST_VARIABLES = 8000


def fits(network: Network, demands: Floats) -> bool:
    """Whether the program is small enough to be solved in about a second."""
    return int((demands.sum(axis=1) > 0).sum()) * network.links <= _MOST_VARIABLES


def least_time_s(network: Network, demands: Floats, held_s: Floats) -> float:
    """The least time for ``demands`` (ranks, ranks) in chunks, each holding link e for ``held_s[e]``.

    A variable for each source and link: the chunks that come from this source. Zero if the solver gives up.
    """
    sources = np.flatnonzero(demands.sum(axis=1) > 0)
    links, ranks = network.links, network.ranks
    count = len(sources) * links
    if not count:
        return 0.0
    # Flow that enters a rank less what leaves it is what it wants from this source; not asked at the source.
    block = np.repeat(np.arange(len(sources)), links)
    variable = np.arange(count)
    src, dst = np.tile(network.src, len(sources)), np.tile(network.dst, len(sources))
    rows = np.concatenate((block * ranks + dst, block * ranks + src))
    data = np.concatenate((np.ones(count), -np.ones(count)))
    ends = (rows, np.concatenate((variable, variable)))
    balance = coo_array((data, ends), shape=(len(sources) * ranks, count + 1))
    asked = np.ones((len(sources), ranks), dtype=bool)
    asked[np.arange(len(sources)), sources] = False
    kept = np.flatnonzero(asked.ravel())
    resource = np.concatenate((np.arange(links), links + network.link_port))
    user: Indices = np.concatenate((np.arange(links), network.port_user))
    shift = np.arange(len(sources))[:, None] * links
    resources = links + len(network.ports)
    # Seconds are scaled so that the solver's tolerances mean something.
    unit = float(held_s.max())
    part = np.concatenate((np.ones(links), network.port_part))
    held = np.concatenate((np.tile(held_s[user] * part / unit, len(sources)), -np.ones(resources)))
    holder = np.concatenate((np.tile(resource, len(sources)), np.arange(resources)))
    column = np.concatenate(((user + shift).ravel(), np.full(resources, count)))
    capacity = coo_array((held, (holder, column)), shape=(resources, count + 1))
    cost = np.zeros(count + 1)
    cost[-1] = 1.0
    # A tenth of a second, which processes that solve none need not take.
    from scipy.optimize import linprog

    found = linprog(
        cost,
        A_ub=capacity.tocsr(),
        b_ub=np.zeros(resources),
        A_eq=balance.tocsr()[kept],
        b_eq=demands[sources].ravel()[kept],
        method="highs",
    )
    # A little is taken off, so that the solver's tolerance cannot make the bound exceed the truth.
    return float(found.fun) * unit * (1 - 1e-6) if found.status == 0 else 0.0
