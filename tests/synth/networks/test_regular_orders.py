"""Ranks are put in an order in which translations map the network to itself, whatever they are called."""

import itertools
import random

import numpy as np
import pytest
from hypothesis import given, strategies as st

from synth.network import Link, Network, build
from synth.networks import family, found_symmetry, regular_orders
from synth.networks.dgx import pod

ALPHA_S, BETA_S_PER_BYTE = 1e-6, 2e-11


def in_order(network: Network, order: list[int]) -> Network:
    """Return the network whose rank k is rank ``order[k]`` of the given one."""
    number = np.argsort(order).tolist()
    links = [one._replace(src=number[one.src], dst=number[one.dst]) for one in network.as_links()]
    return build("in order", [network.hosts[rank] for rank in order], links)


def shuffled(network: Network, seed: int) -> Network:
    return in_order(network, random.Random(seed).sample(range(network.ranks), network.ranks))


def translations(network: Network) -> int:
    found = found_symmetry(network)
    return 1 if found is None else found.network.translations


@pytest.mark.parametrize(
    "name",
    ["ring:9", "torus:3x4", "torus:6x10", "torus:2x3x4", "hypercube:32", "fc:6", "switch:8", "fat_tree:4x4"],
)
@pytest.mark.parametrize("seed", [1, 2])
def test_networks_with_translations_have_a_regular_order_under_any_names(name, seed):
    network = shuffled(family(name, [ALPHA_S], [50e9]), seed)
    orders = (in_order(network, order.tolist()) for order in regular_orders(network))
    assert next(filter(lambda found: translations(found) == network.ranks, orders), None) is not None


def test_machines_with_nics_have_a_regular_order_under_any_names():
    network = shuffled(pod("dgx-a100:2"), 3)
    assert max(translations(in_order(network, order.tolist())) for order in regular_orders(network)) == 16


def circulant(ranks: int, jumps: list[int], order: list[int]) -> Network:
    ends = [(rank, (rank + jump) % ranks) for rank, jump in itertools.product(range(ranks), jumps)]
    links = [Link(order[a], order[b], ALPHA_S, BETA_S_PER_BYTE) for a, b in ends]
    return build("circulant", [f"h{rank}" for rank in range(ranks)], links)


@given(st.integers(5, 17), st.data())
def test_one_way_circulants_have_a_regular_order_under_any_names(ranks, data):
    jumps = [1, *data.draw(st.lists(st.integers(2, ranks - 1), min_size=1, max_size=3, unique=True))]
    network = circulant(ranks, jumps, data.draw(st.permutations(range(ranks))))
    orders = list(regular_orders(network))
    assert all(sorted(order.tolist()) == list(range(ranks)) for order in orders)
    assert max(translations(in_order(network, order.tolist())) for order in orders) == ranks


def test_a_torus_under_any_names_is_a_grid_again():
    """Its dimensions are those of the name, so that methods for tori apply."""
    shape = (4, 4, 4)
    network = shuffled(family("torus:4x4x4", [ALPHA_S], [50e9]), 5)
    grid = in_order(network, next(regular_orders(network)).tolist())
    assert found_symmetry(grid).network.sizes == shape
    source, target = (np.array(np.unravel_index(end, shape)) for end in (grid.src, grid.dst))
    assert ((source != target).sum(axis=0) == 1).all()


def test_ranks_that_differ_in_part_have_orders_by_orbit():
    """A mesh is turned by a quarter: four translations, and four orbits of ranks that differ."""
    network = shuffled(family("mesh:4x4", [ALPHA_S], [50e9]), 1)
    assert max(translations(in_order(network, order.tolist())) for order in regular_orders(network)) == 4


def test_ranks_that_all_differ_have_no_regular_order():
    network = family("mesh:3x3", [ALPHA_S], [50e9])
    assert list(regular_orders(network)) == []


def test_a_graph_whose_ranks_look_alike_may_have_orders_by_orbit_only():
    """The Petersen graph is the Cayley graph of no group; turns by a fifth map it to itself."""
    outer = [(rank, (rank + 1) % 5) for rank in range(5)]
    inner = [(5 + rank, 5 + (rank + 2) % 5) for rank in range(5)]
    pairs = [*outer, *inner, *((rank, 5 + rank) for rank in range(5))]
    links = [Link(*pair, ALPHA_S, BETA_S_PER_BYTE) for a, b in pairs for pair in ((a, b), (b, a))]
    network = shuffled(build("petersen", [f"h{rank}" for rank in range(10)], links), 1)
    assert {translations(in_order(network, order.tolist())) for order in regular_orders(network)} == {5}
