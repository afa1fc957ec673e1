"""Trivance is right on rings and tori of any size, in ⌈log₃ n⌉ steps where messages pass several wires."""

from __future__ import annotations

import math

import numpy as np
import pytest
from drawn_examples import drawn
from hypothesis import HealthCheck, example, given, settings, strategies as st

from synth.check.program import examine
from synth.check.schedule import check
from synth.collective import collective
from synth.compiler.lowering import lower
from synth.errors import NotApplicableError
from synth.methods import bidirectional, trivance
from synth.network import Link, build
from synth.networks.families import family
from synth.simulation.schedule import replay

ALPHA, BETA = 1e-6, 1e-9
SERVED = ("all_gather", "reduce_scatter", "all_reduce")


def wired_ring(ranks, alpha_s=ALPHA, beta=BETA):
    """Return a ring of wires in which a message of any distance holds all wires that it passes."""
    links = [
        Link(rank, (rank + way * hops) % ranks, alpha_s, beta, tuple(wires))
        for rank in range(ranks)
        for way in (1, -1)
        for hops in range(1, ranks // 2 + 1)
        for wires in [[f"{(rank + way * at) % ranks} {way}" for at in range(hops)]]
    ]
    return build(f"wires of {ranks}", [f"n{rank}" for rank in range(ranks)], links)


def made(network, kind, chunks, chunk_bytes=1000):
    schedule = trivance.synthesize(network, collective(kind, network.ranks, chunks), chunk_bytes)
    assert check(schedule) == []
    return schedule


@settings(max_examples=drawn(80), suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.integers(2, 6), min_size=1, max_size=3).filter(lambda sizes: math.prod(sizes) <= 40),
    st.sampled_from(SERVED),
    st.integers(1, 7),
    st.sampled_from([1, 1000, 1 << 20]),
)
def test_tori_of_neighbours_are_proven(sizes, kind, chunks, chunk_bytes):
    network = family(f"torus:{'x'.join(map(str, sizes))}", [ALPHA], [1 / BETA])
    assert made(network, kind, chunks, chunk_bytes).method == "trivance"


@settings(max_examples=drawn(60), suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(2, 30), st.sampled_from(SERVED), st.integers(1, 4), st.sampled_from([1, 1 << 20]))
def test_rings_of_wires_are_proven(ranks, kind, chunks, chunk_bytes):
    made(wired_ring(ranks), kind, chunks, chunk_bytes)


@settings(max_examples=drawn(20), suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(2, 12), st.sampled_from([1, 30]))
@example(6, 1)
def test_programs_are_proven(ranks, chunks):
    found = examine(lower(made(wired_ring(ranks), "all_reduce", chunks)))
    assert found.findings == ()


@pytest.mark.parametrize("ranks", [*range(2, 31), 80, 81])
def test_rings_of_any_size_take_log3_steps_for_each_phase(ranks):
    network = wired_ring(ranks, beta=1e-18)
    steps = next(step for step in range(9) if 3**step >= ranks)
    whole_s = replay(made(network, "all_reduce", 1)).time_s
    # Where the last step brings little more, that is sent before, from the parts that ranks have by then.
    least = steps if ranks in (3, 9, 27, 81) else steps - 1
    assert least * ALPHA * (1 - 1e-6) <= whole_s <= steps * ALPHA * (1 + 1e-6)
    if ranks < 30:
        for kind in ("all_gather", "reduce_scatter"):
            assert replay(made(network, kind, 1)).time_s <= steps * ALPHA * (1 + 1e-6)


@pytest.mark.parametrize("ranks", [3, 9, 27])
def test_in_a_power_of_three_each_step_is_one_message_each_way(ranks):
    network = wired_ring(ranks)
    sends = made(network, "all_reduce", 1)
    apart = (network.dst - network.src)[sends.link] % ranks
    distances, counts = np.unique(np.minimum(apart, ranks - apart), return_counts=True)
    steps = round(math.log(ranks, 3))
    assert distances.tolist() == [3**step for step in range(steps)]
    assert counts.tolist() == [2 * ranks] * steps


@pytest.mark.parametrize("spec", ["ring:9", "ring:8", "torus:3x3", "torus:5x5", "torus:4x4x4"])
def test_every_rank_receives_each_chunk_once_and_links_share_the_load(spec):
    network = family(spec, [0.0], [1 / BETA])
    axes = spec.count("x") + 1
    schedule = made(network, "all_gather", 2 * axes)
    assert schedule.sends == network.ranks * (network.ranks - 1) * 2 * axes
    load = np.bincount(schedule.link, minlength=network.links)
    assert load.max() <= 1.15 * load.mean()


@pytest.mark.parametrize("ranks", [5, 8, 9])
def test_between_neighbours_it_is_no_slower_than_the_ring_both_ways(ranks):
    network = family(f"ring:{ranks}", [ALPHA], [1 / BETA])
    shape = collective("all_gather", ranks, 2)
    other = bidirectional.synthesize(network, shape, 100_000)
    assert replay(made(network, "all_gather", 2, 100_000)).time_s <= replay(other).time_s * 1.1


@pytest.mark.parametrize("spec", ["mesh:3x4", "dragonfly:3x3"])
def test_networks_that_are_no_tori_are_refused(spec):
    network = family(spec, [ALPHA], [1 / BETA])
    with pytest.raises(NotApplicableError, match="rings and tori"):
        trivance.synthesize(network, collective("all_gather", network.ranks), 1000)


def test_other_collectives_are_refused():
    network = family("ring:4", [ALPHA], [1 / BETA])
    with pytest.raises(NotApplicableError, match="broadcast"):
        trivance.synthesize(network, collective("broadcast", 4), 1000)
