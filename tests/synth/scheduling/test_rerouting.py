"""Rerouting empties crowded links, and what it makes is proven."""

from __future__ import annotations

import numpy as np
import pytest
from drawn_examples import drawn
from hypothesis import HealthCheck, given, settings, strategies as st
from sample_networks import networks

from synth.check.schedule import check
from synth.collective import collective
from synth.errors import NotApplicableError
from synth.methods import greedy, ring
from synth.networks.families import family
from synth.scheduling.chunk_plans import plans_of
from synth.scheduling.mixtures import mixture
from synth.scheduling.packing import ChunkPacking
from synth.scheduling.rerouting import rerouted
from synth.simulation import replay

CHUNKS, CHUNK_BYTES = 32, 1000


def _made(network, kind, within_s, method=greedy, root=0):
    """Return the schedules without and with rerouting, of chunks that all have the plans of one schedule."""
    few = method.synthesize(network, collective(kind, network.ranks, root=root), CHUNK_BYTES)
    packing = ChunkPacking(network, list(plans_of(few, CHUNK_BYTES)), np.arange(network.links)[None])
    packed = packing.packed(CHUNKS, CHUNK_BYTES, within_s)
    assert packed is not None
    shape = collective(kind, network.ranks, CHUNKS, root=root)
    both = (packing, packed), rerouted(packing, packed, shape, CHUNK_BYTES, within_s, 0)
    return [mixture(*some, shape, CHUNK_BYTES, 0) for some in both]


@pytest.mark.parametrize("kind", ["all_reduce", "broadcast", "reduce"])
@pytest.mark.parametrize("spec", ["torus:3x4", "hypercube:8", "fully_connected:6"])
def test_trees_of_other_links_beat_one_tree_for_all_chunks(spec, kind):
    network = family(spec, [1e-6], [1e9])
    alone, better = _made(network, kind, 25e-6, root=1)
    assert check(better) == []
    assert replay(better).time_s < 0.8 * replay(alone).time_s


@settings(max_examples=drawn(40), suppress_health_check=[HealthCheck.too_slow])
@given(networks(), st.sampled_from(["all_reduce", "broadcast", "reduce"]), st.sampled_from([ring, greedy]))
def test_what_is_rerouted_is_proven(network, kind, method):
    try:
        _, better = _made(network, kind, 1e-3, method)
    except NotApplicableError:
        return
    assert check(better) == []


def test_a_time_too_short_for_a_tree_changes_nothing():
    network = family("ring:4", [1e-6], [1e9])
    few = greedy.synthesize(network, collective("broadcast", 4), 10)
    packing = ChunkPacking(network, list(plans_of(few, 10)), np.arange(network.links)[None])
    packed = packing.packed(4, 10, 10e-6)
    found = rerouted(packing, packed, collective("broadcast", 4, 4), 10, 1.5e-6, 0)
    assert found == (packing, packed)
