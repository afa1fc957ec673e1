"""Symmetric schedules, listed in full on the network itself, pass the plain judge."""

import pytest
from drawn_examples import chessboard

from synth import Request, synthesize
from synth.bounds.lower_bounds import bounds
from synth.check.schedule import check
from synth.collective import collective
from synth.errors import NotApplicableError
from synth.networks.dgx import pod
from synth.networks.families import family
from synth.scheduling import symmetric_search as symmetric
from synth.simulation.schedule import replay

NETWORKS = [
    family("ring:6", [1e-6], [5e10]),
    family("torus:4x3", [1e-6], [5e10]),
    family("rfs:2x3x4", [1e-6], [2e11, 1e11, 5e10]),
    family("dragonfly:5x4", [1e-6], [1e11, 5e10]),
    family("fat_tree:4x4/2", [1e-6], [5e10]),
    pod("dgx-a100:2"),
    pod("dgx-1:2"),
]


@pytest.mark.parametrize(
    ("kind", "share"), chessboard(["all_gather", "reduce_scatter", "all_reduce", "all_to_all"], [1, 3])
)
@pytest.mark.parametrize("network", NETWORKS, ids=[network.name for network in NETWORKS])
def test_listed_in_full_they_are_right_and_no_faster_than_the_bound(network, share, kind):
    shape = collective(kind, network.ranks, share if kind == "all_gather" else share * network.ranks)
    made = symmetric.synthesize(network, shape, 1 << 16)
    assert check(made) == []
    assert made.network is network
    assert replay(made).time_s >= bounds(network, shape, 1 << 16)[0].time_s * (1 - 1e-9)


def test_what_it_does_not_serve():
    torus = NETWORKS[1]
    with pytest.raises(NotApplicableError, match="broadcast"):
        symmetric.synthesize(torus, collective("broadcast", 12, 12), 1024)
    with pytest.raises(NotApplicableError, match="in 7 chunks"):
        symmetric.synthesize(torus, collective("all_reduce", 12, 7), 1024)
    with pytest.raises(NotApplicableError, match="no translation"):
        symmetric.synthesize(family("mesh:3x3", [1e-6], [5e10]), collective("all_gather", 9), 1024)


def test_auto_takes_it_where_it_is_best():
    network = family("fat_tree:8x8", [7e-7], [5e10])
    found = synthesize(Request(network, "all_gather", size_bytes=1 << 24))
    assert found.schedule.method == "symmetric"
    assert found.schedule.outcome.percent_of_optimal > 99
