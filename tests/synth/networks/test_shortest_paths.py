from __future__ import annotations

import numpy as np

from synth.network import Link, build
from synth.networks.path_search import distances_s, shortest_paths


def test_paths_take_the_last_of_the_cheapest_parallel_links() -> None:
    links = [Link(0, 1, 2.0, 1e-9), Link(0, 1, 1.0, 1e-9), Link(0, 1, 1.0, 1e-9), Link(1, 2, 0.0, 1e-9)]
    network = build("line", ["a"] * 4, links)
    paths = shortest_paths(network.ranks, network.src, network.dst, network.alpha_s)
    assert paths.edges(0, 2) == [2, 3]
    assert paths.edges(0, 0) == paths.edges(2, 0) == []
    assert np.allclose(paths.cost[0], [0.0, 1.0, 1.0, np.inf])
    assert np.array_equal(distances_s(network, network.alpha_s, np.arange(4)), paths.cost)


def test_edges_of_a_path_add_up_to_its_cost() -> None:
    random = np.random.default_rng(5)
    src, dst = random.integers(0, 12, (2, 40))
    cost = random.integers(1, 4, 40).astype(float)
    paths = shortest_paths(12, src, dst, cost, np.array([3, 7]))
    for row, source in enumerate((3, 7)):
        for node in range(12):
            edges = paths.edges(row, node)
            ends = [source, *dst[edges].tolist()]
            assert ends[:-1] == src[edges].tolist()
            reached = np.isfinite(paths.cost[row, node])
            assert (ends[-1] == node and cost[edges].sum() == paths.cost[row, node]) if reached else not edges
