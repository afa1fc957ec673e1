"""The chunk language: random programs against the definition, and each mistake with its line."""

import inspect
import random
from dataclasses import replace

import numpy as np
import pytest
from drawn_examples import drawn
from hypothesis import given, settings, strategies as st

from exec.program import expected_output
from exec.program.interpreter import interpret
from exec.program.layout import Layout
from probes.base.errors import DataError, UsageError
from synth.check.program import examine, judge
from synth.collective import KINDS
from synth.compiler.compile import compiled_program
from synth.lang import chunk, program
from synth.network import Link, build


def holders_of(wanted, index):
    """The ranks that hold (a part of) a chunk at first, and those that want it."""
    return wanted.sources.of(index).tolist(), wanted.targets.of(index).tolist()


def random_algorithm(kind, ranks, chunks, seed, *, in_place):
    """A program that carries every chunk over random trees, through scratch here and there."""

    @program(kind, ranks, chunks=chunks, in_place=in_place)
    def algorithm():
        wanted = algorithm.trace_of
        rng = random.Random(seed)
        for index in rng.sample(range(wanted.chunks), wanted.chunks):
            sources, targets = holders_of(wanted, index)
            route(rng, wanted, index, sources, targets)

    def route(rng, wanted, index, sources, targets):
        def held(rank):
            return chunk("input", rank, int(wanted.input_slots(rank)[index]))

        root = rng.choice(targets)
        total = held(sources[0])
        if wanted.reduced[index]:
            rest = rng.sample(sources, len(sources))
            total = held(rest[0]).assign("sum", rest[0], index)
            for rank in rest[1:]:
                if rng.random() < 0.5:
                    total = total.reduce(held(rank))
                else:
                    total = held(rank).assign("sum", rank, index).reduce(total)
        if rng.random() < 0.5:
            total = total.assign("relay", rng.randrange(wanted.ranks), index % 3)
        arrived = [total.assign("output", root, int(wanted.output_slots(root)[index]))]
        for rank in targets:
            if rank != root:
                source = rng.choice(arrived)
                arrived.append(source.assign("output", rank, int(wanted.output_slots(rank)[index])))

    object.__setattr__(algorithm, "trace_of", algorithm._collective({}, {})[0])
    return algorithm


@settings(max_examples=drawn(150))
@given(
    kind=st.sampled_from(KINDS),
    ranks=st.integers(2, 5),
    chunks=st.integers(1, 3),
    seed=st.integers(0, 1 << 30),
    instances=st.integers(1, 4),
    fuse=st.booleans(),
)
def test_random_programs_do_what_the_collective_says(kind, ranks, chunks, seed, instances, fuse):
    compiled = random_algorithm(kind, ranks, chunks, seed, in_place=False).compile(
        {"instances": instances}, fuse=fuse
    )
    assert compiled.problems() == []
    assert judge(compiled) == []
    if kind == "all_to_next":
        return
    layout = Layout(compiled, 3 * instances * compiled.collective.share)
    inputs = [expected_output.given(layout, rank, np.dtype("int64"), "sum") for rank in range(ranks)]
    for rank, output in enumerate(interpret(compiled, inputs)):
        right = expected_output.expected(layout, rank, np.dtype("int64"), "sum")
        np.testing.assert_array_equal(output, right)


def line_of(function, words):
    lines, first = inspect.getsourcelines(function)
    return first + next(at for at, line in enumerate(lines) if words in line)


def mistake_unwritten():
    chunk("scratch", 0, 2).assign("output", 1, 0)  # here


def mistake_output_unwritten():
    chunk("output", 0, 0).assign("scratch", 1, 0)  # here


def mistake_out_of_range():
    chunk("input", 0, 7)  # here


def mistake_output_out_of_range():
    chunk("input", 0, 0).assign("output", 1, 99)  # here


def mistake_stale():
    old = chunk("input", 0, 0).assign("scratch", 1, 0)
    chunk("input", 0, 1).assign("scratch", 1, 0)
    old.assign("output", 1, 0)  # here


def mistake_stale_after_reduce():
    first = chunk("input", 0, 0).assign("scratch", 1, 0)
    first.reduce(chunk("input", 2, 0))
    first.assign("output", 1, 0)  # here


def mistake_sizes():
    chunk("input", 0, 0, size=2).assign("scratch", 1, 0).reduce(chunk("input", 1, 0))  # here


def mistake_input_written():
    chunk("input", 0, 0).assign("input", 1, 0)  # here


def mistake_rank():
    chunk("input", 3, 0)  # here


def mistake_node():
    chunk("input", (0, 1), 0)  # here


def mistake_no_reference():
    chunk("input", 0, 0).reduce(3)  # here


def mistake_partly_by_hand():
    chunk("input", 0, 0).assign("output", 1, 0, sendtb=0, recvtb=0)
    chunk("input", 1, 0).assign("output", 2, 0)  # here


def mistake_two_peers():
    chunk("input", 0, 0).assign("output", 1, 0, sendtb=0, recvtb=0)
    chunk("input", 0, 0).assign("output", 2, 0, sendtb=0, recvtb=0)  # here


