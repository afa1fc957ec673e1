"""Subsets of the ranks, failed ranks and several collectives at once, by every method, on any network."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from drawn_examples import drawn
from hypothesis import HealthCheck, given, settings, strategies as st
from sample_networks import named, networks

from probes.base.errors import UsageError
from synth import Request, synthesize
from synth.bounds.lower_bounds import bounds
from synth.check.schedule import check
from synth.collective import KINDS, collective, custom, several
from synth.errors import NotApplicableError
from synth.methods import direct, greedy, paths, ring
from synth.networks.failures import Failures, without
from synth.networks.families import family
from synth.networks.subnetwork import named_back, reachable
from synth.portfolio.attempts import METHODS
from synth.portfolio.rank_subsets import serve
from synth.portfolio.request import CollectiveRequest, divided
from synth.rank_sets import of_sets
from synth.scheduling import pruned
from synth.simulation.schedule import replay

OTHERS = (greedy.synthesize, paths.synthesize)
CHEAP = [name for name in METHODS if name not in ("ilp", "forest", "adapcc_published")]


def serve_by(name, network, shape, chunk_bytes=1 << 16):
    method = METHODS[name]
    return serve(method.synthesize, network, shape, chunk_bytes, relays=method.relays, others=OTHERS, seed=1)


def judge(schedule):
    timing = replay(schedule)
    assert check(schedule, timing) == []
    for fluid in (False, True):
        for bound in bounds(schedule.network, schedule.collective, schedule.chunk_bytes, fluid=fluid):
            assert bound.time_s <= timing.time_s * (1 + 1e-9), (schedule.method, bound)


@st.composite
def subsets(draw, network, kind):
    least = 2 if kind == "all_to_next" else 1
    members = draw(st.sets(st.integers(0, network.ranks - 1), min_size=least))
    root = draw(st.sampled_from(sorted(members)))
    return collective(kind, network.ranks, draw(st.integers(1, 4)), root, sorted(members))


@st.composite
def customs(draw, ranks):
    some = st.frozensets(st.integers(0, ranks - 1), min_size=1)
    chunks = draw(st.lists(st.tuples(some, some, st.booleans()), min_size=1, max_size=8))
    sources, targets, reduced = zip(*chunks, strict=True)
    return custom(ranks, of_sets(sources), of_sets(targets), list(reduced))


@settings(max_examples=drawn(50), suppress_health_check=[HealthCheck.too_slow])
@given(network=networks(), kind=st.sampled_from(KINDS), data=st.data())
def test_paths_serves_every_subset_of_every_network(network, kind, data):
    shape = data.draw(subsets(network, kind))
    judge(serve_by("paths", network, shape))


@settings(max_examples=drawn(50), suppress_health_check=[HealthCheck.too_slow])
@given(network=networks(), kind=st.sampled_from(KINDS), method=st.sampled_from(CHEAP), data=st.data())
def test_what_a_method_makes_of_a_subset_is_right(network, kind, method, data):
    shape = data.draw(subsets(network, kind))
    try:
        schedule = serve_by(method, network, shape)
    except NotApplicableError:
        return
    judge(schedule)


@settings(max_examples=drawn(50), suppress_health_check=[HealthCheck.too_slow])
@given(network=networks(), method=st.sampled_from(["paths", "greedy", "ring", "direct"]), data=st.data())
def test_custom_collectives(network, method, data):
    shape = data.draw(customs(network.ranks))
    try:
        schedule = serve_by(method, network, shape)
    except NotApplicableError:
        assert method != "paths"
        return
    judge(schedule)


@settings(max_examples=drawn(60), suppress_health_check=[HealthCheck.too_slow])
@given(network=networks(), method=st.sampled_from(["paths", "greedy", "ring", "direct"]), data=st.data())
def test_several_at_once(network, method, data):
    kinds = data.draw(st.lists(st.sampled_from(KINDS), min_size=2, max_size=3))
    parts = [data.draw(subsets(network, kind)) for kind in kinds]
    if data.draw(st.booleans()):
        parts.append(data.draw(customs(network.ranks)))
    try:
        schedule = serve_by(method, network, several(parts))
    except NotApplicableError:
        return
    judge(schedule)


@pytest.mark.parametrize("method", ["ring", "direct", "greedy", "paths", "bidirectional", "forest"])
def test_failed_ranks_keep_their_numbers_and_take_no_part(method):
    whole = family("mesh:4x4", [5e-7], [50e9]) if method != "direct" else family("switch:16", [5e-7], [50e9])
    failures = Failures(ranks=(5, 10), links=((0, 1),))
    network = without(whole, failures)
    members = tuple(rank for rank in range(16) if rank not in failures.ranks)
    assert network.ranks == 16
    assert len(members) == 14
    shape = collective("all_gather", 16, 2, members[0], members)
    try:
        schedule = serve_by(method, network, shape)
    except NotApplicableError:
        assert method in ("ring", "bidirectional", "direct")
        return
    judge(schedule)
    used = set(network.src[schedule.link].tolist()) | set(network.dst[schedule.link].tolist())
    assert not used & {5, 10}


def test_without_names_what_was_not_there():
    network = named("mesh")
    for failures, words in (
        (Failures(ranks=(12,)), "rank:12"),
        (Failures(links=((0, 5),)), "no link 0 → 5"),
        (Failures(ranks=tuple(range(12))), "no rank"),
    ):
        with pytest.raises(UsageError, match=words):
            without(network, failures)


def test_a_failed_link_takes_its_parallel_ones_along_and_leaves_ports_in_place():
    network = family("switch:4", [0.0], [1e9])
    left = without(network, Failures(links=((1, 2),)))
    assert left.links == network.links - 1
    assert left.ports == network.ports
    assert left.problems() == []
    for link in range(left.links):
        names = [left.ports[port] for port in left.ports_of(link)]
        assert names == [f"rank {left.src[link]} egress 0", f"rank {left.dst[link]} ingress 0"]


def test_others_relay_where_members_have_no_links_of_their_own():
    network = named("line of 4")
    shape = collective("all_reduce", 4, 2, 0, [0, 3])
    judge(serve_by("paths", network, shape))
    with pytest.raises(NotApplicableError):
        serve_by("ring", network, shape)


def test_ranks_that_lead_nowhere_are_no_relays():
    network = without(named("line of 4"), Failures(ranks=(3,)))
    assert reachable(network, collective("broadcast", 4, 1, 0, [0, 1])).tolist() == [0, 1, 2]
    assert reachable(network, collective("broadcast", 4, 1, 0, [0, 1, 3])).tolist() == [0, 1, 2, 3]


def test_bounds_name_ranks_by_their_own_numbers():
    assert named_back("ingress of rank 1", np.array([3, 7, 9])) == "ingress of rank 7"
    assert named_back("the host of ranks 0–2", np.array([3, 7, 9])) == "the host of ranks 3, 7, 9"
    assert named_back("the host of ranks 0–2", np.array([5, 3, 4])) == "the host of ranks 3–5"
    assert named_back("out of ranks 0, 2", np.array([9, 7, 3])) == "out of ranks 3, 9"
    assert named_back("ranks 0, 1, … (9)", np.arange(9)[::-1]) == "ranks 8, 7, … (9)"
    assert named_back("from rank 0 to rank 2", np.array([9, 7, 3])) == "from rank 9 to rank 3"
    assert named_back("traffic into 2 ranks", np.array([3, 7, 9])) == "traffic into 2 ranks"
    network = without(named("mesh"), Failures(ranks=(0,)))
    shape = collective("all_gather", 12, 1, 1, range(1, 12))
    names = [bound.name for bound in bounds(network, shape, 1000)]
    assert not any(name.endswith("rank 0") for name in names)


def test_pruning_drops_what_nobody_wants_and_nothing_else():
    network = named("mesh")
    everywhere = greedy.synthesize(network, collective("broadcast", 12, 2), 1000)
    wanted = collective("broadcast", 12, 2, 0, [0, 11])
    from dataclasses import replace

    left = pruned(replace(everywhere, collective=wanted))
    assert check(left) == []
    assert left.sends < everywhere.sends
    assert len(pruned(everywhere).chunk) == everywhere.sends


def test_methods_that_serve_no_part_say_so():
    both = several([collective("scatter", 5, 5), collective("all_to_all", 5, 5)])
    with pytest.raises(NotApplicableError, match="serves none"):
        serve(ring.synthesize, named("ring of 5"), both, 100, others=OTHERS, seed=0)
    judge(serve(direct.synthesize, named("fully connected"), both, 100, others=OTHERS, seed=0))


def test_collectives_at_once_are_made_of_about_the_same_size():
    collectives = (
        CollectiveRequest("broadcast", 0, (0, 1, 2)),
        CollectiveRequest("all_gather", 3, (3, 4)),
        CollectiveRequest("all_to_all", 5, (5, 6, 7)),
    )
    shape = divided(collectives, 9, 2)
    sizes = [part.total_bytes(1) for part in shape.parts]
    assert max(sizes) == min(sizes) == shape.total_bytes(1)


def test_tenants_of_a_mesh_share_it():
    network = family("mesh:4x4", [5e-7], [100e9])
    collectives = (
        CollectiveRequest("broadcast"),
        CollectiveRequest("reduce", 15),
        CollectiveRequest("all_gather"),
    )
    found = synthesize(Request(network, "broadcast", chunk_bytes=1 << 20, chunks=1, collectives=collectives))
    assert check(found.schedule) == []
    assert found.schedule.collective.label == "broadcast + reduce + all_gather"
    assert found.schedule.outcome.percent_of_optimal > 85


def test_a_custom_collective_of_more_chunks_than_bytes_is_refused():
    sets = custom(2, of_sets([[0]] * 100), of_sets([[1]] * 100), [False] * 100)
    asked = Request(
        family("ring:2", [1e9], [1e-6]),
        "custom",
        size_bytes=99,
        collectives=(CollectiveRequest("custom", sets=sets),),
    )
    with pytest.raises(UsageError, match="expected at least 100 bytes"):
        synthesize(asked)
    assert synthesize(replace(asked, size_bytes=100)).schedule.chunk_bytes == 1
