"""Tiles: a program repeated on shorter chunks, whose times can be worked out by hand."""

import numpy as np
import pytest

from synth.lang import chunk, program
from synth.network import Link, build
from synth.simulation.program import Costs, simulate_program
from synth.simulation.protocols import in_tiles, tiles_of

LINE = build("line", ["h"] * 3, [Link(0, 1, 2e-6, 1e-9), Link(1, 2, 2e-6, 1e-9)])


@program("broadcast", 3)
def pass_on():
    own = chunk("input", 0, 0)
    own.assign("output", 0, 0)
    own.assign("output", 1, 0).assign("output", 2, 0)


def test_the_second_hop_of_a_tile_runs_beside_the_first_of_the_next():
    compiled = pass_on()
    whole = simulate_program(compiled, LINE, 4000, Costs(0.0, fifo=8))
    tiled = simulate_program(in_tiles(compiled, 4), LINE, 1000, Costs(0.0, fifo=8))
    assert whole.time_s == pytest.approx(2 * (4 + 2) * 1e-6)
    assert tiled.time_s == pytest.approx((4 + 2 + 1 + 2) * 1e-6)


def test_waits_are_for_steps_of_the_same_tile():
    compiled = pass_on()
    tiled = in_tiles(compiled, 3)
    length = np.diff(compiled.tb_start)
    assert tiled.steps == 3 * compiled.steps
    assert tiled.problems() == []
    for tb in range(compiled.threadblocks):
        first, old = tiled.tb_start[tb], compiled.tb_start[tb]
        for tile in range(3):
            for step in range(length[tb]):
                row, was = first + tile * length[tb] + step, old + step
                assert tiled.op[row] == compiled.op[was]
                assert tiled.wait_tb[row] == compiled.wait_tb[was]
                if compiled.wait_tb[was] >= 0:
                    other = length[compiled.wait_tb[was]]
                    assert tiled.wait_step[row] == compiled.wait_step[was] + tile * other


def test_a_chunk_has_as_many_tiles_as_it_fills():
    compiled = pass_on()
    assert [tiles_of(compiled, size, 1000) for size in (1, 1000, 1001, 4000)] == [1, 1, 2, 4]