def mistake_two_threadblocks():
    chunk("input", 0, 0).assign("output", 1, 0, sendtb=0, recvtb=0)
    chunk("input", 0, 1).assign("output", 1, 1, sendtb=1, recvtb=0)  # here


def mistake_two_channels():
    chunk("input", 0, 0).assign("output", 1, 0, sendtb=0, recvtb=0, ch=0)
    chunk("input", 0, 1).assign("output", 1, 1, sendtb=0, recvtb=1, ch=1)  # here


def mistake_channel():
    chunk("input", 0, 0).assign("output", 1, 0, ch=1000)  # here


def mistake_overlap():
    chunk("input", 0, 0, size=2).assign("scratch", 1, 0)
    chunk("scratch", 1, 0, size=2).assign("scratch", 1, 1)  # here


def mistake_overlap_of_a_reduce():
    chunk("input", 0, 0, size=2).assign("scratch", 1, 0)
    chunk("input", 0, 0).assign("scratch", 1, 2)
    chunk("scratch", 1, 1, size=2).reduce(chunk("scratch", 1, 0, size=2))  # here


def mistake_no_link():
    chunk("input", 0, 0).assign("output", 1, 0)
    chunk("input", 0, 0).assign("output", 2, 0)  # here


MISTAKES = {
    mistake_unwritten: r"scratch\[2\] of rank 0 was never written",
    mistake_output_unwritten: r"output\[0\] of rank 0 was never written",
    mistake_out_of_range: r"input\[7\] of rank 0: input has 2 slots",
    mistake_output_out_of_range: r"output\[99\] of rank 1: output has 2 slots",
    mistake_stale: r"scratch\[0\] of rank 1 was overwritten by line \d+",
    mistake_stale_after_reduce: r"scratch\[0\] of rank 1 was overwritten by line \d+",
    mistake_sizes: r"input\[0\] of rank 1 is 1 chunks, scratch\[0:2\] of rank 1 is 2",
    mistake_input_written: r"input\[0\] of rank 1 is the caller's",
    mistake_rank: r"rank 3: the program has ranks 0 to 2",
    mistake_node: r"not given as \(nodes, gpus\)",
    mistake_no_reference: r"expected a reference to chunks, found 3",
    mistake_partly_by_hand: r"has no threadblock",
    mistake_two_peers: r"threadblock 0 of rank 0 sends to rank 1 and rank 2 \(the other statement is in line",
    mistake_two_threadblocks: r"rank 0 sends to rank 1 on channel 0 in threadblocks 0 and 1",
    mistake_two_channels: r"threadblock 0 of rank 0 uses channels 0 and 1",
    mistake_channel: r"ch: expected 0 to 255, found 1000",
    mistake_overlap: r"scratch\[0:2\] of rank 1 and scratch\[1:3\] of rank 1 overlap partly",
    mistake_overlap_of_a_reduce: r"scratch\[0:2\] of rank 1 and scratch\[1:3\] of rank 1 overlap partly",
    mistake_no_link: r"there is no link from rank 0 to rank 2",
}


@pytest.mark.parametrize("body", MISTAKES, ids=lambda body: body.__name__)
def test_a_mistake_is_told_with_its_statement(body):
    line = build("line", ["h"] * 3, [Link(0, 1, 0, 1e-9), Link(1, 2, 0, 1e-9), Link(1, 0, 0, 1e-9)])
    network = line if body is mistake_no_link else None
    with pytest.raises(DataError, match=MISTAKES[body]) as caught:
        program("all_reduce", 3, chunks=2)(body).compile({}, network=network)
    assert caught.value.message.startswith(f"{__file__}:{line_of(body, '# here')}: ")


def test_an_overlap_of_input_and_output_in_place_is_told():
    def shift():
        chunk("input", 1, 0, size=2).assign("output", 1, 1)

    with pytest.raises(DataError, match=r"input\[0:2\] of rank 1 and output\[1:3\] of rank 1 overlap partly"):
        program("all_gather", 2, chunks=2, in_place=True)(shift).compile({})


def test_who_wrote_last_is_named():
    with pytest.raises(DataError) as caught:
        program("all_reduce", 3, chunks=2)(mistake_stale).compile({})
    writer = line_of(mistake_stale, 'chunk("input", 0, 1)')
    assert f"was overwritten by line {writer} after" in caught.value.message


def test_chunks_outside_of_a_program_are_refused():
    with pytest.raises(UsageError, match="@program"):
        chunk("input", 0, 0)


def test_findings_name_the_source_line():
    @program("all_reduce", 2, in_place=False)
    def wrong():
        chunk("input", 0, 0).assign("output", 0, 0).reduce(chunk("input", 0, 0))  # here
        chunk("input", 1, 0).assign("output", 1, 0)

    found = judge(wrong())
    assert any(f"{__file__}:{line_of(wrong.body, '# here')}" in finding for finding in found)
    assert any("rank 1 must end with chunk 0 in o[0]: the contribution of rank 0" in each for each in found)


