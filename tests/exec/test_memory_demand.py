"""The bound of what a rank needs: above all its buffers, for every collective, placement and size."""

import numpy as np
import pytest
from sample_schedules import random_schedule

from exec.memory_demand import bench_need, run_need, start_needs
from exec.program.layout import Layout
from exec.run_once import RunRequest
from synth.collective import KINDS
from synth.compiler.lowering import lower
from synth.program import INPUT, OUTPUT, SCRATCH

MIB = 1 << 20


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("far", [False, True])
def test_a_rank_needs_more_than_its_buffers_and_one_more_as_it_checks(kind, far):
    layout = Layout(lower(random_schedule(kind, 3, 2, 0)), MIB)
    for rank in range(3):
        sizes = [layout.elements(rank, buffer) * 4 for buffer in (INPUT, OUTPUT, SCRATCH)]
        need = bench_need([layout], rank, 4, (False, True), peers=False, far=far)
        assert need.memory_bytes >= sum(sizes) + max(sizes[:2])
        assert run_need(layout, rank, 4, far=far).memory_bytes >= sum(sizes)
        more = bench_need([layout, layout], rank, 4, (False, True), peers=True, far=far)
        assert more.memory_bytes >= need.memory_bytes + sizes[2]


def test_it_grows_with_the_count_beyond_all_numbers_of_a_machine():
    program = lower(random_schedule("all_reduce", 3, 2, 0))
    small, large = (
        bench_need([Layout(program, count)], 0, 4, (False,), peers=False, far=False).memory_bytes
        for count in (1 << 30, 1 << 50)
    )
    assert 3 * 4 << 30 <= small <= 6 * 4 << 30
    assert 3 * 4 << 50 <= large <= 6 * 4 << 50


def test_the_command_needs_room_for_all_outputs_and_the_ranks_of_its_host_for_their_data():
    layout = Layout(lower(random_schedule("all_gather", 3, 1, 0)), MIB)
    (alone,) = start_needs(layout, 4, here=False)
    assert alone.memory_bytes >= 3 * 3 * 4 * MIB
    own, *ranks = start_needs(layout, 4, here=True)
    assert own == alone
    assert len(ranks) == 3


def test_a_rank_is_sent_its_own_input_alone():
    inputs = tuple(np.full(4, rank) for rank in range(3))
    request = RunRequest(lower(random_schedule("all_reduce", 3, 1, 0)), 4, inputs, "sum")
    assert [given.tolist() for given in request.of_rank(1).inputs] == [[], [1, 1, 1, 1], []]
