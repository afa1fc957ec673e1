"""The bound by early sends: equal to a sum by hand, and never above what a schedule reaches."""

import pytest
from hypothesis import given, strategies as st
from sample_networks import networks

from synth.bounds.lower_bounds import bounds
from synth.collective import collective
from synth.methods import greedy, paths
from synth.network import Link, build
from synth.simulation.schedule import replay


def uneven_switch(rates, alpha_s):
    """Every rank has a port of its own rate each way; a send holds both at the lower rate."""
    ranks = range(len(rates))
    links = [
        Link(a, b, alpha_s, 1.0 / min(rates[a], rates[b]), (f"out {a}", f"in {b}"))
        for a in ranks
        for b in ranks
        if a != b
    ]
    return build("switch", [f"h{rank}" for rank in ranks], links)


def early(network, kind, chunks, chunk_bytes, *, fluid=True):
    found = bounds(network, collective(kind, network.ranks, chunks), chunk_bytes, fluid=fluid)
    [bound] = [bound for bound in found if bound.name == "early sends"]
    return bound


@pytest.mark.parametrize("kind", ["broadcast", "reduce"])
def test_slow_ranks_share_what_the_root_sends_at_first(kind):
    # For 10 s only the root sends to the two slow ranks, over its port at a rate of 1/4; then all others do.
    network = uneven_switch([1.0, 0.25, 0.25, 1.0, 1.0, 1.0], 10.0)
    found = early(network, kind, 1, 100)
    assert found.time_s == pytest.approx(10 + (200 - 2.5) / 0.5 + 10)
    others = bounds(network, collective(kind, 6, 1), 100, fluid=True)
    assert found == others[0]
    assert found.time_s > 1.005 * others[1].time_s
    assert found.detail.startswith("at most 2.5e-10 GB/s into 2 ranks")


def test_whole_chunks_are_passed_on_later():
    network = uneven_switch([1.0, 0.25, 0.25, 1.0, 1.0, 1.0], 10.0)
    # The nearest rank has a whole chunk after 30 s.
    assert early(network, "broadcast", 5, 20, fluid=False).time_s == pytest.approx(
        30 + (200 - 7.5) / 0.5 + 10
    )


@pytest.mark.parametrize("fluid", [True, False])
def test_ranks_count_from_the_time_at_which_they_have_data_however_many_times_there_are(fluid):
    # Ranks 1 to 12 are at as many distances from the root. Only rank 11 sends to rank 13 at a rate worth it,
    # and rank 12 is far.
    far_s = [*range(1, 12), 1000]
    fed = [Link(0, rank, float(alpha_s), 0.001) for rank, alpha_s in enumerate(far_s, 1)]
    feeds = [Link(rank, 13, 1.0, 1.0 if rank == 11 else 1000.0) for rank in range(1, 13)]
    network = build("helpers", [f"h{rank}" for rank in range(14)], [*fed, *feeds])
    made = paths.synthesize(network, collective("broadcast", 14, 5), 100)
    assert replay(made).time_s < 1010
    assert early(network, "broadcast", 5, 100, fluid=fluid).time_s <= replay(made).time_s


@given(
    st.lists(st.sampled_from([1.0, 0.5, 0.25, 0.1]), min_size=3, max_size=8),
    st.floats(0.0, 20.0),
    st.integers(1, 8),
    st.booleans(),
)
def test_no_schedule_behind_an_uneven_switch_is_faster(rates, alpha_s, chunks, fluid):
    none_is_faster(uneven_switch(rates, alpha_s), chunks, fluid=fluid)


@given(networks(14), st.integers(1, 6), st.booleans())
def test_no_schedule_is_faster(network, chunks, fluid):
    none_is_faster(network, chunks, fluid=fluid)


def none_is_faster(network, chunks, *, fluid):
    shape = collective("broadcast", network.ranks, chunks)
    found = [bound for bound in bounds(network, shape, 10, fluid=fluid) if bound.name == "early sends"]
    for method in (greedy, paths):
        made = method.synthesize(network, shape, 10)
        assert all(bound.time_s <= replay(made).time_s * (1 + 1e-9) for bound in found)
