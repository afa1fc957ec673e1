"""TACOS-Greedy as published: judged schedules, requests that choose links, and chunks that are replaced."""

import numpy as np
import pytest

from synth.check.schedule import check
from synth.collective import collective
from synth.errors import NotApplicableError
from synth.network import Link, build
from synth.networks.families import family
from synth.published.tacos_greedy import synthesize
from synth.simulation.schedule import replay

CHUNK_BYTES = 1 << 20
NETWORKS = {
    "mesh:2x3": [100e9],
    "ring:5": [100e9],
    "dragonfly:2x3": [400e9, 200e9],
    "fully_connected:4": [10e9],
}


@pytest.mark.parametrize("kind", ["all_gather", "reduce_scatter", "all_reduce", "broadcast", "reduce"])
@pytest.mark.parametrize("spec", NETWORKS)
def test_every_schedule_is_accepted_by_the_judge(spec, kind):
    network = family(spec, [0.5e-6], NETWORKS[spec], hold_alpha=True)
    made = synthesize(network, collective(kind, network.ranks, 2, root=1), CHUNK_BYTES, seed=5)
    assert check(made) == []
    assert made.method == "tacos_published"


def test_the_same_seed_gives_the_same_schedule():
    network = family("mesh:3x3", [0.5e-6], [100e9])
    first, again, other = (
        synthesize(network, collective("all_gather", 9, 2), CHUNK_BYTES, seed=seed, starts=1)
        for seed in (1, 1, 2)
    )
    assert first.link.tolist() == again.link.tolist()
    assert first.link.tolist() != other.link.tolist()


def test_more_starts_are_never_slower():
    network = family("mesh:3x3", [0.5e-6], [100e9])
    one, many = (
        replay(synthesize(network, collective("all_gather", 9, 2), CHUNK_BYTES, seed=1, starts=starts)).time_s
        for starts in (1, 6)
    )
    assert many <= one


def test_the_shorter_of_two_links_is_taken():
    links = [Link(0, 1, 1e-6, 4e-9), Link(0, 1, 1e-6, 1e-9)]
    network = build("pair", ("a", "b"), links, hold_alpha=True)
    for seed in range(5):
        made = synthesize(network, collective("broadcast", 2, 1), CHUNK_BYTES, seed=seed, starts=1)
        assert network.beta_s_per_byte[made.link].tolist() == [1e-9]


def test_an_outdated_transmission_carries_another_chunk():
    """Rank 2 takes a chunk over a slow link; by rank 1 it arrives sooner, and is replaced (Fig. 16c)."""
    links = [Link(0, 2, 0.0, 5e-9), Link(0, 1, 0.0, 1e-9), Link(1, 2, 0.0, 1e-9)]
    network = build("triangle", ("a", "b", "c"), links, hold_alpha=True)
    for seed in range(8):
        made = synthesize(network, collective("broadcast", 3, 2), CHUNK_BYTES, seed=seed, starts=1)
        assert check(made) == []
        into = np.flatnonzero(network.dst[made.link] == 2)
        # No chunk enters a rank twice, although its request was served twice.
        assert sorted(made.chunk[into].tolist()) == [0, 1]
        assert replay(made).time_s <= 5e-9 * CHUNK_BYTES * 1.0001


def test_ports_and_unreached_ranks_are_refused():
    with pytest.raises(NotApplicableError, match="unwound"):
        synthesize(family("switch:4", [1e-6], [1e9]), collective("all_gather", 4, 1), CHUNK_BYTES)
    with pytest.raises(NotApplicableError, match="cannot be reached"):
        synthesize(family("mesh:3x3", [1e-6], [1e9]), collective("scatter", 9, 1), CHUNK_BYTES)
