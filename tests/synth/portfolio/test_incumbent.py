"""Schedules that are kept or skipped, and the reason given."""

from dataclasses import replace

import pytest
import sizes

from synth import Request, synthesize
from synth.collective import collective
from synth.network import Link, build
from synth.networks.families import family
from synth.portfolio.attempts import least_sends, plans
from synth.portfolio.incumbent import Incumbent

RING = family("ring:4", [1e-6], [1e9])


def plan_of(name, number=0):
    return [one for one in plans(Request(RING, "all_reduce", size_bytes=1 << 24)) if one.name == name][number]


def with_chunks(plan, chunks):
    return replace(plan, shape=collective("all_reduce", 4, chunks))


@pytest.fixture(scope="module")
def few():
    return synthesize(Request(RING, "all_reduce", size_bytes=1 << 16, method="ring")).schedule


def with_sends(few, factor):
    return type(
        "Table", (), {"sends": few.sends * factor, "method": few.method, "collective": few.collective}
    )


@pytest.mark.parametrize(
    "first_s, factor, second_s, kept",
    [
        (1.02, 2, 1.015, 1),  # near the bound half a per cent for twice the sends is too little
        (1.02, 2, 1.005, 2),
        (1.20, 16, 1.19, 2),  # far from it, it is enough
        (1.20, 16, 1.198, 1),
        (1.20, 1_000_000, 1.15, 1),  # but not for a table of millions
        (1.20, 1, 1.1999, 2),
    ],
)
def test_finer_chunks_must_gain_more_where_less_is_left(few, first_s, factor, second_s, kept):
    choice = Incumbent(1.0)
    choice.take(plan_of("greedy"), few, first_s)
    choice.take(plan_of("greedy"), with_sends(few, factor), second_s)
    assert choice.best.sends == few.sends * (factor if kept == 2 else 1)
    assert len(choice.attempts) == 2
    if kept == 1:
        assert "times as many sends" in choice.why()


def test_what_coarse_chunks_foretell_is_spared(few):
    choice = Incumbent(1.0)
    choice.take(plan_of("greedy"), few, 2.0)
    rings = [plan_of("ring", number) for number in range(4)]
    choice.take(rings[0], few, 9.0)
    assert not choice.spares(rings[1])
    choice.take(rings[1], few, 8.0)
    assert choice.spares(rings[2])
    assert not choice.spares(plan_of("greedy", 3))


def test_trees_of_few_chunks_are_slow_but_may_win_with_more():
    # Three slow hosts and one behind a trunk: with a chunk a rank, trees take twice the time of the best.
    rates = {0: 5e6, 1: 5e6, 2: 12e6, 3: 5e6, 4: 12e6, 5: 7e6}
    slowest = {(src, dst): min(rates[src], rates[dst]) for src in rates for dst in rates if src != dst}
    links = [
        Link(src, dst, 1e-5, 1 / rate, (f"{src} out", f"{dst} in")) for (src, dst), rate in slowest.items()
    ]
    network = replace(build("hosts", [f"h{rank}" for rank in rates], links), queues=True)
    found = synthesize(Request(network, "all_reduce", size_bytes=1 << 23))
    assert found.schedule.method == "forest"
    assert found.schedule.outcome.percent_of_optimal > 95
    coarsest, best = (
        pick(one.time_s for one in found.attempts if one.method == "forest") for pick in (max, min)
    )
    assert coarsest > 2 * best


def test_a_rank_alone_needs_no_time_and_no_finer_chunks(few):
    choice = Incumbent(0.0)
    for number in range(2):
        choice.take(plan_of("greedy", number), few, 0.0)
    assert choice.optimal and choice.best_s == 0.0


def test_what_refuses_is_asked_once_and_near_the_bound_nothing_long_is(few):
    choice = Incumbent(1.0)
    choice.take(plan_of("greedy"), few, 1.004)
    choice.refuse(plan_of("tree"), "needs a link")
    assert choice.spares(plan_of("tree", 1))
    assert not choice.spares(with_chunks(plan_of("ring"), few.collective.chunks))
    assert choice.spares(with_chunks(plan_of("ring"), 100_000))


def test_more_sends_than_what_is_left_could_pay_for_are_spared(few):
    choice = Incumbent(1.0)
    choice.take(plan_of("greedy"), few, 1.02)
    chunks = few.collective.chunks
    assert least_sends(few.collective) == few.sends
    assert not choice.spares(with_chunks(plan_of("greedy", 6), chunks * 2))
    assert choice.spares(with_chunks(plan_of("greedy", 6), chunks * 8))


