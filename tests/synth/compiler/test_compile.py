"""The passes: the paper's programs at several sizes, fusion, instances, and what other tools get wrong."""

import importlib.util
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from exec.program.interpreter import interpret
from exec.program.layout import Layout
from probes.base.columns import ints
from synth.check.program import examine, judge
from synth.compiler.chunk_dag import ChunkDag, replicated
from synth.compiler.compile import compiled_program
from synth.compiler.fuse import fused, pairs
from synth.compiler.instruction_dag import instructions_of
from synth.compiler.legality import FORMS, require
from synth.lang import chunk, program
from synth.msccl.read import read_xml
from synth.msccl.write import write_xml
from synth.portfolio.runtime_limits import program_limits
from synth.program import OPS

EXAMPLES = Path(__file__).parents[3] / "examples"
SIZES = {
    "ring_allreduce": [
        {"ranks": 2},
        {"ranks": 5},
        {"ranks": 8, "tbs": 8, "instances": 4},
        {"ranks": 3, "instances": 2},
    ],
    "allpairs_allreduce": [{"ranks": 2}, {"ranks": 4}, {"ranks": 8, "instances": 2}],
    "allpairs_alltoall": [{"ranks": 1}, {"ranks": 4}, {"ranks": 9, "instances": 2}],
    "two_step_alltoall": [
        {"nodes": 1, "gpus": 3},
        {"nodes": 3, "gpus": 2},
        {"nodes": 4, "gpus": 4, "instances": 2},
    ],
    "three_step_alltoall": [
        {"nodes": 2, "gpus": 3},
        {"nodes": 5, "gpus": 2},
        {"nodes": 3, "gpus": 3, "instances": 2},
    ],
    "hierarchical_allreduce": [
        {"nodes": 2, "gpus": 2},
        {"nodes": 3, "gpus": 4},
        {"nodes": 4, "gpus": 2, "instances": 3},
    ],
    "alltonext": [{"nodes": 2, "gpus": 3}, {"nodes": 3, "gpus": 4}, {"nodes": 3, "gpus": 2, "instances": 2}],
    "halving_doubling_allreduce": [{"ranks": 2}, {"ranks": 8}, {"ranks": 16, "instances": 2}],
    "double_tree_allreduce": [{"ranks": 2}, {"ranks": 7}, {"ranks": 16, "chunks": 3, "instances": 2}],
}
CASES = [(name, parameters) for name, sizes in SIZES.items() for parameters in sizes]


def example(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)


def histogram(compiled):
    names, counts = np.unique([OPS[op] for op in compiled.op], return_counts=True)
    return dict(zip(names.tolist(), counts.tolist(), strict=True))


def test_every_example_is_tried_and_short():
    found = {path.stem: len(path.read_text().splitlines()) for path in EXAMPLES.glob("*.py")}
    assert found.keys() == SIZES.keys()
    assert all(lines < 30 for lines in found.values()), found


@pytest.mark.parametrize(("name", "parameters"), CASES, ids=str)
def test_the_examples_are_proven(name, parameters):
    compiled = example(name).compile(parameters)
    found = examine(compiled)
    assert found.findings == ()
    assert found.cautions == ()
    assert found.fifo_depth <= 2
    unknown = ["msccl: it has no collective all_to_next"] if name == "alltonext" else []
    assert program_limits(compiled, "msccl") == unknown
    again = read_xml(write_xml(compiled), name)
    assert judge(again) == []
    assert judge(example(name).compile(parameters, fuse=False)) == []


def test_the_ring_is_fused_as_in_the_paper():
    compiled = example("ring_allreduce")(ranks=4)
    assert histogram(compiled) == {"s": 4, "rrs": 8, "rrcs": 4, "rcs": 8, "r": 4}
    assert compiled.threadblocks == 4
    apart = example("ring_allreduce").compile({"ranks": 4}, fuse=False)
    assert histogram(apart).keys() <= {"s", "r", "rrc", "nop"}


@pytest.mark.parametrize("instances", [1, 2, 4])
def test_instances_take_channels_of_their_own(instances):
    compiled = example("ring_allreduce")(ranks=4, instances=instances)
    assert compiled.channels == compiled.threadblocks_max == instances


def test_a_receive_that_two_read_is_not_fused():
    @program("broadcast", 3, chunks=1)
    def spread():
        chunk("input", 0, 0).assign("output", 0, 0)
        passed = chunk("input", 0, 0).assign("output", 1, 0)
        passed.assign("output", 2, 0)
        passed.assign("keep", 1, 0)

    compiled = spread()
    assert "rcs" not in histogram(compiled)
    assert judge(compiled) == []


def test_a_sum_that_stays_in_a_result_is_kept():
    """The local copy is only left out where nobody would see it: here the sum is rank 1's result."""

    @program("all_reduce", 2, in_place=True)
    def exchange():
        total = chunk("input", 1, 0).reduce(chunk("input", 0, 0))
        total.assign("input", 0, 0)

    compiled = exchange()
    assert histogram(compiled) == {"s": 1, "rrcs": 1, "r": 1}
    assert judge(compiled) == []


