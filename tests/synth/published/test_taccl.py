"""TACCL's steps: routes along shortest ways whose loads are spread, then an order that the judge accepts."""

import numpy as np
import pytest

from synth.check.schedule import check
from synth.collective import collective
from synth.errors import NotApplicableError
from synth.networks.families import family
from synth.networks.path_search import distances_s
from synth.published import taccl
from synth.simulation.schedule import replay

CHUNK_BYTES = 1 << 20


def mesh(spec="mesh:2x3"):
    return family(spec, [0.5e-6], [100e9])


@pytest.mark.parametrize(
    "kind", ["all_gather", "reduce_scatter", "all_reduce", "broadcast", "reduce", "all_to_all", "gather"]
)
def test_every_collective_is_served_and_proven(kind):
    network = mesh()
    made = taccl.synthesize(network, collective(kind, 6, 1, root=1), CHUNK_BYTES, time_limit_s=600)
    assert check(made) == []
    assert made.method == "taccl"


def test_chunks_take_shortest_ways_only():
    network = mesh()
    made = taccl.synthesize(network, collective("all_gather", 6, 1), CHUNK_BYTES, time_limit_s=600)
    travel_s = network.travel_s(CHUNK_BYTES)
    every = distances_s(network, travel_s, np.arange(6))
    for chunk in range(6):
        near, come_s = every[chunk], {chunk: 0.0}
        links = [link for one, link in zip(made.chunk, made.link, strict=True) if one == chunk]
        for link in links:
            come_s[int(network.dst[link])] = come_s[int(network.src[link])] + travel_s[link]
        assert come_s == pytest.approx(dict(enumerate(near)))


def test_loads_of_equal_ways_are_spread():
    network = mesh("mesh:2x2")
    made = taccl.synthesize(network, collective("all_to_all", 4, 1), CHUNK_BYTES, time_limit_s=600)
    # Four chunks cross the square, one on each of the links that all directions have equally.
    assert np.bincount(made.link, minlength=network.links).max() == 2
    assert replay(made).time_s < 3.1 * network.travel_s(CHUNK_BYTES).max()


def test_what_it_cannot_route_is_refused(monkeypatch):
    monkeypatch.setattr(taccl, "_MOST_CHOICES", 3)
    with pytest.raises(NotApplicableError, match="choices"):
        taccl.synthesize(mesh(), collective("all_gather", 6, 1), CHUNK_BYTES)
