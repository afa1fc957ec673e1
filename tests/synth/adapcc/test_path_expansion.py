"""Paths of chunks that have one source and one target: balanced, connected, complete."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from sample_networks import networks

from synth.adapcc.logical_graph import node_graph
from synth.adapcc.path_expansion import along, plan_routes
from synth.adapcc.path_milp import Flow, plan_paths
from synth.check.schedule import check
from synth.collective import collective
from synth.errors import NotApplicableError
from synth.network import Link, build


def _diamond():
    """From 0 to 3 by 1 or by 2, alike; and back at once."""
    links = [Link(a, b, 0, 1e-9) for a, b in ((0, 1), (1, 3), (0, 2), (2, 3), (3, 0))]
    return build("diamond", ["a", "b", "c", "d"], links)


def test_two_flows_take_two_ways():
    graph = node_graph(_diamond(), np.arange(4), numbers=1)
    found = plan_paths(graph, 1, [Flow(0, 3, 1000), Flow(0, 3, 1000)], time_limit_s=600)
    assert found.busy_s == pytest.approx(1e-6)
    assert found.gap <= 0.011
    assert {path[0].dst for path in found.paths} == {1, 2}
    for path in found.paths:
        assert [path[0].src, path[-1].dst] == [0, 3]
        assert all(edge.dst == onward.src for edge, onward in pairwise(path))


def test_a_flow_without_a_way_has_no_plan():
    graph = node_graph(build("cut", ["a", "b"], [Link(0, 1, 0, 1e-9)]), np.arange(2), numbers=1)
    assert plan_paths(graph, 1, [Flow(1, 0, 1000)]) is None


@settings(max_examples=15)
@given(
    network=networks(most_ranks=5),
    kind=st.sampled_from(["all_to_all", "scatter", "gather", "all_to_next"]),
)
def test_every_chunk_comes_where_it_is_wanted(network, kind):
    shape = collective(kind, network.ranks)
    routes = plan_routes(network, shape, 1000, time_limit_s=600)
    assert check(along(network, shape, 1000, routes, "adapcc", 0)) == []
    assert 0 <= routes.gap < 1


@pytest.mark.parametrize("kind", ["all_gather", "reduce"])
def test_other_collectives_have_no_paths(kind):
    with pytest.raises(NotApplicableError, match="no paths"):
        plan_routes(_diamond(), collective(kind, 4), 1000)
