"""A method's settings reach that method alone; the order of attempts, and their sends."""

from __future__ import annotations

import pytest
from drawn_examples import chessboard

from probes.base.errors import UsageError
from synth import Request, synthesize
from synth.networks.families import family
from synth.portfolio.attempts import least_sends, plans


def test_options_of_a_method_reach_it_alone() -> None:
    network = family("switch_switch:2x2", [5e-7], [100e9, 25e9])
    asked = Request(network, "all_reduce", size_bytes=1 << 20, sub_collectives=3, time_step_s=1e-6)
    options = {plan.name: plan.options for plan in plans(asked)}
    assert options["adapcc"] == {"sub_collectives": 3}
    assert options["ilp"] == {"time_step_s": 1e-6}
    assert options["ring"] == {}


def test_a_mechanism_reaches_the_integer_programs_alone() -> None:
    network = family("ring:4", [5e-7], [100e9])
    asked = Request(network, "all_gather", size_bytes=1 << 20, mechanism="time-clustering")
    options = {plan.name: plan.options for plan in plans(asked)}
    assert options["ilp"] == {"mechanism": "time-clustering"}
    assert all(not found for name, found in options.items() if name not in ("ilp", "greedy"))


def test_rings_of_many_ranks_come_after_what_needs_no_search() -> None:
    names = [
        plan.name for plan in plans(Request(family("switch:512", [5e-7], [5e10]), "all_reduce", 1 << 24))
    ]
    assert names.index("symmetric") < names.index("ring") < names.index("greedy")


@pytest.mark.parametrize(
    ("kind", "method"),
    chessboard(
        ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast"],
        ["ring", "direct", "greedy", "halving_doubling", "tree"],
    ),
)
def test_no_schedule_has_fewer_than_the_least_sends(kind: str, method: str) -> None:
    asked = Request(family("switch:8", [5e-7], [5e10]), kind, 1 << 20, method=method)
    try:
        found = synthesize(asked).schedule
    except UsageError:
        return
    assert found.sends >= least_sends(found.collective)


@pytest.mark.parametrize("spec, rounds", [("ring:4", 2), ("ring:5", 2), ("mesh:2x3", 3), ("hypercube:4", 2)])
def test_one_chunk_is_exchanged_even_where_links_have_no_latency(spec: str, rounds: int) -> None:
    network = family(spec, [0.0], [1e9])
    found = synthesize(Request(network, "all_reduce", chunk_bytes=1000, chunks=1)).schedule
    assert found.outcome is not None
    assert found.outcome.time_s == pytest.approx(rounds * 1000 / 1e9)


@pytest.mark.parametrize(
    ("spec", "kind", "size_bytes", "runtime", "tried"),
    [
        ("torus:4x4", "all_reduce", 1 << 20, "", set()),
        ("torus:4x4", "all_to_all", 1 << 20, "", {"paths", "forest"}),
        ("torus:4x4", "broadcast", 1 << 12, "", {"paths", "forest"}),
        ("mesh:4x4", "all_reduce", 1 << 20, "", {"paths", "forest"}),
        # A runtime may refuse what is fastest over links.
        ("torus:4x4", "all_reduce", 1 << 20, "msccl", {"paths", "forest"}),
    ],
)
def test_trees_are_packed_where_ranks_differ(spec, kind, size_bytes, runtime, tried) -> None:
    network = family(spec, [5e-7], [100e9])
    asked = Request(network, kind, size_bytes=size_bytes, runtime=runtime)
    assert {plan.name for plan in plans(asked)} & {"paths", "forest", "adapcc"} == tried