def test_the_local_operand_of_a_reduce_is_the_receivers():
    """Known bug 1: other tools write the sender's slot, which the receiver then reads."""

    @program("all_reduce", 2, chunks=4)
    def through_scratch():
        for index in range(4):
            copy = chunk("input", 1, index).assign("far", 1, 3 - index)
            there = chunk("input", 0, index).assign("near", 0, index)
            total = there.reduce(copy)
            total.assign("output", 0, index)
            total.assign("output", 1, index)

    compiled = through_scratch()
    sums = [step for step in range(compiled.steps) if OPS[compiled.op[step]] == "rrc"]
    assert sums
    for step in sums:
        assert compiled.src_buffer[step] == compiled.dst_buffer[step]
        assert compiled.src_slot[step] == compiled.dst_slot[step]
    assert judge(read_xml(write_xml(compiled), "again")) == []
    senders = ints(
        np.where(np.isin(np.arange(compiled.steps), sums), 3 - compiled.src_slot, compiled.src_slot)
    )
    assert judge(replace(compiled, src_slot=senders)) != []


@pytest.mark.parametrize("kind", ["all_gather", "all_to_all"])
@pytest.mark.parametrize("instances", [2, 3])
def test_instances_of_gathers_and_all_to_alls_are_right(kind, instances):
    """Known bug 2: blocked replication permutes the chunks of all_gather and all_to_all."""

    @program(kind, 3)
    def direct():
        for source in range(3):
            for target in range(3):
                own = chunk("input", source, target if kind == "all_to_all" else 0)
                own.assign("output", target, source)

    assert judge(direct(instances=instances)) == []


@pytest.mark.parametrize("buffer", ["scratch", "output"])
@pytest.mark.parametrize("instances", [2, 3, 4])
def test_instances_of_mixed_sizes_track_their_dependences_anew(buffer, instances):
    """Known bug 3: chunks written one by one and read as a pair are permuted, or race."""

    @program("all_gather", 3, chunks=2)
    def mixed():
        for rank in range(3):
            beside, last = (rank + 1) % 3, (rank + 2) % 3
            chunk("input", rank, 0, size=2).assign("output", rank, 2 * rank)
            at = 2 * rank if buffer == "output" else 0
            for part in range(2):
                chunk("input", rank, part).assign(buffer, beside, at + part)
            both = chunk(buffer, beside, at, size=2)
            both.assign("output", last, 2 * rank)
            if buffer == "scratch":
                for part in range(2):
                    chunk(buffer, beside, part).assign("output", beside, 2 * rank + part)

    for fuse in (True, False):
        compiled = mixed.compile({"instances": instances}, fuse=fuse)
        assert judge(compiled) == []
        layout = Layout(compiled, 2 * instances)
        inputs = [np.arange(layout.elements(rank, 0), dtype=np.int64) + 100 * rank for rank in range(3)]
        for output in interpret(compiled, inputs):
            np.testing.assert_array_equal(output, np.concatenate(inputs))


def test_programs_that_cannot_all_send_first_get_more_channels():
    # Every rank passes on three chunks of its own before it takes any: three places, or two channels.
    @program("all_gather", 3, chunks=3)
    def batched():
        for rank in range(3):
            for index in range(3):
                own = chunk("input", rank, index)
                own.assign("output", rank, 3 * rank + index)
                passed = own.assign("output", (rank + 1) % 3, 3 * rank + index)
                passed.assign("output", (rank + 2) % 3, 3 * rank + index)

    compiled = batched()
    found = examine(compiled)
    assert (found.findings, found.fifo_depth <= 2) == ((), True)
    assert "rcs" in histogram(compiled)


def dag_of(name, **parameters) -> ChunkDag:
    return example(name).trace({**example(name).parameters(), **parameters})[0]


def test_dependences_are_true_where_something_is_read():
    needs = dag_of("ring_allreduce", ranks=3).dependences()
    # Each chunk is one chain: an operation reads what the one before it wrote.
    owner = np.repeat(np.arange(len(needs.start) - 1), np.diff(needs.start))
    steps = owner[needs.true] - needs.before[needs.true]
    assert set(steps.tolist()) == {1}
    assert (~needs.true).any()


def test_the_forms_are_checked_between_the_passes():
    dag = replicated(dag_of("ring_allreduce", ranks=3), 1)
    rows = instructions_of(dag)
    joined = fused(rows, pairs(rows))
    for form, value in (("chunk dag", dag), ("instruction dag", rows), ("fused dag", joined)):
        assert FORMS[form]
        require(form, value)
    with pytest.raises(AssertionError, match="only plain does not hold"):
        require("instruction dag", joined)
    with pytest.raises(AssertionError, match="slots exist"):
        require("chunk dag", replace(dag, dst_slot=dag.dst_slot + 9))
    with pytest.raises(AssertionError, match="messages have two ends"):
        require("fused dag", replace(joined, send_to=(joined.send_to + 1) % 3))
    with pytest.raises(AssertionError, match="needs stay on a rank"):
        elsewhere = replace(rows.needs, before=(rows.needs.before + 1) % rows.rows)
        require("instruction dag", replace(rows, needs=elsewhere))
    broken = compiled_program(dag_of("ring_allreduce", ranks=3))
    with pytest.raises(AssertionError, match="program: well formed"):
        require("program", replace(broken, src_slot=broken.src_slot + 9))
