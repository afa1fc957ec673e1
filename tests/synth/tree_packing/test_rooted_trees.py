from __future__ import annotations

import numpy as np

from synth.tree_packing.rooted_trees import depths


def test_a_rank_lies_one_edge_below_its_parent() -> None:
    random = np.random.default_rng(3)
    parent = np.array([-1, *(int(random.integers(0, rank)) for rank in range(1, 40))])
    found = depths(parent)
    assert found[0] == 0
    assert (found[1:] == found[parent[1:]] + 1).all()
    assert depths(np.array([-1, -1])).tolist() == [0, 0]
