from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.errors import UsageError
from synth.collective import KINDS, Collective, collective


@given(st.sampled_from(KINDS), st.integers(1, 6), st.integers(1, 9), st.integers(0, 5))
def test_slots_number_what_a_rank_holds_and_wants(kind, ranks, chunks, root):
    shape = collective(kind, ranks, chunks, root % ranks)
    assert shape.problems() == []
    held, wanted = shape.held(), shape.wanted()
    for rank in range(ranks):
        for mask, slots in ((held, shape.input_slots(rank)), (wanted, shape.output_slots(rank))):
            assert ((slots >= 0) == mask[rank]).all()
            assert sorted(slots[slots >= 0]) == list(range(int(mask[rank].sum())))


@pytest.mark.parametrize(
    ("kind", "chunks", "held", "wanted", "total"),
    [
        ("all_gather", 6, 2, 6, 6),
        ("reduce_scatter", 3, 3, 1, 3),
        ("all_reduce", 2, 2, 2, 2),
        ("broadcast", 2, None, 2, 2),
        ("reduce", 2, 2, None, 2),
        ("all_to_all", 9, 3, 3, 3),
    ],
)
def test_what_each_rank_starts_and_ends_with(kind, chunks, held, wanted, total):
    shape = collective(kind, 3, 2, root=1)
    assert shape.chunks == chunks
    assert shape.total_bytes(100) == total * 100
    if held is not None:
        assert (shape.held().sum(axis=1) == held).all()
    else:
        assert shape.held().sum(axis=1).tolist() == [0, chunks, 0]
    if wanted is not None:
        assert (shape.wanted().sum(axis=1) == wanted).all()
    else:
        assert shape.wanted().sum(axis=1).tolist() == [0, chunks, 0]


def test_all_to_all_is_a_transposition():
    shape = collective("all_to_all", 3)
    sent = {
        (s, int(c)): int(slot) for s in range(3) for c, slot in enumerate(shape.input_slots(s)) if slot >= 0
    }
    for dst in range(3):
        for chunk, slot in enumerate(shape.output_slots(dst)):
            if slot >= 0:
                assert sent[int(slot), chunk] == dst


@pytest.mark.parametrize(("chunks", "root"), [(0, 0), (-1, 0), (1, 4), (1, -1)])
def test_refuses_nonsense(chunks, root):
    with pytest.raises(UsageError):
        collective("broadcast", 4, chunks, root)


def test_problems():
    assert Collective("all_gather", 4, 6).problems() == ["chunks: expected a positive multiple of 4, found 6"]
    assert Collective("broadcast", 4, 6, root=4).problems() == ["root: there is no rank 4"]
    assert np.array_equal(Collective("reduce", 2, 1, root=1).target_of(), [1])
