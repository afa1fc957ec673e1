"""Rooted trees as one column: the parent of each rank, -1 at a root."""

from __future__ import annotations

import numpy as np

from probes.base import Indices

__all__ = ["depths", "height"]


def height(entered_by: Indices, parent_of: Indices) -> int:
    """Return the height of an arborescence; ``entered_by`` is each rank's link, -1 at the root.

    ``parent_of`` has the parent's end of each link of the network.
    """
    return int(depths(np.where(entered_by >= 0, parent_of[entered_by], -1)).max())


def depths(parent: Indices) -> Indices:
    """Return the number of edges from each rank up to its root; O(ranks · height)."""
    depth = np.zeros(len(parent), dtype=np.int64)
    above = parent
    while (below := above >= 0).any():
        depth += below
        above = np.where(below, parent[above], -1)
    return depth
