"""The program over a time-expanded network: one horizon less than the optimum is infeasible."""

from __future__ import annotations

import numpy as np
import pytest

from synth.check.schedule import check
from synth.collective import collective
from synth.network import Link, build
from synth.networks.families import family
from synth.simulation.schedule import replay
from synth.tacos_ilp.recovery import completed
from synth.tacos_ilp.time_expanded_milp import by_orbits, moves_of, program
from synth.tacos_ilp.time_expanded_network import bundle, expand, grid_of


def _asked(network, shape, chunk_bytes, horizon_s, *, elastic=False):
    bundles = bundle(network)
    grid = grid_of(bundles, chunk_bytes, horizon_s)
    expansion = expand(grid, shape.held(), grid.ticks(horizon_s))
    made = program(expansion, shape.held(), shape.wanted(), elastic=elastic)
    return bundles, made


# (network, collective, steps of the optimum where a step is one hop of one chunk)
OPTIMA = [("ring:4", "all_gather", 2), ("ring:5", "all_gather", 2), ("mesh:2x2", "all_gather", 2)]
OPTIMA += [("fully_connected:4", "all_gather", 1), ("mesh:4", "broadcast", 3), ("ring:3", "all_to_all", 1)]


@pytest.mark.parametrize(("spec", "kind", "steps"), OPTIMA)
def test_the_optimum_is_feasible_and_less_is_not(spec, kind, steps):
    network = family(spec, [0.0], [1e9])
    shape = collective(kind, network.ranks)
    for horizon, feasible in ((steps, True), (steps - 1, False)):
        bundles, made = _asked(network, shape, 1000, horizon * 1e-6)
        solution = made.model.solve(time_limit_s=600) if made.possible else None
        assert (solution is not None and solution.values is not None) is feasible
        if feasible:
            schedule = completed(bundles, shape, 1000, moves_of(made, solution), "ilp", 0)
            assert check(schedule) == []


def test_a_port_carries_one_chunk_at_a_time():
    ports = ("out",)
    network = build("star", ["a"] * 3, [Link(0, 1, 0, 1e-9, ports), Link(0, 2, 0, 1e-9, ports)])
    shape = collective("broadcast", 3)
    for horizon_s, feasible in ((2e-6, True), (1e-6, False)):
        _, made = _asked(network, shape, 1000, horizon_s)
        solution = made.model.solve(time_limit_s=600)
        assert (solution.values is not None) is feasible


def test_a_bundle_carries_as_many_chunks_as_it_has_links():
    for links, feasible in ((2, True), (1, False)):
        network = build("pair", ["a", "b"], [Link(0, 1, 0, 1e-9)] * links)
        _, made = _asked(network, collective("broadcast", 2, 2), 1000, 1e-6)
        assert (made.model.solve(time_limit_s=600).values is not None) is feasible


def test_an_elastic_program_moves_what_it_can_and_recovery_the_rest():
    network = family("mesh:3x3", [0.0], [1e9])
    shape = collective("all_gather", 9)
    bundles, made = _asked(network, shape, 1000, 2e-6, elastic=True)
    moves = moves_of(made, made.model.solve(time_limit_s=600))
    # In two steps the 24 links carry 24 chunks each, less those that have nothing new to carry.
    assert 24 < len(moves) <= 48
    schedule = completed(bundles, shape, 1000, moves, "ilp", 0)
    assert check(schedule) == []
    assert schedule.sends == 72


def test_what_no_chunk_can_reach_in_time_needs_no_solver():
    _, made = _asked(family("mesh:4", [0.0], [1e9]), collective("broadcast", 4), 1000, 2e-6)
    assert made.possible is False


def test_a_program_that_would_be_too_large_is_not_made():
    network = family("mesh:3x3", [0.0], [1e9])
    shape = collective("all_gather", 9)
    grid = grid_of(bundle(network), 1000, 4e-6)
    expansion = expand(grid, shape.held(), grid.ticks(4e-6))
    assert program(expansion, shape.held(), shape.wanted(), most_columns=10) is None
    assert np.count_nonzero(shape.wanted() & ~shape.held()) == 72


@pytest.mark.parametrize(
    ("spec", "rates", "chunks"),
    [
        ("ring:5", (1e9,), 2),
        ("torus:3x3", (1e9,), 1),
        ("switch:4", (1e9,), 1),
        ("rfs:2x2x2", (4e9, 2e9, 1e9), 1),
    ],
)
def test_the_program_of_orbits_decides_as_the_whole_program(spec, rates, chunks):
    network = family(spec, [0.5e-6], list(rates), hold_alpha=True)
    shape = collective("all_gather", network.ranks, chunks)
    held, wanted = shape.held(), shape.wanted()
    bundles = bundle(network)
    grid = grid_of(bundles, 1000, 1e-3)
    expansion = expand(grid, held, grid.ticks(16e-6))
    decided = set()
    for horizon in expansion.arrivals.tolist()[:40]:
        until = expansion.until(horizon)
        status, moves = by_orbits(
            until, held, wanted, most_columns=10_000, solver="highs", time_limit_s=600, seed=0
        )
        whole = program(until, held, wanted)
        solution = whole.model.solve(solver="highs") if whole.possible else None
        if status != "unknown":
            assert (status == "feasible") is (solution is not None and solution.values is not None)
        decided.add(status)
        if moves:
            schedule = completed(bundles, shape, 1000, moves, "ilp", 0)
            assert check(schedule) == []
            assert replay(schedule).time_s <= horizon * grid.tick_s * (1 + 1e-9)
            break
    assert decided >= {"feasible", "infeasible"}


def test_a_collective_or_network_without_translations_is_left_to_the_whole_program():
    for spec, kind in (("mesh:3x3", "all_gather"), ("ring:4", "broadcast")):
        network, asked = family(spec, [0.0], [1e9]), {"most_columns": 1000, "solver": "highs"}
        shape = collective(kind, network.ranks)
        grid = grid_of(bundle(network), 1000, 8e-6)
        expansion = expand(grid, shape.held(), 8)
        found = by_orbits(expansion, shape.held(), shape.wanted(), time_limit_s=9, seed=0, **asked)
        assert found == ("unknown", [])
