"""The interpreter against the definition of each collective, on programs of random trees."""

from dataclasses import replace

import numpy as np
import pytest
from drawn_examples import drawn
from hypothesis import given, settings, strategies as st
from sample_networks import networks
from sample_schedules import random_schedule, ring_all_reduce

from exec.program import expected_output
from exec.program.dtypes import DTYPES, REDOPS, decoded, dtype_of, encoded
from exec.program.interpreter import interpret
from exec.program.layout import Layout, count_of, size_bytes_of
from probes.base.columns import ints
from probes.base.errors import DataError, UsageError
from synth.check.program import judge
from synth.collective import KINDS, collective
from synth.compiler.lowering import lower
from synth.errors import NotApplicableError
from synth.scheduling import block_exchange as exchange


def totalled(inputs, redop):
    """All inputs reduced in one, an average rounded once."""
    dtype = inputs[0].dtype
    stacked = np.stack([decoded(each) for each in inputs])
    if redop in ("min", "max"):
        total = {"min": np.min, "max": np.max}[redop](stacked, axis=0)
    else:
        total = (np.prod if redop == "prod" else np.sum)(stacked, axis=0, dtype=stacked.dtype)
    if redop == "avg" and total.dtype.kind in "iu":
        total = np.array([int(each / len(inputs)) for each in total.tolist()])
    elif redop == "avg":
        wide = np.float64 if total.dtype == np.float64 else np.float32
        total = total.astype(wide) / wide(len(inputs))
    return encoded(total, dtype)


def by_definition(wanted, inputs, count, redop):
    """The outputs, straight from the words of the MPI standard."""
    ranks = wanted.ranks
    if wanted.reduces:
        total = totalled(inputs, redop)
    match wanted.kind:
        case "all_reduce":
            return [total] * ranks
        case "reduce":
            return [total if rank == wanted.root else total[:0] for rank in range(ranks)]
        case "reduce_scatter":
            return np.split(total, ranks)
        case "scatter":
            return np.split(inputs[wanted.root], ranks)
        case "gather":
            whole = np.concatenate(inputs)
            return [whole if rank == wanted.root else whole[:0] for rank in range(ranks)]
        case "all_to_next":
            return [inputs[0][:0], *inputs[:-1]]
        case "broadcast":
            return [inputs[wanted.root]] * ranks
        case "all_gather":
            return [np.concatenate(inputs)] * ranks
        case "all_to_all":
            blocks = [np.split(each, ranks) for each in inputs]
            return [
                np.concatenate([blocks[source][rank] for source in range(ranks)]) for rank in range(ranks)
            ]


@given(
    kind=st.sampled_from(KINDS),
    ranks=st.integers(1, 5),
    chunks=st.integers(1, 3),
    count=st.integers(1, 23),
    seed=st.integers(0, 1 << 30),
    redop=st.sampled_from(REDOPS),
    dtype=st.sampled_from(DTYPES),
    in_place=st.booleans(),
)
def test_random_trees_equal_the_definition(kind, ranks, chunks, count, seed, redop, dtype, in_place):
    ranks = max(ranks, 2) if kind == "all_to_next" else ranks
    program = lower(random_schedule(kind, ranks, chunks, seed))
    in_place = in_place and program.in_place
    layout = Layout(program, count)
    inputs = [expected_output.given(layout, rank, dtype_of(dtype), redop) for rank in range(ranks)]
    before = [each.copy() for each in inputs]
    outputs = interpret(program, inputs, redop, in_place=in_place)
    defined = by_definition(program.collective, inputs, count, redop)
    for rank in range(ranks):
        np.testing.assert_array_equal(inputs[rank], before[rank])
        np.testing.assert_array_equal(outputs[rank], defined[rank])
        np.testing.assert_array_equal(
            expected_output.expected(layout, rank, dtype_of(dtype), redop), defined[rank]
        )


