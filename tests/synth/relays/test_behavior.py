"""Behavior tuples over all active sets of small trees, against tables and against the paper's recursion."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from sample_schedules import complete, ring_all_reduce, schedule_of

from probes.base.errors import UsageError
from synth.collective import collective
from synth.errors import NotApplicableError
from synth.relays.behavior import behaviors
from synth.relays.chunk_trees import chunk_trees
from synth.schedules import COPY, REDUCE

# Parents of each rank; rank 0 is the root.
TREES = {
    "pair": [-1, 0],
    "chain": [-1, 0, 1, 2],
    "star": [-1, 0, 0, 0],
    "binary": [-1, 0, 0, 1, 1, 2, 2],
    "Fig. 7": [-1, 0, 1, 1],
}


def tree_schedule(kind, parent):
    """One chunk up the tree, down the tree, or both."""
    depth = [0] * len(parent)
    for rank in range(1, len(parent)):
        depth[rank] = depth[parent[rank]] + 1
    upwards = sorted(range(1, len(parent)), key=lambda rank: -depth[rank])
    sends = [(0, rank, parent[rank], REDUCE) for rank in upwards] if kind != "broadcast" else []
    if kind != "reduce":
        sends += [(0, parent[rank], rank, COPY) for rank in reversed(upwards)]
    return schedule_of(complete(len(parent)), collective(kind, len(parent), 1, root=0), sends)


def subsets(ranks):
    return [set(chosen) for size in range(ranks + 1) for chosen in itertools.combinations(range(ranks), size)]


def bits(behavior):
    values = (behavior.is_active, behavior.has_recv, behavior.has_kernel, behavior.has_send)
    return "".join(str(int(value)) for value in values)


def table(schedule, active, **how):
    return {one.stage: " ".join(map(bits, one.ranks)) for one in behaviors(schedule, active, **how)}


# The tree of Fig. 7(a), GPUs 2 and 3 below GPU 1 below GPU 0; the row of 0, 2, 3 is Fig. 7(b).
FIGURE_7 = {
    (): "0000 0000 0000 0000",
    (0,): "1000 0000 0000 0000",
    (1,): "0100 1001 0000 0000",
    (2,): "0100 0101 1001 0000",
    (3,): "0100 0101 0000 1001",
    (0, 1): "1110 1001 0000 0000",
    (0, 2): "1110 0101 1001 0000",
    (0, 3): "1110 0101 0000 1001",
    (1, 2): "0100 1111 1001 0000",
    (1, 3): "0100 1111 0000 1001",
    (2, 3): "0100 0111 1001 1001",
    (0, 1, 2): "1110 1111 1001 0000",
    (0, 1, 3): "1110 1111 0000 1001",
    (0, 2, 3): "1110 0111 1001 1001",
    (1, 2, 3): "0100 1111 1001 1001",
    (0, 1, 2, 3): "1110 1111 1001 1001",
}


@pytest.mark.parametrize("active", FIGURE_7, ids=str)
def test_figure_7(active):
    schedule = tree_schedule("reduce", TREES["Fig. 7"])
    assert table(schedule, active) == {"reduce": FIGURE_7[active]}


CHAIN = {
    # 3 → 2 → 1 → 0, and back.
    (): ("0000 0000 0000 0000", "0000 0000 0000 0000"),
    (0,): ("1000 0000 0000 0000", "1001 0101 0101 0100"),
    (1,): ("0100 1001 0000 0000", "0101 1101 0101 0100"),
    (3,): ("0100 0101 0101 1001", "0101 0101 0101 1100"),
    (0, 2): ("1110 0101 1001 0000", "1101 0101 1101 0100"),
    (1, 3): ("0100 1111 0101 1001", "0101 1101 0101 1100"),
    (0, 1, 2, 3): ("1110 1111 1111 1001", "1101 1101 1101 1100"),
}


@pytest.mark.parametrize("active", CHAIN, ids=str)
def test_an_all_reduce_over_a_chain_has_two_stages(active):
    found = table(tree_schedule("all_reduce", TREES["chain"]), active)
    assert (found["reduce"], found["copy"]) == CHAIN[active]


@pytest.mark.parametrize("name", TREES)
def test_a_reduce_follows_the_recursion_for_every_active_set(name):
    parent = TREES[name]
    schedule = tree_schedule("reduce", parent)
    below = [[child for child, above in enumerate(parent) if above == rank] for rank in range(len(parent))]
    for active in subsets(len(parent)):

        def receives(rank, active=active):
            return any(child in active or receives(child) for child in below[rank])

        (found,) = behaviors(schedule, active)
        assert (found.stage, found.chunks) == ("reduce", (0,))
        for rank, one in enumerate(found.ranks):
            sending = [child for child in below[rank] if child in active or receives(child)]
            relay_of_one = rank not in active and len(sending) == 1
            assert one.is_active == (rank in active)
            assert one.has_recv == receives(rank)
            assert one.has_kernel == (receives(rank) and not relay_of_one)
            assert one.has_send == (parent[rank] >= 0 and (rank in active or receives(rank)))


@pytest.mark.parametrize("name", TREES)
@pytest.mark.parametrize("kind", ["broadcast", "all_reduce"])
def test_what_the_root_holds_reaches_every_rank(name, kind):
    parent = TREES[name]
    schedule = tree_schedule(kind, parent)
    inner = {above for above in parent if above >= 0}
    for active in subsets(len(parent)):
        last = behaviors(schedule, active)[-1]
        assert last.stage == "copy"
        goes = 0 in active if kind == "broadcast" else bool(active)
        for rank, one in enumerate(last.ranks):
            assert one.is_active == (rank in active)
            assert not one.has_kernel
            assert one.has_send == (goes and rank in inner)
            if rank:
                assert one.has_recv == goes
            else:
                # The copy stage waits for what the reduce stage brings to the root of the sum.
                assert one.has_recv == (kind == "all_reduce" and bool(active - {0}))


@pytest.mark.parametrize("name", TREES)
@pytest.mark.parametrize("kind", ["reduce", "broadcast", "all_reduce"])
def test_nothing_is_sent_by_a_rank_that_neither_is_active_nor_receives(name, kind):
    schedule = tree_schedule(kind, TREES[name])
    for active in subsets(len(TREES[name])):
        for found in behaviors(schedule, active):
            for one in found.ranks:
                assert one.has_recv or one.is_active or not one.has_send
                assert one.has_recv or not one.has_kernel


def test_a_rank_that_does_not_aggregate_passes_all_on():
    schedule = tree_schedule("reduce", TREES["Fig. 7"])
    assert table(schedule, range(4), unaggregated={0: [1]}) == {"reduce": "1110 1101 1001 1001"}
    assert table(schedule, range(4), unaggregated={}) == {"reduce": FIGURE_7[0, 1, 2, 3]}


def test_the_aggregation_decision_is_one_of_each_tree():
    ring = ring_all_reduce(3, 2)
    assert len(chunk_trees(ring)) == 3
    found = [one for one in behaviors(ring, range(3), {0: [1, 2]}) if one.stage == "reduce"]
    assert sorted(one.chunks for one in found) == [(0,), (1, 4), (2, 5), (3,)]
    kernels = {one.chunks: [behavior.has_kernel for behavior in one.ranks] for one in found}
    # Chunk 0 goes 0 → 1 → 2, as chunk 3 does, where ranks aggregate.
    assert kernels[0,] == [False, False, False]
    assert kernels[3,] == [False, True, True]


def test_relays_of_all_to_all_pass_on_what_others_send():
    # 0 → 1 → 2, whatever rank 1 and rank 2 do.
    sends = [(2, 0, 1, COPY), (2, 1, 2, COPY)]
    wanted = collective("all_to_all", 3, 1)
    sends += [(chunk, chunk // 3, chunk % 3, COPY) for chunk in range(9) if chunk not in (0, 2, 4, 8)]
    schedule = schedule_of(complete(3), wanted, sends)
    path = {
        tuple(sorted(active)): next(one for one in behaviors(schedule, active) if 2 in one.chunks)
        for active in subsets(3)
    }
    assert {active: " ".join(map(bits, one.ranks)) for active, one in path.items()} == {
        (): "0000 0000 0000",
        (0,): "1001 0101 0100",
        (1,): "0000 1000 0000",
        (2,): "0000 0000 1000",
        (0, 1): "1001 1101 0100",
        (0, 2): "1001 0101 1100",
        (1, 2): "0000 1000 1000",
        (0, 1, 2): "1001 1101 1100",
    }


def test_ranks_that_do_not_take_part_are_refused():
    with pytest.raises(UsageError, match=r"active: expected ranks that take part.*found 4"):
        behaviors(tree_schedule("reduce", TREES["chain"]), [0, 4])


NO_TREES = {
    "passes on its part of the sum twice": [(0, 1, 0, REDUCE), (0, 1, 2, REDUCE)],
    "receives a part of the sum after it has passed its own on": [(0, 1, 0, REDUCE), (0, 2, 1, REDUCE)],
    "receives the complete chunk twice": [
        (0, 2, 1, REDUCE),
        (0, 1, 0, REDUCE),
        (0, 0, 1, COPY),
        (0, 0, 2, COPY),
        (0, 1, 2, COPY),
    ],
    "would lose or repeat contributions": [(0, 1, 0, COPY), (0, 2, 0, REDUCE)],
    "ends without the complete chunk": [(0, 2, 1, REDUCE), (0, 1, 0, REDUCE), (0, 0, 1, COPY)],
}


@pytest.mark.parametrize("reason", NO_TREES)
def test_what_is_no_tree_is_refused_with_the_send(reason):
    schedule = schedule_of(complete(3), collective("all_reduce", 3, 1), NO_TREES[reason])
    with pytest.raises(NotApplicableError, match=reason):
        behaviors(schedule, [0])


def test_chunks_with_the_same_sends_share_a_tree():
    trees = chunk_trees(ring_all_reduce(4, 3))
    assert [tree.chunks.tolist() for tree in trees] == [[at, at + 4, at + 8] for at in range(4)]
    assert sorted(np.concatenate([tree.rows.ravel() for tree in trees]).tolist()) == list(range(72))
    assert all(sum(tree.sums) == 3 and len(tree.sums) == 6 for tree in trees)