@pytest.mark.parametrize(
    ("parameters", "says"),
    [
        ({"nodes": 3}, "no parameter nodes"),
        ({}, "needs the parameter ranks"),
        ({"ranks": 2, "protocol": "Quick"}, "protocol: expected Simple"),
        ({"ranks": 2, "instances": 0}, "instances: expected 1 to 64"),
        ({"ranks": 0}, "ranks: expected a number"),
    ],
)
def test_parameters_that_make_no_sense_are_refused(parameters, says):
    @program("broadcast", ranks=lambda ranks: ranks)
    def spread(ranks):
        for rank in range(ranks):
            chunk("input", 0, 0).assign("output", rank, 0)

    assert judge(spread(ranks=2)) == []
    with pytest.raises(UsageError, match=says):
        spread(**parameters)


@pytest.mark.parametrize(
    ("kind", "chunks", "in_place"),
    [("all_gather", 2, True), ("reduce_scatter", 3, True), ("all_reduce", 2, True), ("all_gather", 2, False)],
)
def test_shared_buffers_are_seen_under_both_names(kind, chunks, in_place):
    @program(kind, 3, chunks=chunks, in_place=in_place)
    def shared():
        for rank in range(3):
            if kind == "all_gather":
                for other in range(3):
                    if in_place and other != rank:
                        # This part of the output is the input, without a copy.
                        chunk("output", rank, 2 * rank, size=2).assign("output", other, 2 * rank)
                    elif not in_place:
                        chunk("input", rank, 0, size=2).assign("output", other, 2 * rank)
            elif kind == "reduce_scatter":
                for other in range(3):
                    if other != rank:
                        chunk("output", rank, 0).reduce(chunk("input", other, rank))
            else:
                for index in range(2):
                    if rank:
                        chunk("output", 0, index).reduce(chunk("input", rank, index))

        if kind == "all_reduce":
            for rank in (1, 2):
                chunk("input", 0, 0, size=2).assign("output", rank, 0)

    found = examine(shared())
    assert found.findings == ()


def test_both_orders_of_rank_and_buffer_and_both_ways_to_assign():
    @program("broadcast", (1, 2))
    def spread():
        source = chunk(0, "input", 0)
        source.assign("output", (0, 1), 0)
        chunk("output", (0, 0), 0).assign(source)

    assert judge(spread()) == []


def test_a_channel_directive_is_kept():
    @program("broadcast", 2, chunks=2)
    def spread():
        for index in range(2):
            chunk("input", 0, index).assign("output", 1, index, ch=3 + index)
            chunk("input", 0, index).assign("output", 0, index)

    compiled = spread()
    talks = compiled.tb_send >= 0
    assert sorted(compiled.tb_channel[talks].tolist()) == [3, 4]
    assert judge(compiled) == []
    assert sorted(set(spread(instances=2).tb_channel[spread(instances=2).tb_send >= 0].tolist())) == [
        6,
        7,
        8,
        9,
    ]


def test_threadblocks_by_hand_are_kept():
    @program("all_gather", 2)
    def exchange():
        for rank in (0, 1):
            chunk("input", rank, 0).assign("output", 1 - rank, rank, sendtb=5, recvtb=2)
            chunk("input", rank, 0).assign("output", rank, rank, sendtb=2)

    compiled = exchange()
    assert judge(compiled) == []
    assert compiled.threadblocks_max == 2
    assert compiled.tb_recv.tolist() == [1, -1, 0, -1]
    assert compiled.tb_send.tolist() == [-1, 1, -1, 0]


@settings(max_examples=drawn(100))
@given(
    kind=st.sampled_from([kind for kind in KINDS if kind != "all_to_next"]),
    seed=st.integers(0, 1 << 30),
    data=st.data(),
)
def test_programs_that_lack_or_repeat_a_statement_are_refused(kind, seed, data):
    """Leave one operation out, or do it once more: the judge says so whenever the result is wrong."""
    whole, instances = random_algorithm(kind, 3, 2, seed, in_place=False).trace({})
    row = data.draw(st.integers(0, whole.operations - 1))
    rows = np.arange(whole.operations)
    kept = np.delete(rows, row) if data.draw(st.booleans()) else np.insert(rows, row, row)
    columns = {
        name: value[kept]
        for name, value in vars(whole).items()
        if isinstance(value, np.ndarray) and len(value) == whole.operations
    }
    changed = compiled_program(replace(whole, **columns), instances=instances)
    found = judge(changed)
    layout = Layout(changed, 2 * changed.collective.share)
    inputs = [expected_output.given(layout, rank, np.dtype("int64"), "sum") for rank in range(3)]
    if any("nothing has written" in finding for finding in found):
        return
    outputs = interpret(changed, inputs)
    right = [expected_output.expected(layout, rank, np.dtype("int64"), "sum") for rank in range(3)]
    same = all(np.array_equal(one, two) for one, two in zip(outputs, right, strict=True))
    assert same or found


@pytest.mark.parametrize("value", [True, 1 << 300, 999_999_999, 0, -1, 1.5, "4", None])
def test_ranks_are_a_number_within_bounds(value):
    @program("all_reduce", ranks=value)
    def made():
        pass

    with pytest.raises(UsageError, match="ranks: expected a number from 1 to 65536"):
        made()
