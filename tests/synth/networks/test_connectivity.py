import itertools

import networkx
import numpy as np
import pytest
from drawn_examples import drawn
from hypothesis import given, settings, strategies as st

from probes.base.errors import UsageError
from synth import Request, synthesize
from synth.bounds.lower_bounds import bounds
from synth.check.schedule import check
from synth.collective import KINDS, collective
from synth.network import Link, build
from synth.networks.connectivity import require_ways
from synth.networks.failures import Failures, without
from synth.networks.families import family
from synth.portfolio.request import CollectiveRequest


def needed(kind, members, root):
    """The ordered pairs that need a way, from what the collective means."""
    pairs = [(a, b) for a in members for b in members if a != b]
    if kind in ("broadcast", "scatter"):
        return [(a, b) for a, b in pairs if a == root]
    if kind in ("reduce", "gather"):
        return [(a, b) for a, b in pairs if b == root]
    if kind == "all_to_next":
        return list(itertools.pairwise(members))
    return pairs


@st.composite
def graphs(draw):
    ranks = draw(st.integers(2, 6))
    pairs = [(a, b) for a in range(ranks) for b in range(ranks) if a != b]
    links = draw(st.lists(st.sampled_from(pairs), min_size=1, max_size=14, unique=True))
    members = draw(st.lists(st.integers(0, ranks - 1), min_size=2, max_size=ranks, unique=True).map(sorted))
    return ranks, links, members, draw(st.sampled_from(KINDS)), draw(st.sampled_from(members))


@given(graphs())
@settings(max_examples=drawn(300))
def test_a_way_is_missing_exactly_where_networkx_finds_none(found):
    ranks, links, members, kind, root = found
    network = build("n", ["h"] * ranks, [Link(a, b, 1e-6, 1e-9) for a, b in links])
    graph = networkx.DiGraph(links)
    graph.add_nodes_from(range(ranks))
    possible = all(networkx.has_path(graph, a, b) for a, b in needed(kind, members, root))
    chosen = tuple(members) if len(members) < ranks else ()
    asked = collective(kind, ranks, len(members), root, chosen)
    if possible:
        require_ways(network, asked)
        return
    with pytest.raises(UsageError, match=r"needs a path from rank \d to rank \d.*parts"):
        require_ways(network, asked)
    assert bounds(network, asked, 1 << 20)[0].time_s == np.inf


CUT = {
    "ranks apart": (Failures((1, 3)), (0, 2), "rank 0; rank 2"),
    "halves": (Failures((), ((0, 1), (1, 0), (2, 3), (3, 2))), (), "ranks 0,3; ranks 1-2"),
    "a corner": (Failures((), ((0, 1), (1, 0), (0, 3), (3, 0))), (), "rank 0; ranks 1-3"),
    "one way": (Failures((), ((1, 0), (3, 0))), (), "rank 0; ranks 1-3"),
}


@pytest.mark.parametrize("name", CUT)
def test_a_network_in_parts_is_refused_with_the_parts(name):
    failures, members, parts = CUT[name]
    network = without(family("ring:4", [1e-6], [1e9]), failures)
    collectives = (CollectiveRequest("all_reduce", members=members),)
    with pytest.raises(UsageError, match=parts):
        synthesize(Request(network, "all_reduce", size_bytes=1 << 20, collectives=collectives))


@pytest.mark.parametrize("kind", ["broadcast", "scatter"])
def test_what_one_way_allows_is_done(kind):
    network = without(family("ring:4", [1e-6], [1e9]), CUT["one way"][0])
    found = synthesize(Request(network, kind, chunk_bytes=1 << 10, chunks=4, method="paths"))
    assert not check(found.schedule)


def test_many_parts_are_folded():
    network = without(family("mesh:40x40", [1e-6], [1e9]), Failures(tuple(range(0, 1600, 2))))
    with pytest.raises(UsageError, match=r"ranks 1,41,.*\(40 of them\).* and \d+ more") as caught:
        require_ways(network, collective("all_gather", 1600))
    assert len(caught.value.message) < 800