@pytest.mark.parametrize(
    ("kind", "slow_s", "over_links", "spared"),
    [
        ("all_reduce", 2.12, True, True),
        ("all_reduce", 2.08, True, False),
        ("all_reduce", 2.12, False, False),
        ("broadcast", 2.12, True, False),
    ],
)
def test_a_policy_that_another_beats_is_not_tried_with_finer_chunks(few, kind, slow_s, over_links, spared):
    mesh = family("mesh:2x3", [1e-6], [1e9])
    greedy = [one for one in plans(Request(mesh, kind, size_bytes=1 << 24)) if one.name == "greedy"]
    choice = Incumbent(1.0, over_links=over_links)
    chunks = greedy[0].shape.chunks
    for plan in greedy:
        if plan.shape.chunks == chunks:
            choice.take(plan, few, slow_s if plan.variant else 2.0)
    finer = [one for one in greedy if one.shape.chunks == 2 * chunks]
    assert [choice.spares(one) for one in finer] == [spared and one.variant > 0 for one in finer]


@pytest.mark.parametrize("method", ["greedy", "symmetric"])
@pytest.mark.parametrize("kind", ["all_reduce", "all_gather"])
@pytest.mark.parametrize(
    "time_s, chunk_bytes, ranks, spared",
    [
        (1.02, 1 << 16, "16x8", True),
        (1.04, 1 << 16, "16x8", False),
        (1.80, 1 << 11, "16x8", True),
        (1.80, 1 << 11, "8x8", False),
    ],
)
def test_of_many_ranks_trees_are_spared_where_they_fill_too_late(
    method, kind, time_s, chunk_bytes, ranks, spared
):
    mesh = family(f"mesh:{ranks}", [5e-7], [5e10])
    request = Request(mesh, kind, size_bytes=1 << 24)
    greedy, forest = (
        next(one for one in plans(request) if one.name == name) for name in ("greedy", "forest")
    )
    made = {"sends": 65_024, "method": method, "network": mesh, "chunk_bytes": chunk_bytes}
    choice = Incumbent(1.0)
    choice.take(greedy, type("Table", (), made), time_s)
    assert choice.spares(forest) is spared


def test_the_reason_names_the_next_best(few):
    choice = Incumbent(1.0)
    choice.take(plan_of("ring"), replace(few, method="ring"), 2.0)
    choice.take(plan_of("tree"), replace(few, method="tree"), 3.0)
    assert choice.why() == "50 % faster than tree, the next best"
    choice.take(plan_of("ring"), few, 1.0)
    assert choice.why() == "it reaches the bound"
    alike = Incumbent(0.5)
    alike.take(plan_of("ring"), replace(few, method="ring"), 2.0)
    alike.take(plan_of("tree"), replace(few, method="tree"), 2.000_001)
    assert alike.why() == "as fast as tree, the next best"


def test_the_reason_names_all_that_are_faster_and_twins_once(few):
    choice = Incumbent(1.0)
    choice.take(plan_of("ring"), replace(few, method="ring"), 1.010)
    for method, factor, time_s in (("ring", 4, 1.006), ("tree", 2, 1.007)):
        made = {"sends": few.sends * factor, "method": method, "collective": few.collective}
        choice.take(plan_of(method), type("Table", (), made), time_s)
    assert choice.best.method == "ring" and choice.best_s == 1.010
    assert choice.why() == (
        "kept: ring with more chunks and tree are up to 0.4 % faster in the model, "
        "but need at least 2 times as many sends"
    )
    twins = Incumbent(0.5)
    twins.take(plan_of("direct"), replace(few, method="direct"), 2.0)
    twins.take(plan_of("all_pairs"), replace(few, method="all_pairs"), 2.0)
    assert twins.why() == "the fastest of 2 attempts"


def test_one_chunk_says_nothing_of_trees_that_share_a_broadcast():
    # A single chunk takes one tree, whose links it loads with the whole buffer.
    found = synthesize(Request(sizes.drawn(2), "broadcast", size_bytes=1 << 28))
    assert found.schedule.method == "forest"
    assert found.schedule.outcome.percent_of_optimal > 95


def test_coarse_greedy_cuts_are_not_compared_with_fine_symmetric_ones(few):
    choice = Incumbent(1.0)
    plan = replace(plan_of("ring", 3), name="symmetric")
    assert plan.shape.chunks > plan_of("greedy").shape.chunks
    choice.take(plan, few, 1.5)
    choice.take(plan_of("greedy"), few, 2.0)
    finer = next(one for one in map(lambda n: plan_of("greedy", n), range(1, 9)) if not one.variant)
    assert finer.shape.chunks > plan_of("greedy").shape.chunks
    assert not choice.spares(finer)
    choice.take(replace(plan_of("greedy"), name="symmetric"), few, 1.5)
    choice.take(plan_of("greedy"), few, 2.0)
    assert choice.spares(finer)
