"""Bounds of point-to-point collectives: known optima, and the LP against brute force over cuts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from drawn_examples import drawn
from hypothesis import given, settings
from sample_networks import networks

from probes.base.columns import floats
from synth.bounds.general import point_bounds
from synth.bounds.multicommodity_lp import fits, least_time_s
from synth.collective import collective, of_blocks
from synth.network import Link, build
from synth.networks.families import family
from synth.rank_sets import of_sets
from synth.redistribution import MeshLayout, Moved, redistribution

BYTES = 1 << 20


def _largest(network, kind, *, fluid=True, chunks=1, root=0, members=()):
    shape = collective(kind, network.ranks, chunks, root, members)
    return max(point_bounds(network, shape, BYTES, fluid=fluid), key=lambda bound: bound.time_s)


@pytest.mark.parametrize(
    ("spec", "chunk_times"),
    [
        # Half of the pairs cross the bisection: (N/2)² chunks over its links one way.
        ("mesh:4x4", 64 / 4),
        ("ring:8", 16 / 2),
        ("mesh:6x6", 18 * 18 / 6),
        ("torus:4x4x4", 1024 / 32),
        ("hypercube:32", 16 * 16 / 16),
        ("switch:16", 15),
    ],
)
def test_all_to_all_is_bounded_by_the_bisection(spec, chunk_times):
    network = family(spec, [0.0], [50e9])
    bound = _largest(network, "all_to_all", chunks=network.ranks)
    assert bound.time_s == pytest.approx(chunk_times * BYTES / 50e9, rel=1e-5)


def test_hosts_behind_a_switch_bind_all_to_all():
    network = family("rfs:2x4x10", [5e-7], [200e9, 100e9, 50e9])
    bound = _largest(network, "all_to_all")
    assert bound.name == "traffic into the host of ranks 0–7"
    assert bound.time_s == pytest.approx(8 * 72 / 8 * BYTES / 50e9 + 5e-7)


@pytest.mark.parametrize(("kind", "chunks", "word"), [("scatter", 16, "egress"), ("gather", 1, "ingress")])
def test_the_root_binds_scatter_and_gather(kind, chunks, word):
    network = family("mesh:4x4", [0.0], [50e9])
    bound = _largest(network, kind, chunks=chunks, root=5)
    assert bound.name == f"{word} of rank 5"
    assert bound.time_s == pytest.approx(15 / 4 * BYTES / 50e9)


def test_a_far_chunk_is_bounded_by_its_way():
    network = family("ring:8", [1e-6], [50e9])
    bound = _largest(network, "all_to_all", fluid=False, members=(0, 4))
    assert bound.name == "latency"
    assert bound.time_s == pytest.approx(4 * (1e-6 + BYTES / 50e9))


def test_what_cannot_be_reached_takes_for_ever():
    network = build("cut", ["a", "b"], [Link(0, 1, 0, 1e-9)])
    assert _largest(network, "all_to_all").time_s == np.inf


@settings(max_examples=drawn(30))
@given(networks(most_ranks=5))
def test_the_flow_program_is_above_every_cut_and_every_price(network):
    network = replace(network, alpha_s=floats(network.alpha_s * 0))
    shape = collective("all_to_all", network.ranks, network.ranks)
    found = {bound.name.split()[0]: bound.time_s for bound in point_bounds(network, shape, BYTES, fluid=True)}
    flow_s = found.pop("flow")
    found.pop("latency")
    assert all(time_s <= flow_s * (1 + 1e-5) for time_s in found.values())
    # Prices close most of the gap, so that networks too large for the program have a good bound too.
    assert found["distance"] >= 0.75 * flow_s


def test_the_flow_program_finds_the_second_way():
    links = [Link(0, 1, 0, 1e-9), Link(0, 2, 0, 1e-9), Link(2, 1, 0, 1e-9)]
    network = build("two ways", ["a", "b", "c"], links)
    demands = np.zeros((3, 3))
    demands[0, 1] = 10
    held_s = network.hold_s(1000)
    assert fits(network, demands)
    assert least_time_s(network, demands, held_s, np.eye(3, dtype=bool)) == pytest.approx(5e-6, rel=1e-4)
    shared = build(
        "one port", ["a", "b", "c"], [*links[:1], Link(0, 2, 0, 1e-9, ("p",)), Link(2, 1, 0, 1e-9, ("p",))]
    )
    # Through the port a chunk passes twice: a third of the chunks go that way.
    assert least_time_s(shared, demands, held_s, np.eye(3, dtype=bool)) == pytest.approx(
        20 / 3 * 1e-6, rel=1e-4
    )


def test_data_of_several_holders_flows_from_any_of_them():
    """One of the two holders is close to the target, but both share the links beyond their own."""
    rates = {(0, 1): 2e9, (1, 2): 1e9, (0, 3): 1e9, (3, 2): 1e9, (2, 4): 4e9}
    links = [Link(*ends, 0.0, 1 / rate) for (a, b), rate in rates.items() for ends in ((a, b), (b, a))]
    network = build("two ways", ["h"] * 5, links)
    moved = of_blocks(
        5, [BYTES] * 6, of_sets([[0, 1]] * 6), of_sets([[4]] * 6), [False] * 6, chunk_bytes=BYTES
    )
    found = {bound.name: bound.time_s for bound in point_bounds(network, moved, BYTES, fluid=True)}
    assert found["flow"] == pytest.approx(6 / 2 * BYTES / 1e9, rel=1e-5)


def test_moved_tensors_on_few_links_are_bounded_by_their_flow():
    """No cut of this torus tells how long its links are busy."""
    network = family("torus:4x6", [1e-6], [25e9])
    source = MeshLayout((7, 11, 22, 18, 2, 9, 3, 21, 19, 14, 5, 0, 16, 12, 17), (3, 5), (None, 1))
    takers = (19, 6, 15, 13, 12, 10, 18, 14, 4, 16, 11, 0, 17, 8, 9, 1, 5, 2, 3)
    plan = redistribution(24, [Moved((1502, 3054), 2, source, MeshLayout(takers, (19, 1), (1, 0)), 8)])
    sides = of_sets(plan.sources), of_sets(plan.targets)
    moved = of_blocks(24, plan.size_bytes, *sides, [False] * len(plan.sources), chunk_bytes=BYTES)
    found = max(point_bounds(network, moved, BYTES, fluid=True), key=lambda bound: bound.time_s)
    assert found.name == "flow"


def test_ranks_that_need_different_data_share_the_links_into_them():
    """Each of two neighbours in a mesh alone has as many links as it needs blocks."""
    network = family("mesh:4x5", [0.0], [1e9])
    # No set of ranks without a block is the set of both.
    lacking = {6: (6, 10, 19), 10: (6, 10, 0)}
    holders = {taker: [rank for rank in range(20) if rank not in others] for taker, others in lacking.items()}
    sides = of_sets([holders[6], holders[10]] * 4), of_sets([[6], [10]] * 4)
    moved = of_blocks(20, [BYTES] * 8, *sides, [False] * 8, chunk_bytes=BYTES)
    found = max(point_bounds(network, moved, BYTES, fluid=True), key=lambda bound: bound.time_s)
    assert found.name == "traffic into 2 ranks"
    assert found.time_s == pytest.approx(8 / 6 * BYTES / 1e9)
