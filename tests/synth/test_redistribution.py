"""Redistributions from random layouts of tensors to the elements that ranks end with."""

from __future__ import annotations

import math

import numpy as np
import pytest
from drawn_examples import drawn
from hypothesis import given, settings, strategies as st
from sample_networks import networks

from exec.program.interpreter import interpret
from exec.program.layout import Layout
from probes.base.errors import UsageError
from synth import synthesize
from synth.check.program import judge
from synth.compiler.lowering import lower
from synth.network import Link, build
from synth.portfolio.request import Request
from synth.redistribution import MeshLayout, Moved, redistribution


@st.composite
def layouts(draw, ranks, axes):
    """Return a layout of some of the ranks: one mesh axis or two, cut, cut twice or replicated."""
    chosen = draw(st.permutations(range(ranks)))[: draw(st.integers(1, ranks))]
    count = len(chosen)
    mesh = draw(
        st.sampled_from([(a, count // a) for a in range(1, count + 1) if count % a == 0] + [(count,)])
    )
    cuts = draw(st.tuples(*[st.sampled_from([None, *range(axes)]) for _ in mesh]))
    return MeshLayout(tuple(chosen), mesh, cuts)


@st.composite
def tensors(draw, ranks):
    """Return one to three rows of small tensors that move between random layouts."""
    found = []
    for _ in range(draw(st.integers(1, 3))):
        shape = tuple(draw(st.lists(st.integers(1, 9), min_size=1, max_size=3)))
        sides = draw(layouts(ranks, len(shape))), draw(layouts(ranks, len(shape)))
        found.append(Moved(shape, 4, *sides, count=draw(st.integers(1, 2))))
    return found


def local_part(tensor, layout, rank):
    """Cut the part of ``rank`` axis by axis of the mesh, as `torch.chunk` and DTensor do; None outside it."""
    if rank not in layout.ranks:
        return None
    place = np.unravel_index(layout.ranks.index(rank), layout.mesh)
    for at, size, axis in zip(place, layout.mesh, layout.cuts, strict=True):
        if axis is not None:
            part = max(1, -(-tensor.shape[axis] // size))
            tensor = tensor.take(
                range(min(at * part, tensor.shape[axis]), min((at + 1) * part, tensor.shape[axis])), axis
            )
    return tensor


@settings(deadline=None, max_examples=drawn(60))
@given(data=st.data(), network=networks(most_ranks=6))
def test_every_rank_ends_with_its_part_of_each_tensor(data, network):
    moved = data.draw(tensors(network.ranks))
    rng = np.random.default_rng(0)
    values = [
        [rng.integers(-1000, 1000, one.shape).astype(np.int32) for _ in range(one.count)] for one in moved
    ]
    # A missing element would keep the value that no tensor has.
    known = [[np.full((network.ranks, *one.shape), 5000) for _ in range(one.count)] for one in moved]
    for one, copies, seen in zip(moved, values, known, strict=True):
        for box, ranks in one.source.boxes(one.shape).items():
            where = tuple(slice(*side) for side in box)
            for rank in ranks:
                for copy, value in enumerate(copies):
                    seen[copy][(rank, *where)] = value[where]
    plan = redistribution(network.ranks, moved)
    if plan.size_bytes:
        one, size_bytes = plan.request()
        found = synthesize(Request(network, "custom", size_bytes=size_bytes, collectives=(one,), jobs=0))
        outcome = found.schedule.outcome
        assert outcome.binding.time_s <= outcome.time_s * (1 + 1e-9)
        program = lower(found.listed)
        assert judge(program) == []
        assert Layout(program, max(plan.size_bytes) // 4).block_elements().tolist() == [
            size // 4 for size in plan.size_bytes
        ]
        inputs = [
            np.concatenate([_flat(values, piece) for piece in plan.packed(rank)] or [np.zeros(0, np.int32)])
            for rank in range(network.ranks)
        ]
        for rank, output in enumerate(interpret(program, inputs)):
            for piece in plan.unpacked(rank):
                where = tuple(slice(*side) for side in piece.box)
                shape = [end - low for low, end in piece.box]
                taken, output = np.split(output, [math.prod(shape)])
                known[piece.row][piece.copy][(rank, *where)] = taken.reshape(shape)
            assert output.size == 0
    for one, copies, seen in zip(moved, values, known, strict=True):
        for box, ranks in one.target.boxes(one.shape).items():
            where = tuple(slice(*side) for side in box)
            for rank in ranks:
                for value, got in zip(copies, seen, strict=True):
                    assert np.array_equal(got[(rank, *where)], value[where])


@given(data=st.data(), ranks=st.integers(1, 8))
def test_parts_are_those_of_torch(data, ranks):
    shape = tuple(data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=3)))
    layout = data.draw(layouts(ranks, len(shape)))
    tensor = np.arange(math.prod(shape)).reshape(shape)
    boxes = {rank: box for box, holders in layout.boxes(shape).items() for rank in holders}
    for rank in range(ranks):
        part = local_part(tensor, layout, rank)
        if part is None or not part.size:
            assert rank not in boxes
        else:
            assert np.array_equal(part, tensor[tuple(slice(*side) for side in boxes[rank])])


def test_only_what_lacks_moves_and_any_holder_may_send_it():
    # Two replicas of a tensor in two halves become one copy on each of three ranks.
    source, target = MeshLayout((0, 1, 2, 3), (2, 2), (None, 0)), MeshLayout((0, 1, 4), (3,), (None,))
    plan = redistribution(5, [Moved((6, 2), 2, source, target, count=3)])
    assert plan.sources == ((0, 2), (1, 3))
    assert plan.targets == ((1, 4), (0, 4))
    assert plan.size_bytes == (3 * 6 * 2, 3 * 6 * 2)
    assert [piece.copy for piece in plan.packed(2)] == [0, 1, 2]
    assert len(plan.unpacked(4)) == 6 and plan.unpacked(2) == plan.packed(4) == []


def test_idle_ranks_relay_where_that_saves_time():
    pairs = [(0, 1), (0, 2), (2, 1), (0, 3), (3, 1), (0, 4), (4, 1)]
    network = build("relays", [f"h{rank}" for rank in range(5)], [Link(a, b, 1e-6, 1e-10) for a, b in pairs])
    moved = Moved((1 << 20,), 4, MeshLayout((0,), (1,), (None,)), MeshLayout((1,), (1,), (None,)))
    one, size_bytes = redistribution(5, [moved]).request()
    found = synthesize(Request(network, "custom", size_bytes=size_bytes, collectives=(one,), jobs=0))
    direct_s = [tried.time_s for tried in found.attempts if tried.method == "direct"]
    assert min(direct_s) > 3.5 * found.schedule.outcome.time_s
    assert found.schedule.outcome.percent_of_optimal > 95


def test_one_block_is_cut_into_several_chunks():
    plan = redistribution(
        5, [Moved((1000, 999), 4, MeshLayout((0, 1, 2, 3), (4,), (None,)), MeshLayout((4,), (1,), (None,)))]
    )
    one, size_bytes = plan.request()
    assert one.sets.chunks == 16 and size_bytes <= 1.01 * plan.size_bytes[0]


@pytest.mark.parametrize(
    ("source", "target", "reason"),
    [
        (MeshLayout((0, 0), (2,), (0,)), MeshLayout((1,), (1,), (None,)), "expected 2 different ranks"),
        (MeshLayout((0, 1), (3,), (0,)), MeshLayout((1,), (1,), (None,)), "expected 3 different ranks"),
        (MeshLayout((0, 1), (2,), (2,)), MeshLayout((1,), (1,), (None,)), "no axis 2 in a tensor of 2"),
        (MeshLayout((0, 1), (2,), (0, 1)), MeshLayout((1,), (1,), (None,)), "expected 1, one for each axis"),
        (MeshLayout((0, 9), (2,), (0,)), MeshLayout((1,), (1,), (None,)), "there is no rank 9"),
    ],
)
def test_layouts_that_make_no_sense_are_refused(source, target, reason):
    with pytest.raises(UsageError, match=reason):
        redistribution(4, [Moved((4, 4), 4, source, target)])


def test_a_plan_of_nothing_is_refused():
    moved = Moved((4, 4), 4, MeshLayout((0,), (1,), (0,)), MeshLayout((0,), (1,), (None,)))
    with pytest.raises(UsageError, match="nothing has to move"):
        redistribution(4, [moved]).request()


def _flat(values, piece):
    return values[piece.row][piece.copy][tuple(slice(*side) for side in piece.box)].ravel()
