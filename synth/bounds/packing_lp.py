"""The packing linear program: shares of trees that minimize the largest load of a resource.

A tree is a row of edges (or links). It loads resources: ports, and links without a port or slower than all
their ports. Each tree belongs to a group. The shares of a group's trees add up to the group's demand.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import coo_array, csc_array, csr_array, hstack

from probes.base import Floats, Indices, Mask
from synth.network import Network

__all__ = ["ALIKE", "Shares", "Trees", "link_load", "resource_load", "solve"]

# The cost of each level of a tree, relative to the least load. It is so small that the load decides.
_HEIGHT_WEIGHT = 1e-2
# A link counts as slower than its port only beyond this ratio, as measurements of equal rates differ
# slightly.
ALIKE = 1.03


def link_load(network: Network) -> csc_array:
    """Return (resources, links): seconds per byte for which each link keeps each resource busy."""
    return resource_load(network)[1]


def resource_load(network: Network) -> tuple[Indices, csc_array]:
    """Return the resources that limit, numbered as in ``Network.link_resources``, and ``link_load``.

    A port is loaded by all its links. A link is a resource of its own if it has no port, or if it is slower
    than each of its ports.
    """
    slow = np.ones(network.links, dtype=bool)
    as_fast = network.held_s_per_byte * ALIKE >= network.beta_s_per_byte[network.port_user]
    slow[network.port_user[as_fast]] = False
    alone = np.flatnonzero(slow)
    row = np.concatenate((network.links + network.link_port, alone))
    column = np.concatenate((network.port_user, alone))
    busy = np.concatenate((network.held_s_per_byte, network.beta_s_per_byte[alone]))
    used, row = np.unique(row, return_inverse=True)
    return used, csc_array((busy, (row, column)), shape=(len(used), network.links))


class Trees:
    """The columns of the program: distinct trees of equal size, with their groups and heights."""

    def __init__(self) -> None:
        self._height: dict[tuple[int, bytes], int] = {}

    def __len__(self) -> int:
        return len(self._height)

    @property
    def table(self) -> Indices:
        """The edges of each tree, as an array (trees, edges of a tree)."""
        return np.array([np.frombuffer(key, dtype=np.int64) for _, key in self._height])

    @property
    def groups(self) -> Indices:
        return np.array([group for group, _ in self._height])

    @property
    def heights(self) -> Floats:
        return np.array(list(self._height.values()), dtype=float)

    def add(self, tree: Indices, height: int, group: int = 0) -> Indices:
        """Add a tree unless it is known, and return it."""
        key = (group, np.sort(tree).astype(np.int64).tobytes())
        self._height[key] = min(height, self._height.get(key, height))
        return tree

    def keep(self, useful: Mask, recent: int) -> None:
        """Drop trees that are not useful, except the ``recent`` latest."""
        first = len(useful) - recent
        rows = zip(self._height.items(), useful, strict=True)
        self._height = {key: height for at, ((key, height), used) in enumerate(rows) if used or at >= first}


@dataclass(frozen=True, eq=False)
class Shares:
    """A solution: the share of each tree, the price of each resource, the largest load (s per byte)."""

    share: Floats
    price: Floats
    s_per_byte: float


def solve(busy: csc_array, trees: Trees, demand: Floats, spared: Floats | None = None) -> Shares:
    """Return the shares that minimize the largest load; low trees are preferred among nearly equal ones.

    ``busy`` is (resources, edges); ``demand[g]`` is the sum of the shares of group g's trees. ``spared`` is a
    load of each resource that every tree causes anyway; it is subtracted from each tree's load.
    """
    columns, groups = trees.table, trees.groups
    count, size = columns.shape
    member = csc_array(
        (np.ones(count * size), (columns.ravel(), np.repeat(np.arange(count), size))),
        shape=(busy.shape[1], count),
    )
    load = (busy @ member).tocsr()
    if spared is not None:
        load.data -= np.repeat(spared, np.diff(load.indptr))
    scale = float(load.max()) or 1.0
    rows = _distinct_rows(load)
    upper = hstack((load[rows] / scale, coo_array(-np.ones((len(rows), 1)))), format="csc")
    one_each = coo_array((np.ones(count), (groups, np.arange(count))), shape=(len(demand), count))
    equal = hstack((one_each, coo_array((len(demand), 1))), format="csc")
    least = float(load.sum(axis=0).min()) / busy.shape[0] / scale
    goal = np.append(_HEIGHT_WEIGHT * least * trees.heights, 1.0)
    # Imported only here, because the import takes a tenth of a second.
    from scipy.optimize import linprog

    solved = linprog(goal, A_ub=upper, b_ub=np.zeros(len(rows)), A_eq=equal, b_eq=demand, method="highs")
    price = np.zeros(busy.shape[0])
    price[rows] = np.maximum(-solved.ineqlin.marginals, 0.0)
    return Shares(solved.x[:-1], price, float(solved.x[-1]) * scale)


def _distinct_rows(load: csr_array) -> Indices:
    """Return one row of each set of equal rows, such as those of opposite links that all trees load alike."""
    first: dict[tuple[bytes, bytes], int] = {}
    for row in range(load.shape[0]):
        entries = slice(load.indptr[row], load.indptr[row + 1])
        first.setdefault((load.indices[entries].tobytes(), load.data[entries].tobytes()), row)
    return np.array(list(first.values()))
