from __future__ import annotations

import numpy as np
import pytest

from synth.network import Link, build
from synth.relays.tree_choice import dealt, loads


def test_loads_are_those_of_links_and_their_ports():
    network = build(
        "two", ["a", "b"], [Link(0, 1, 0.0, 2e-9, ("out", "in")), Link(1, 0, 0.0, 1e-9, ("out",))]
    )
    held = loads(network, 1000, [np.array([0]), np.array([0, 1]), np.array([], dtype=int)])
    assert held.tolist() == [
        pytest.approx([2e-6, 0, 2e-6, 2e-6]),
        pytest.approx([2e-6, 1e-6, 3e-6, 2e-6]),
        [0, 0, 0, 0],
    ]


@pytest.mark.parametrize("chunks", [1, 10, 1000])
def test_equal_trees_share_the_chunks(chunks):
    (taken,) = dealt([np.eye(4)], [chunks])
    count = np.bincount(taken, minlength=4)
    assert count.sum() == chunks
    # A lot is a sixty-fourth of the chunks, or one.
    assert np.ptp(count) <= max(1, chunks / 64 + 1)


def test_slow_trees_get_less_and_what_is_forced_counts():
    (taken,) = dealt([np.diag([1.0, 3.0])], [64])
    assert np.bincount(taken).tolist() == [48, 16]
    # The second item has no choice, and takes the first resource for as long as 20 chunks do.
    taken, forced = dealt([np.eye(2), np.array([[1.0, 0.0]])], [60, 20])
    assert forced.tolist() == [0] * 20
    assert np.bincount(taken).tolist() == [20, 40]