@settings(max_examples=drawn(40))
@given(
    network=networks(6),
    chunks=st.integers(1, 3),
    count=st.integers(1, 23),
    redop=st.sampled_from(REDOPS),
    dtype=st.sampled_from(("int32", "int64", "uint8")),
    in_place=st.booleans(),
)
def test_exchanges_equal_the_definition(network, chunks, count, redop, dtype, in_place):
    try:
        schedule = exchange.synthesize(network, collective("all_reduce", network.ranks, chunks), 1000)
    except NotApplicableError:
        return
    program = lower(schedule)
    layout = Layout(program, count)
    inputs = [expected_output.given(layout, rank, dtype_of(dtype), redop) for rank in range(network.ranks)]
    outputs = interpret(program, inputs, redop, in_place=in_place)
    defined = by_definition(program.collective, inputs, count, redop)
    for rank in range(network.ranks):
        np.testing.assert_array_equal(outputs[rank], defined[rank])


@settings(max_examples=drawn(300))
@given(kind=st.sampled_from(KINDS), seed=st.integers(0, 1 << 30), data=st.data())
def test_what_the_judge_accepts_gives_the_right_result(kind, seed, data):
    program = lower(random_schedule(kind, 3, 2, seed))
    column = data.draw(st.sampled_from(("op", "src_buffer", "src_slot", "dst_buffer", "dst_slot", "wait_tb")))
    values = getattr(program, column).copy()
    limit = 9 if column == "op" else 3 if "buffer" in column else 4
    row = data.draw(st.integers(0, program.steps - 1))
    values[row] = data.draw(st.integers(0 if values.dtype == np.uint8 else -1, limit - 1))
    values.setflags(write=False)
    changed = replace(program, **{column: values})
    if changed.problems() or judge(changed):
        return
    layout = Layout(changed, 6)
    inputs = [expected_output.given(layout, rank, np.dtype("int64"), "sum") for rank in range(3)]
    for in_place in (False, True)[: 1 + changed.in_place]:
        for rank, output in enumerate(interpret(changed, inputs, in_place=in_place)):
            right = expected_output.expected(layout, rank, np.dtype("int64"), "sum")
            np.testing.assert_array_equal(output, right)


def test_a_deadlock_names_who_waits_for_whom():
    program = lower(ring_all_reduce(2), fuse=False)
    receives = [step for step in range(program.steps) if program.op[step] == 5]
    waiting = program.wait_tb.copy(), program.wait_step.copy()
    # Each rank's first send now waits for its reduce, which waits for the other's send.
    for step in range(program.steps):
        if program.op[step] == 1 and step == program.tb_start[program.tb_of[step]]:
            mine = [
                other
                for other in receives
                if program.tb_rank[program.tb_of[other]] == program.tb_rank[program.tb_of[step]]
            ]
            waiting[0][step], waiting[1][step] = program.tb_of[mine[0]], 0
    stuck = replace(program, wait_tb=ints(waiting[0]), wait_step=ints(waiting[1]))
    with pytest.raises(DataError) as caught:
        interpret(stuck, [np.ones(4), np.ones(4)])
    assert (
        "rank 0 threadblock 0 step 0 (s) waits for rank 0 threadblock 1 step 0 (rrc)" in caught.value.message
    )
    assert "waits for a message from rank 0 on channel 0 that never comes" in caught.value.message


@pytest.mark.parametrize(
    "inputs",
    [
        [np.ones(4)],
        [np.ones(4), np.ones(5)],
        [np.ones((2, 2)), np.ones((2, 2))],
        [np.ones(4), np.ones(4, np.float32)],
    ],
)
def test_inputs_that_do_not_fit_are_refused(inputs):
    with pytest.raises(UsageError, match="inputs: expected"):
        interpret(lower(ring_all_reduce(2)), inputs)


def test_all_to_all_refuses_in_place():
    program = lower(random_schedule("all_to_all", 2, 2, 0))
    with pytest.raises(UsageError, match="in place"):
        interpret(program, [np.ones(4), np.ones(4)], in_place=True)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size_bytes", [1, 8, 1000, 1 << 20])
def test_sizes_are_those_of_nccl_tests(kind, size_bytes):
    wanted = collective(kind, 4, 4)
    count = count_of(wanted, size_bytes, 4)
    assert count >= 1
    actual = size_bytes_of(wanted, count, 4)
    assert actual <= size_bytes or count == 1
    assert actual > size_bytes - 4 * 4
