"""Sends dimension by dimension complete every sum in every order, within the rounds that the order needs."""

from __future__ import annotations

import numpy as np
import pytest
from drawn_examples import drawn
from hypothesis import given, settings, strategies as st

from synth.check.schedule import check
from synth.collective import collective
from synth.network import Network
from synth.networks.dgx import pod
from synth.networks.families import family
from synth.scheduling import block_exchange, mixtures
from synth.scheduling.dimension_sends import dimension_sends
from synth.scheduling.rounds import RoundSearch
from synth.simulation import replay

# The sum of the diameters of the dimensions, and the number of orders.
_SPECS = {
    "torus:3x4": (3, 10),
    "fat_tree:3x2": (2, 10),
    "dgx-a100:2": (2, 10),
    "rfs:2x3x2": (3, 96),
    "torus:2x2x3": (3, 96),
    "hypercube:16": (4, 96),
}


def _network(spec: str) -> Network:
    return pod(spec) if spec.startswith("dgx") else family(spec, [1e-6], [1e9])


@settings(max_examples=drawn(8))
@given(st.sampled_from(sorted(_SPECS)), st.integers(0, 3))
def test_every_order_is_proven(spec, seed):
    network, draw = _network(spec), np.random.default_rng(seed)
    search, rounds = RoundSearch(network), list[int]()
    for sends in dimension_sends(network, draw):
        assert (np.diff(sends.round) >= 0).all()
        least = search.pruned(sends.link, sends.round, draw)
        assert least is not None
        rounds.append(int(sends.round[-1]) + 1)
        found = search.schedule(1024, least)
        assert check(found, replay(found)) == []
    diameters, orders = _SPECS[spec]
    assert len(rounds) == orders
    assert min(rounds) >= diameters and max(rounds) <= 2 * diameters


@pytest.mark.parametrize("spec", ["ring:6", "mesh:3x4", "switch:6"])
def test_one_dimension_and_none_have_no_orders(spec):
    assert not list(dimension_sends(_network(spec), np.random.default_rng(0)))


def test_chunks_in_several_orders_beat_one_exchange():
    """Two dimensions of a machine are fast and one is slow: the best single order leaves links idle."""
    network = family("rfs:2x3x2", [0.7e-6], [200e9, 100e9, 50e9])
    first, *others = [(collective("all_reduce", 12, chunks), (1 << 15) // chunks) for chunks in (12, 48, 192)]
    exchange = block_exchange.synthesize(network, *first)
    found = list(mixtures.mixed([exchange], others, replay(exchange).time_s))
    assert [check(one) for one in found] == [[]] * len(found)
    assert min(replay(one).time_s for one in found) <= 0.9 * replay(exchange).time_s
