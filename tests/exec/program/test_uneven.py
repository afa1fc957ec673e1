"""Uneven collectives from the sizes of their blocks to the elements that ranks end with."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from assembler import Assembler
from drawn_examples import drawn
from hypothesis import given, settings, strategies as st
from sample_networks import networks

from exec.program.interpreter import interpret
from exec.program.layout import Layout, count_fitting, count_of, size_bytes_of
from exec.program.move import moves
from exec.run_once import fitting
from probes.base.columns import ints, longs
from probes.base.errors import DataError, UsageError
from synth import synthesize
from synth.check.program import judge
from synth.collective import UNEVEN_KINDS, uneven
from synth.compiler.lowering import lower
from synth.network import Link, build
from synth.portfolio.request import CollectiveRequest, Request
from synth.portfolio.uneven import uneven_request
from synth.program import GLRE, INPUT, OUTPUT

ITEM_BYTES = 4


@st.composite
def demands(draw, ranks):
    """Return (kind, bytes of each block, root): zeros, one giant and anything between."""
    kind = draw(st.sampled_from(UNEVEN_KINDS))
    blocks = ranks**2 if kind == "all_to_all" else ranks
    size = st.sampled_from([0, 0, 1, 2, 3, 7, 40, 1000]).map(lambda items: items * ITEM_BYTES)
    sizes = draw(st.lists(size, min_size=blocks, max_size=blocks).filter(any))
    return kind, sizes, draw(st.integers(0, ranks - 1))


def by_definition(kind, counts, root, inputs):
    """The output of each rank, as MPI defines the v-collective."""
    ranks, ends = len(inputs), np.cumsum([0, *counts])
    if kind == "all_gather":
        return [np.concatenate(inputs)] * ranks
    if kind == "gather":
        return [np.concatenate(inputs) if rank == root else inputs[0][:0] for rank in range(ranks)]
    if kind == "scatter":
        return [inputs[root][ends[rank] : ends[rank + 1]] for rank in range(ranks)]
    if kind == "reduce_scatter":
        return [sum(inputs)[ends[rank] : ends[rank + 1]] for rank in range(ranks)]
    matrix = np.reshape(counts, (ranks, ranks))
    starts = np.cumsum(np.pad(matrix, ((0, 0), (1, 0))), axis=1)
    return [
        np.concatenate(
            [given[start[to] : start[to + 1]] for given, start in zip(inputs, starts, strict=True)]
        )
        for to in range(ranks)
    ]


@settings(deadline=None, max_examples=drawn(60))
@given(data=st.data(), network=networks(most_ranks=5))
def test_schedules_are_proven_and_give_what_mpi_defines(data, network):
    ranks = network.ranks
    kind, sizes, root = data.draw(demands(ranks))
    request, size_bytes = uneven_request(kind, ranks, sizes, root=root)
    found = synthesize(Request(network, "custom", size_bytes=size_bytes, collectives=(request,), jobs=0))
    outcome = found.schedule.outcome
    assert outcome.binding.time_s <= outcome.time_s * (1 + 1e-9)
    program = lower(found.listed)
    assert judge(program) == []
    counts = [size // ITEM_BYTES for size in sizes]
    layout = Layout(program, max(counts))
    assert layout.block_elements().tolist() == counts
    rng = np.random.default_rng(0)
    inputs = [rng.integers(-99, 99, layout.elements(rank, INPUT)).astype(np.int32) for rank in range(ranks)]
    expected = by_definition(kind, counts, root, inputs)
    for output, right in zip(interpret(program, inputs), expected, strict=True):
        assert output.tolist() == right.tolist()
    assert fitting(program, tuple(inputs), "sum").count == max(counts)


@given(data=st.data(), ranks=st.integers(2, 5), times=st.integers(1, 9))
def test_buffers_are_as_large_as_the_sizes_say(data, ranks, times):
    kind, sizes, root = data.draw(demands(ranks))
    whole = uneven(kind, ranks, sizes, 100, root)
    program = _program(whole)
    layout = Layout(program, max(sizes) * times)
    given, got = whole.buffer_bytes().tolist()
    assert [layout.elements(rank, INPUT) for rank in range(ranks)] == [size * times for size in given]
    assert [layout.elements(rank, OUTPUT) for rank in range(ranks)] == [size * times for size in got]
    assert count_fitting(program, [size * times for size in given]) == max(sizes) * times
    assert size_bytes_of(whole, max(sizes), 1) == max(*given, *got)
    assert count_of(whole, max(*given, *got), 1) == max(sizes)


def test_inputs_of_another_proportion_are_refused():
    program = _program(uneven("all_gather", 3, [400, 0, 800], 100))
    with pytest.raises(UsageError, match="not in the proportion of the uneven all_gather"):
        fitting(program, tuple(np.zeros(size, np.float32) for size in (100, 1, 200)), "sum")


@pytest.mark.parametrize(
    ("kind", "sizes", "reason"),
    [
        ("all_reduce", [1, 2], "all_reduce has no blocks that could differ"),
        ("all_gather", [1, 2, 3], "expected 2 sizes, one for each rank, found 3"),
        ("all_to_all", [1, 2], "expected 4 sizes, one for each pair of ranks, found 2"),
        ("gather", [0, 0], "one above 0"),
        ("gather", [-1, 2], "at least 0"),
    ],
)
def test_sizes_that_do_not_suit_are_refused(kind, sizes, reason):
    with pytest.raises(UsageError, match=reason):
        uneven(kind, 2, sizes, 10)


@given(data=st.data(), ranks=st.integers(2, 4))
def test_blocks_that_contradict_the_sets_are_found(data, ranks):
    kind, sizes, root = data.draw(demands(ranks))
    whole = uneven(kind, ranks, sizes, 40, root)
    assert whole.problems() == whole.cut(3).problems() == []
    blocks = whole.blocks
    reduces = kind == "reduce_scatter"
    for wrong in (
        replace(blocks, kind="scatter" if reduces else "reduce_scatter"),
        replace(blocks, chunks=ints(blocks.chunks + 1)),
        replace(blocks, chunks=ints(blocks.chunks[:-1])),
        replace(blocks, size_bytes=longs([*sizes, 1])),
        replace(blocks, size_bytes=longs([-1, *sizes[1:]])),
        replace(blocks, root=ranks),
    ):
        assert replace(whole, custom=replace(whole.custom, blocks=wrong)).problems()


def test_a_switch_reaches_one_place_of_all_buffers():
    build = Assembler(uneven("all_gather", 2, [8, 12], 40))
    build.step(build.threadblock(0), GLRE, (INPUT, 0), (OUTPUT, 0))
    program = replace(build.program("by hand", [0, 0]), group=ints([0, 0]))
    with pytest.raises(DataError, match=r"\(glre\) reaches different places of the members' buffers"):
        moves(Layout(program, 3))


def _program(collective):
    """A program of a collective, for the layout of its buffers."""
    ranks = collective.ranks
    links = [Link(a, b, 1e-6, 1e-9) for a in range(ranks) for b in range(ranks) if a != b]
    request = CollectiveRequest("custom", sets=collective)
    network = build("pairs", ["host"] * ranks, links)
    return lower(
        synthesize(
            Request(
                network,
                "custom",
                size_bytes=collective.total_bytes(100),
                collectives=(request,),
                method="paths" if not collective.reduces else "greedy",
                jobs=0,
            )
        ).listed
    )
