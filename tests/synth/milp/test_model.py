"""Integer programs: what is claimed to be optimal or infeasible is so."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from probes.base.errors import UsageError
from synth.milp.backends import SOLVERS, require
from synth.milp.model import IntegerProgram


def _knapsack(values, weights, capacity):
    model = IntegerProgram()
    chosen = [model.binary() for _ in values]
    model.row(chosen, [float(weight) for weight in weights], high=float(capacity))
    model.cost = {column: -float(value) for column, value in zip(chosen, values, strict=True)}
    return model


@pytest.mark.parametrize("solver", SOLVERS)
@settings(max_examples=6)
@given(
    items=st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=2, max_size=6),
    capacity=st.integers(1, 25),
)
def test_an_optimum_is_what_trying_everything_finds(solver, items, capacity):
    values, weights = zip(*items, strict=True)
    best = max(
        sum(v for v, taken in zip(values, choice, strict=True) if taken)
        for choice in itertools.product((0, 1), repeat=len(items))
        if sum(w for w, taken in zip(weights, choice, strict=True) if taken) <= capacity
    )
    solution = _knapsack(values, weights, capacity).solve(solver=solver, time_limit_s=600)
    assert solution.status == "optimal"
    assert solution.objective == pytest.approx(-best)
    assert solution.gap == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_contradiction_is_infeasible_and_has_no_values(solver):
    model = IntegerProgram()
    pair = [model.binary(), model.binary()]
    model.row(pair, [1.0, 1.0], low=3.0)
    model.cost = {pair[0]: 1.0}
    solution = model.solve(solver=solver, time_limit_s=600)
    assert solution.status == "infeasible"
    assert solution.values is None
    assert solution.gap == math.inf


@pytest.mark.parametrize("solver", SOLVERS)
def test_numbers_may_be_broken_and_rows_may_be_equations(solver):
    model = IntegerProgram()
    a, b = model.number(high=1.0), model.number()
    model.row([a, b], [1.0, 2.0], low=4.0, high=4.0)
    model.cost = {b: 1.0}
    solution = model.solve(solver=solver, time_limit_s=600)
    assert solution.values == pytest.approx([1.0, 1.5])


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_column_that_no_row_has_stays_at_its_least(solver):
    model = IntegerProgram()
    idle, chosen, other = model.binary(), model.binary(), model.number(low=2.0)
    model.row([chosen], [1.0], low=1.0)
    model.cost = {chosen: 1.0}
    solution = model.solve(solver=solver, time_limit_s=600)
    assert solution.status == "optimal"
    assert solution.values[[idle, chosen, other]] == pytest.approx([0.0, 1.0, 2.0])


def test_a_solver_that_is_not_known_is_refused():
    with pytest.raises(UsageError, match="unknown solver") as refused:
        require("magic")
    assert "cbc, highs" in refused.value.hint


@pytest.mark.parametrize("solver", SOLVERS)
def test_both_solvers_come_with_what_is_installed(solver):
    require(solver)


def test_a_hard_program_ends_at_its_limit_with_a_bound_below_its_best():
    # Markowitz's: split numbers into two halves as even as can be; relaxations say nothing of it.
    model = IntegerProgram()
    numbers = [2**17 + 7919 * at**3 % 104729 for at in range(60)]
    chosen = [model.binary() for _ in numbers]
    apart = model.number()
    model.row([*chosen, apart], [*map(float, numbers), 1.0], low=sum(numbers) / 2)
    model.row([*chosen, apart], [*map(float, numbers), -1.0], high=sum(numbers) / 2)
    model.cost = {apart: 1.0}
    solution = model.solve(time_limit_s=1.0)
    assert solution.bound <= solution.objective
    assert solution.status in ("optimal", "feasible", "unknown")


@pytest.mark.parametrize("solver", SOLVERS)
def test_after_its_nodes_a_search_ends_alike_every_time_and_claims_no_optimum(solver):
    """A market split: two equations that no choice meets, whose proof takes tens of thousands of nodes."""
    dice = np.random.default_rng(3)
    model = IntegerProgram()
    chosen = [model.binary() for _ in range(24)]
    for weights in dice.integers(0, 100, (3, 24)):
        over, under = model.number(), model.number()
        half = float(weights.sum() // 2)
        model.row([*chosen, over, under], [*map(float, weights), -1.0, 1.0], low=half, high=half)
        model.cost |= {over: 1.0, under: 1.0}
    first, again = (model.solve(solver=solver, node_limit=50, time_limit_s=600.0) for _ in range(2))
    assert first.status == "feasible"
    assert first.bound < first.objective
    assert first.values.tolist() == again.values.tolist()
