"""The all_reduce of MPI libraries on networks whose times can be worked out by hand."""

import math

import pytest
from accepted_clusters import ALPHA_S, BETA, cluster_profile

from exec.acceptance import costs, sound_network
from exec.acceptance.library_time import library_models, rabenseifner_s
from probes.localization import locate
from synth.networks import from_profile

SIZE = 1 << 20
OPENMPI = "Open MPI v5.0.11"


def network(hosts, **parts):
    return from_profile(cluster_profile(hosts, **parts))


def test_four_ranks_exchange_one_and_a_half_buffers_each_way():
    one_way_s = 1.5 * SIZE * BETA + 4 * ALPHA_S
    assert rabenseifner_s(network(4), SIZE, halves=True, in_turn=False) == pytest.approx(one_way_s)
    assert rabenseifner_s(network(4), SIZE, halves=True, in_turn=True) == pytest.approx(2 * one_way_s)


@pytest.mark.parametrize("halves", [True, False])
def test_a_fifth_rank_hands_over_its_data_and_gets_the_result(halves):
    """Open MPI exchanges halves and sends half a sum, MPICH sends all; both then send the result."""
    five_s, four_s = (rabenseifner_s(network(n), SIZE, halves=halves, in_turn=False) for n in (5, 4))
    assert five_s - four_s == pytest.approx(2 * SIZE * BETA, rel=0.01)


def test_a_slow_sender_slows_one_of_two_ways():
    slow = network(4, beta=lambda src, dst: 3.0 if src == "gpu2" else 1.0)
    seconds = 1.5 * SIZE * BETA
    assert rabenseifner_s(slow, SIZE, halves=True, in_turn=False) == pytest.approx(3 * seconds, rel=0.01)
    assert rabenseifner_s(slow, SIZE, halves=True, in_turn=True) == pytest.approx(4 * seconds, rel=0.01)


def test_a_missing_link_makes_it_impossible():
    from synth.networks import Failures, without

    assert math.isinf(
        rabenseifner_s(without(network(4), Failures(links=((0, 1),))), SIZE, halves=True, in_turn=True)
    )


@pytest.mark.parametrize(
    ("library", "kind", "size_bytes", "ranks", "known"),
    [
        (OPENMPI, "all_reduce", SIZE, 4, True),
        ("MPICH 4.3.2", "all_reduce", 8 << 10, 64, True),
        (OPENMPI, "all_reduce", 4 << 10, 4, False),
        (OPENMPI, "all_reduce", 64 << 10, 3, False),
        (OPENMPI, "all_reduce", 256 << 10, 2, True),
        (OPENMPI, "all_to_all", SIZE, 4, False),
        ("another MPI", "all_reduce", SIZE, 4, False),
        (OPENMPI, "all_reduce", SIZE, 1, False),
    ],
)
def test_the_choice_of_a_library_is_known(library, kind, size_bytes, ranks, known):
    assert bool(library_models(library, kind, size_bytes, ranks)) == known


@pytest.mark.parametrize(("measured", "repaired"), [(4.2, 2.1), (2.9, 2.9 / 3)])
def test_the_measured_time_shows_whether_both_ways_run_at_once(measured, repaired):
    profile = cluster_profile(4, beta=lambda src, dst: 3.0 if src == "gpu2" else 1.0)
    measured_network, sound = from_profile(profile), sound_network(profile)
    seconds = 1.5 * SIZE * BETA
    [cost] = costs(
        measured_network,
        sound,
        locate(profile),
        "all_reduce",
        SIZE,
        measured_s=measured * seconds,
        library=OPENMPI,
    )
    assert (cost.library, cost.algorithm, cost.measured) == (OPENMPI, "rabenseifner", True)
    assert cost.with_s == pytest.approx(measured * seconds)
    assert cost.without_s == pytest.approx(repaired * seconds, rel=0.01)
