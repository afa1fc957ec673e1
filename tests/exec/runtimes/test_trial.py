"""Trials add up runs in each size, order and placement."""

import pytest
from sample_plans import pair_plan
from sample_schedules import ring_all_reduce

from exec.runtimes import try_in_runtime
from exec.runtimes.results import expected_output
from probes.base.errors import UsageError
from synth.compiler.lowering import lower
from synth.mscclpp import read_plan


def test_a_program_runs_in_both_placements_with_and_without_tiles():
    program = lower(ring_all_reduce(3))
    report = try_in_runtime(program)
    assert report.right
    assert report.launches == 2 * 2 * 2
    assert report.elements == 2 * 2 * 3 * 3 * (24 + 160)


def test_a_size_is_that_of_the_buffer():
    report = try_in_runtime(lower(ring_all_reduce(3)), 1200)
    assert report.elements == 2 * 2 * 3 * 300


def test_a_plan_has_no_size():
    plan = read_plan(pair_plan(), "pair")
    assert try_in_runtime(plan).launches == 9
    with pytest.raises(UsageError, match="at no other size"):
        try_in_runtime(plan, 1024)


def test_a_collective_without_definition_has_no_result():
    with pytest.raises(ValueError, match="custom"):
        expected_output("custom", [], 0)
