"""The root sends each chunk once, all ranks get it over two links, and a switch carries both at once."""

import numpy as np
import pytest
from drawn_examples import drawn
from hypothesis import given, settings, strategies as st

from synth.bounds.lower_bounds import bounds
from synth.check.schedule import check
from synth.collective import collective
from synth.errors import NotApplicableError
from synth.methods import scatter_allgather
from synth.networks.families import family
from synth.portfolio.planning import planned
from synth.portfolio.request import Request
from synth.simulation.schedule import replay

ALPHA_S, RATE = 0.7e-6, 50e9


def bound_s(schedule):
    found = bounds(schedule.network, schedule.collective, schedule.chunk_bytes)
    return max(bound.time_s for bound in found)


@given(st.integers(3, 9), st.integers(1, 40), st.sampled_from(["broadcast", "reduce"]), st.data())
@settings(deadline=None, max_examples=drawn(30))
def test_the_root_sends_or_receives_each_chunk_once(ranks, chunks, kind, data):
    network = family(f"switch:{ranks}", [ALPHA_S], [RATE])
    shape = collective(kind, ranks, chunks, root=data.draw(st.integers(0, ranks - 1)))
    schedule = scatter_allgather.synthesize(network, shape, 1024)
    assert check(schedule) == []
    assert schedule.sends == chunks * (ranks - 1)
    ends = network.src if kind == "broadcast" else network.dst
    at_root = schedule.chunk[ends[schedule.link] == shape.root]
    assert sorted(at_root.tolist()) == list(range(chunks))


def test_faster_ranks_relay_more_chunks():
    network = family("switch:4", [ALPHA_S], [RATE])
    slow = network.src == 2
    network = network.slowed(np.concatenate((slow, np.zeros(len(network.ports)))))
    schedule = scatter_allgather.synthesize(network, collective("broadcast", 4, 20), 1024)
    relays = np.bincount(network.dst[schedule.link[network.src[schedule.link] == 0]], minlength=4)
    assert relays.tolist() == [0, 8, 4, 8]


@pytest.mark.parametrize("kind", ["broadcast", "reduce"])
def test_on_a_switch_it_comes_near_to_the_bound_at_sizes_where_trees_do_not(kind):
    network = family("switch:8", [ALPHA_S], [RATE])
    found = planned(Request(network, kind, size_bytes=64 << 10, method="scatter_allgather")).listed
    assert replay(found).time_s <= 1.07 * bound_s(found)


def test_other_collectives_and_missing_links_are_refused():
    switch, ring = (family(name, [ALPHA_S], [RATE]) for name in ("switch:4", "ring:5"))
    for network, kind in ((switch, "all_gather"), (ring, "broadcast")):
        with pytest.raises(NotApplicableError):
            scatter_allgather.synthesize(network, collective(kind, network.ranks, 8), 1024)
    assert not scatter_allgather.suits(ring, collective("broadcast", 5, 8))
