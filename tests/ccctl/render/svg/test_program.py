"""The picture of a program: steps stand in the order that their dependencies ask for."""

import re
from dataclasses import replace

import numpy as np
import pytest
from slow_host import profile_with_slow_host

from ccctl.render.svg.program import levels, pictures
from synth import compile as compile_schedule, synthesize
from synth.networks.measured import from_profile


def test_a_step_comes_after_all_that_it_depends_on(schedule):
    from synth.simulation.fifo_order import links_of

    program = compile_schedule(schedule)
    found = levels(program)
    links = links_of(program)
    assert (found >= 0).all()
    for column in (links.goal, links.sender):
        rows = np.flatnonzero(column >= 0)
        assert (found[rows] > found[column[rows]]).all()
    inside = np.flatnonzero(program.tb_of[1:] == program.tb_of[:-1]) + 1
    assert (found[inside] > found[inside - 1]).all()


def test_a_lane_for_each_threadblock_and_a_box_for_each_step(schedule):
    program = compile_schedule(schedule)
    (drawing,) = pictures(program, 960)
    assert sum("<title>rank" in part for part in drawing.parts) == program.steps
    assert sum("text-anchor='end'" in part for part in drawing.parts) == program.threadblocks
    assert "a message, from its sender to its receiver" in "".join(drawing.parts)


def test_what_never_runs_is_said(samples):
    program = samples["program"]
    silent = replace(program, op=np.array([0, 0, 2], dtype=np.uint8))
    assert levels(silent).tolist()[-1] == -1
    assert "1 step never run" in "".join(next(pictures(silent, 960)).parts)


def test_a_program_without_steps_has_no_picture(samples):
    program = samples["program"]
    columns = ("op", "src_buffer", "src_slot", "dst_buffer", "dst_slot", "count", "wait_tb", "wait_step")
    empty = replace(
        program, tb_start=program.tb_start * 0, **{name: getattr(program, name)[:0] for name in columns}
    )
    assert not [*pictures(empty, 960)]


@pytest.mark.parametrize(("width", "apart"), [(960, 1), (358, 5)])
def test_steps_are_counted_by_ones_twos_or_fives(width, apart):
    profile = profile_with_slow_host(hosts=9, ranks_a_host=1)
    program = compile_schedule(
        synthesize(from_profile(profile), "all_reduce", 1 << 20, method="ring").schedule
    )
    (drawing,) = pictures(program, width)
    numbers = [re.fullmatch(r"<text [^>]*>(\d+)</text>", part) for part in drawing.parts]
    found = [int(match[1]) for match in numbers if match]
    assert found[:3] == [0, apart, 2 * apart]
