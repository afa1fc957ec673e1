"""Recovery completes any causal moves, even none, along shortest paths."""

from __future__ import annotations

import pytest
from drawn_examples import drawn
from hypothesis import given, settings, strategies as st
from sample_networks import networks

from synth.check.schedule import check
from synth.collective import collective
from synth.errors import NotApplicableError
from synth.methods import greedy
from synth.network import Link, build
from synth.tacos_ilp.recovery import completed
from synth.tacos_ilp.time_expanded_milp import LinkMove
from synth.tacos_ilp.time_expanded_network import bundle


@settings(max_examples=drawn(60))
@given(
    network=networks(),
    kind=st.sampled_from(["all_gather", "broadcast", "scatter", "all_to_all", "all_to_next", "gather"]),
)
def test_from_nothing_all_arrives(network, kind):
    shape = collective(kind, network.ranks, 2, root=network.ranks - 1)
    assert check(completed(bundle(network), shape, 1000, [], "ilp", 0)) == []


@settings(max_examples=drawn(40))
@given(network=networks(), part=st.floats(0, 1), seed=st.integers(0, 3))
def test_cut_short_it_is_completed_and_keeps_what_was_there(network, part, seed):
    shape = collective("all_gather", network.ranks)
    whole = greedy.synthesize(network, shape, 1000, seed=seed)
    bundles = bundle(network)
    of_link = {int(link): at for at, rows in enumerate(bundles.links) for link in rows}
    kept = int(part * whole.sends)
    pairs = zip(whole.link[:kept].tolist(), whole.chunk[:kept].tolist(), strict=True)
    moves = [LinkMove(tick, of_link[link], chunk) for tick, (link, chunk) in enumerate(pairs)]
    schedule = completed(bundles, shape, 1000, moves, "ilp", 0)
    assert check(schedule) == []
    arrived = set(zip(schedule.chunk.tolist(), network.dst[schedule.link].tolist(), strict=True))
    assert {(move.chunk, int(network.dst[bundles.first[move.bundle]])) for move in moves} <= arrived


def test_a_rank_out_of_reach_is_named():
    network = build("one way", ["a", "b"], [Link(1, 0, 0, 1e-9)])
    with pytest.raises(NotApplicableError, match="rank 1 cannot be reached by chunk 0"):
        completed(bundle(network), collective("broadcast", 2), 1000, [], "ilp", 0)
