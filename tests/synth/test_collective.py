from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st

from probes.base.columns import ints
from probes.base.errors import UsageError
from synth.collective import KINDS, Collective, collective, custom, kind_of, several
from synth.networks.subnetwork import embedded, renumbered
from synth.rank_sets import joined, of_sets


@given(st.sampled_from(KINDS), st.integers(1, 6), st.integers(1, 9), st.integers(0, 5))
def test_slots_number_what_a_rank_holds_and_wants(kind, ranks, chunks, root):
    ranks = max(ranks, 2) if kind == "all_to_next" else ranks
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
        ("broadcast", 2, [0, 2, 0], 2, 2),
        ("reduce", 2, 2, [0, 2, 0], 2),
        ("all_to_all", 9, 3, 3, 3),
        ("scatter", 3, [0, 3, 0], 1, 3),
        ("gather", 6, 2, [0, 6, 0], 6),
        ("all_to_next", 4, [2, 2, 0], [0, 2, 2], 2),
    ],
)
def test_what_each_rank_starts_and_ends_with(kind, chunks, held, wanted, total):
    shape = collective(kind, 3, 2, root=1)
    assert shape.chunks == chunks
    assert shape.total_bytes(100) == total * 100
    assert (shape.held().sum(axis=1) == held).all()
    assert (shape.wanted().sum(axis=1) == wanted).all()


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


def test_on_a_subset_others_neither_hold_nor_want():
    shape = collective("all_gather", 6, 2, root=1, members=[4, 1, 3])
    assert shape.members == (1, 3, 4)
    assert shape.chunks == 6
    assert shape.held().sum(axis=1).tolist() == [0, 2, 0, 2, 2, 0]
    assert shape.wanted().sum(axis=1).tolist() == [0, 6, 0, 6, 6, 0]
    assert not shape.whole
    assert shape.total_bytes(10) == 60


def test_all_ranks_named_are_all_ranks():
    assert collective("reduce", 3, 1, members=[0, 1, 2]) == collective("reduce", 3, 1)


@pytest.mark.parametrize(("members", "root"), [((0, 9), 0), ((-1, 2), 2), ((1, 2), 0)])
def test_refuses_members_that_are_not_there(members, root):
    with pytest.raises(UsageError):
        collective("broadcast", 4, 1, root, members)


def test_several_at_once_are_numbered_through():
    both = several([collective("broadcast", 5, 2, 0, (0, 1)), collective("all_reduce", 5, 3, 2, (2, 3, 4))])
    assert both.problems() == []
    assert both.label == "broadcast + all_reduce"
    assert both.chunks == 5
    assert both.reduced.tolist() == [False] * 2 + [True] * 3
    assert both.held().sum(axis=1).tolist() == [2, 0, 3, 3, 3]
    assert both.wanted().sum(axis=1).tolist() == [2, 2, 3, 3, 3]
    assert both.total_bytes(1) == 3


def test_a_custom_collective_says_each_chunk():
    sources, targets = of_sets([{0}, {0, 1}, {1, 2}]), of_sets([{1, 2}, {2}, {0}])
    shape = custom(3, sources, targets, [False, False, True])
    assert shape.held().tolist() == [[1, 1, 0], [0, 1, 1], [0, 0, 1]]
    assert shape.wanted().tolist() == [[0, 0, 1], [1, 0, 0], [1, 1, 0]]
    assert shape.reduces
    assert shape.source_of().tolist() == [0, -1, -1]
    assert shape.total_bytes(7) == 14


@pytest.mark.parametrize(("sources", "targets"), [([{0}, set()], [{1}, {1}]), ([{0}], [{5}])])
def test_refuses_custom_sets_that_cannot_be(sources, targets):
    with pytest.raises(UsageError, match="custom"):
        custom(3, of_sets(sources), of_sets(targets), [False] * len(sources))


SETS = st.lists(st.frozensets(st.integers(0, 6), min_size=1), min_size=1, max_size=12)


@given(SETS, st.sets(st.integers(0, 6)))
def test_rank_sets_agree_with_sets(sets, inside):
    found = of_sets(sets)
    mask = np.array([[rank in ranks for ranks in sets] for rank in range(7)])
    assert (found.mask(7) == mask).all()
    assert found.sizes().tolist() == [len(ranks) for ranks in sets]
    assert found.per_rank(7).tolist() == mask.sum(axis=1).tolist()
    chosen = np.isin(np.arange(7), list(inside))
    assert found.any_in(chosen).tolist() == [bool(ranks & inside) for ranks in sets]
    assert found.only().tolist() == [min(ranks) if len(ranks) == 1 else -1 for ranks in sets]
    for chunk, ranks in enumerate(sets):
        assert set(found.of(chunk).tolist()) == ranks
    twice = joined([found, found])
    assert (twice.mask(7) == np.hstack((mask, mask))).all()


