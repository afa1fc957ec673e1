from __future__ import annotations

from dataclasses import replace

import pytest

from probes.base.errors import UsageError
from synth import Request, synthesize
from synth.check.schedule import check
from synth.methods import forest
from synth.networks.dgx import pod
from synth.networks.families import family
from synth.portfolio.attempts import plans
from synth.portfolio.request import CollectiveRequest


@pytest.mark.parametrize(
    ("spec", "bandwidth", "least"),
    [
        ("mesh:3x3", [50e9], 95),
        pytest.param("mesh:3x11", [50e9], 94, marks=pytest.mark.long),
        pytest.param("torus:6x6", [50e9], 95, marks=pytest.mark.long),
        pytest.param("hypercube:32", [50e9], 95, marks=pytest.mark.long),
        ("switch:8", [50e9], 97),
        ("ring:8", [50e9], 98),
        pytest.param("rfs:2x4x4", [200e9, 100e9, 50e9], 93, marks=pytest.mark.long),
    ],
)
def test_a_large_all_reduce_is_near_its_own_bound(spec, bandwidth, least):
    network = family(spec, [5e-7], bandwidth)
    found = synthesize(Request(network, "all_reduce", size_bytes=256 << 20, method="forest")).schedule
    assert check(found) == []
    assert found.outcome.percent_of_optimal >= least


@pytest.mark.parametrize(
    ("spec", "bandwidth", "least", "kind"),
    [
        pytest.param("mesh:7x7", [50e9], 97, "all_gather", marks=pytest.mark.long),
        pytest.param("torus:4x4x3", [50e9], 95, "reduce_scatter", marks=pytest.mark.long),
        ("rfs:2x4x6", [200e9, 100e9, 50e9], 94, "reduce_scatter"),
    ],
)
def test_gathering_of_many_ranks_is_near_its_bound(spec, bandwidth, least, kind):
    network = family(spec, [5e-7], bandwidth)
    found = synthesize(Request(network, kind, size_bytes=256 << 20, method="forest")).schedule
    assert check(found) == []
    assert found.outcome.percent_of_optimal >= least


def test_trees_on_shared_ports_are_counted_by_the_solver_that_was_chosen():
    request = Request(
        pod("dgx-a100:2"), "all_gather", chunk_bytes=1 << 20, chunks=13, method="forest", solver="magic"
    )
    (plan,) = plans(request)
    with pytest.raises(UsageError, match="magic: unknown solver"):
        plan.run(request, 0.0, 1)
    found = plan.run(replace(request, solver="cbc"), 0.0, 1)
    assert check(found) == []


def test_chunks_are_shared_out_in_proportion():
    network = family("rfs:2x2x3", [0.0], [200e9, 100e9, 50e9])
    (packing,) = forest._packings(network, 0)
    shares = packing.share
    tree_of = forest._interleaved(shares, 1000)
    for tree, share in enumerate(shares):
        assert abs((tree_of == tree).sum() - 1000 * share) < 1
        assert abs((tree_of[:500] == tree).sum() - 500 * share) <= 1


def test_trees_hang_from_their_centre():
    network = family("mesh:5", [0.0], [1e9])
    (packing,) = forest._packings(network, 0)
    tree = packing.trees[0]
    assert sorted(tree.up_depth) == sorted(tree.down_depth) == [1, 1, 2, 2]
    assert sorted(network.src[tree.up]) == [0, 1, 3, 4]
    assert (network.dst[tree.down] == network.src[tree.up]).all()


def test_ranks_that_their_links_do_not_join_are_served_by_trees_of_all_ranks():
    members = (0, 2, 3, 4)
    asked = (CollectiveRequest("all_reduce", members=members),)
    request = Request(family("mesh:2x3", [5e-7], [50e9]), "all_reduce", size_bytes=1 << 16, collectives=asked)
    for method in ("auto", "forest"):
        assert check(synthesize(replace(request, method=method)).schedule) == []