def test_fields_that_the_kind_does_not_have_are_refused():
    one, two = collective("all_reduce", 2, 1), collective("broadcast", 2, 1)
    nothing = custom(2, of_sets([[0]]), of_sets([[0]]), [False])
    both = several([one, two])
    assert not any(each.problems() for each in (one, two, nothing, both))
    strays = [
        (replace(one, custom=nothing.custom), "custom: expected none beside kind all_reduce"),
        (replace(one, parts=(one, two)), "parts: expected none beside kind all_reduce"),
        (replace(both, custom=nothing.custom), "custom: expected none beside kind several"),
        (replace(nothing, parts=(one, two)), "parts: expected none beside kind custom"),
        (replace(nothing, members=(0,)), "members: expected none beside kind custom"),
        (replace(both, root=1), "root: expected 0 beside kind several"),
        (replace(nothing, custom=None), "custom: missing"),
        (several([one, replace(two, custom=nothing.custom)]), r"parts\[1\].custom: expected none"),
    ]
    for stray, says in strays:
        assert re.match(says, stray.problems()[0]), stray.problems()
    # Nor does a stray field change what is asked for.
    assert replace(one, custom=nothing.custom).held().all()
    assert replace(one, parts=(two, two)).reduced.all()


def test_groups_of_custom_collectives_are_sets():
    right = custom(3, of_sets([[0, 2], [1]]), of_sets([[1], [0, 2]]), [True, False])
    sets = right.custom
    for rank in (ints([2, 0, 1, 1, 0, 2]), ints([0, 0, 1, 1, 0, 2])):
        found = replace(right, custom=replace(sets, group_rank=rank)).problems()
        assert [one.partition(":")[0] for one in found] == ["custom.group_rank[1]"]


def test_a_custom_collective_can_lose_the_ranks_that_it_does_not_need():
    whole = custom(4, of_sets([[1], [3]]), of_sets([[3], [1]]), [False, False])
    # Without the groups that no chunk has the numbers of the others still rise.
    inner = renumbered(whole, np.array([1, 3]))
    assert inner.problems() == []
    assert inner.sources.only().tolist() == [0, 1]
    assert inner.targets.only().tolist() == [1, 0]


@pytest.mark.parametrize("kind", KINDS)
def test_on_a_larger_network_the_first_ranks_take_part(kind):
    small = collective(kind, 3, 2, root=1)
    large = embedded(small, 5)
    assert large.problems() == []
    assert (large.held()[:3] == small.held()).all()
    assert (large.wanted()[:3] == small.wanted()).all()
    assert not large.held()[3:].any()
    assert not large.wanted()[3:].any()


def test_collectives_are_the_same_however_finely_they_are_cut():
    coarse, fine = collective("all_gather", 3, 1), collective("all_gather", 3, 4)
    assert coarse.same_but_for_chunks(fine)
    assert not coarse.same_but_for_chunks(collective("gather", 3, 1))
    assert not collective("reduce", 3, 1).same_but_for_chunks(collective("reduce", 3, 2, root=1))
    assert several([coarse, fine]).same_but_for_chunks(several([fine, coarse]))
    whole = custom(3, of_sets([[0], [1]]), of_sets([[1], [2]]), [False, False])
    assert whole.same_but_for_chunks(whole.cut(3))
    assert not whole.same_but_for_chunks(custom(3, of_sets([[0], [1]]), of_sets([[1], [0]]), [False] * 2))


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_is_understood_in_every_spelling(kind):
    words = kind.split("_")
    for spelling in (
        "_".join(words),
        "".join(words),
        "-".join(words),
        "".join(word.title() for word in words),
    ):
        assert kind_of(spelling) == kind
        assert kind_of(spelling.upper()) == kind


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        ("a2a", "all_to_all"),
        ("all2all", "all_to_all"),
        ("AR", "all_reduce"),
        ("rs", "reduce_scatter"),
        ("ag", "all_gather"),
        ("bcast", "broadcast"),
        ("MPI_Bcast", "broadcast"),
        ("MPI_Allreduce", "all_reduce"),
        ("ncclReduceScatter", "reduce_scatter"),
        ("all_reduce_perf", "all_reduce"),
    ],
)
def test_a_kind_is_understood_by_the_names_of_other_tools(word, kind):
    assert kind_of(word) == kind


def test_an_unknown_collective_is_refused_with_what_may_be_meant():
    assert kind_of("bcast") == "broadcast"
    with pytest.raises(UsageError, match="'allredcue': unknown collective") as refused:
        kind_of("allredcue")
    assert refused.value.hint.startswith("did you mean 'all_reduce'? known: all_gather, ")
    with pytest.raises(UsageError) as uneven:
        kind_of("MPI_Alltoallv")
    assert "all_to_all with a count for each pair" in uneven.value.hint


def test_who_takes_part_is_told_beside_how_many_there_are():
    assert collective("all_reduce", 8).ranks_in_words == "8 ranks"
    assert collective("all_reduce", 8, members=(0, 1, 2, 4, 5, 6, 7)).ranks_in_words == "7 of 8 ranks"
