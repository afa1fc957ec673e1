"""The precedence graph: what each send waits for, and list scheduling by it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from drawn_examples import chessboard, drawn
from hypothesis import given, settings, strategies as st

from probes.base.columns import bytes_of, ints
from synth.check.schedule import check
from synth.collective import collective
from synth.network import Link, build
from synth.networks.families import family
from synth.portfolio.attempts import METHODS
from synth.schedules import COPY, REDUCE, Schedule
from synth.scheduling.list_scheduling import in_order, line_up
from synth.scheduling.precedence import Precedence, copies_wait, of_schedule, of_turns
from synth.simulation.schedule import replay


def made(spec: str, kind: Any, method: str, chunk_bytes: int, share: int = 1) -> Schedule:
    """Return the schedule of ``share`` chunks from each rank to each, or of as many from each rank."""
    network = family(spec, [7e-7], [50e9])
    many = kind in ("all_reduce", "reduce_scatter", "all_to_all")
    shape = collective(kind, network.ranks, share * network.ranks if many else share)
    return METHODS[method].synthesize(network, shape, chunk_bytes)


def ancestors(graph: Precedence) -> list[set[int]]:
    """For each node the sends that it waits for, through milestones."""
    before: list[list[int]] = [[] for _ in range(graph.sends + graph.milestones)]
    for one, other in zip(graph.before.tolist(), graph.after.tolist(), strict=True):
        before[other].append(one)

    def sends(node: int) -> set[int]:
        found: set[int] = set()
        for one in before[node]:
            found |= {one} if one < graph.sends else sends(one)
        return found

    return [sends(node) for node in range(graph.sends)]


@pytest.mark.parametrize(
    ("kind", "method"),
    chessboard(
        ["all_reduce", "all_gather", "reduce_scatter", "broadcast"], ["greedy", "direct", "forest"], one_in=3
    ),
)
def test_a_send_waits_for_all_that_earlier_rows_bring_to_its_source(kind: str, method: str) -> None:
    schedule = made("switch:5", kind, method, 1 << 18, 2)
    network = schedule.network
    src, dst = network.src[schedule.link], network.dst[schedule.link]
    expected = [
        {row for row in range(send) if schedule.chunk[row] == schedule.chunk[send] and dst[row] == src[send]}
        for send in range(schedule.sends)
    ]
    assert ancestors(of_schedule(schedule)) == expected


def test_an_exchange_waits_for_its_addends_alone() -> None:
    schedule = made("torus:3x2", "all_reduce", "exchange", 1 << 12)
    assert schedule.exchanges
    start = schedule.addend_start
    expected = [
        {int(row) for row in schedule.addend[start[send] : start[send + 1]] if row >= 0}
        for send in range(schedule.sends)
    ]
    found = ancestors(of_schedule(schedule))
    bare = np.diff(start) == 0
    assert [one for one, is_bare in zip(found, bare, strict=True) if not is_bare] == [
        one for one, is_bare in zip(expected, bare, strict=True) if not is_bare
    ]


def test_what_never_arrives_is_left_out() -> None:
    network = family("ring:4", [1e-6], [1e9])
    shape = collective("broadcast", 4, 1, 0)
    links = {(int(a), int(b)): at for at, (a, b) in enumerate(zip(network.src, network.dst, strict=True))}
    link = ints([links[2, 3], links[0, 1]])
    graph = of_turns(network, shape, ints([0, 0]), link, ints([0, 1]))
    order, arrival_s = line_up(network, 1000, link, graph, ints([0, 1]))
    assert order.tolist() == [1]
    assert np.isinf(arrival_s).tolist() == [True, False]


@settings(max_examples=drawn(100), deadline=None)
@given(
    st.sampled_from(["torus:3x2", "switch:5", "ring:5", "fat_tree:2x2"]),
    st.sampled_from(["all_reduce", "all_gather", "reduce_scatter", "all_to_all"]),
    st.sampled_from(["greedy", "forest", "paths", "exchange"]),
    st.integers(1, 3),
    st.integers(0, 2**31),
)
def test_any_urgency_gives_a_correct_schedule_whose_times_are_those_of_the_simulator(
    spec: str, kind: str, method: str, share: int, seed: int
) -> None:
    if method == "exchange":
        kind = "all_reduce"
    if kind == "all_to_all":
        method = "paths"
    schedule = made(spec, kind, method, 1 << 12, share)
    urgency = np.random.default_rng(seed).random(schedule.sends)
    link = schedule.link.astype(np.int64)
    order, arrival_s = line_up(schedule.network, schedule.chunk_bytes, link, of_schedule(schedule), urgency)
    again = in_order(schedule, order)
    assert not check(again, replay(again))
    assert replay(again).arrival_s == pytest.approx(arrival_s[order], rel=1e-9)


@pytest.mark.parametrize(("alpha_s", "waits"), [(0.0, False), (5e-6, True)])
def test_a_copy_that_overtakes_a_send_of_what_it_overwrites_is_seen_as_the_judge_sees_it(
    alpha_s: float, waits: bool
) -> None:
    """Rank 1 passes on rank 0's contribution for 4 us, and gets the complete sum after 0.9 us or 5.9 us."""
    links = [Link(0, 1, alpha_s, 1e-10), Link(1, 2, 0.0, 1e-9), Link(2, 0, 0.0, 1e-10)]
    network = build("three", ["h"] * 3, links)
    schedule = Schedule(
        network,
        collective("all_reduce", 3, 1),
        4096,
        "by hand",
        0,
        ints([0] * 5),
        ints([1, 0, 2, 1, 0]),
        bytes_of([REDUCE] * 4 + [COPY]),
        addend_start=ints([0, 1, 2, 4, 5, 7]),
        addend=ints([-1, -1, -1, 0, 1, -1, 2]),
    )
    timing = replay(schedule)
    assert copies_wait(schedule, timing) is waits
    assert (check(schedule, timing) == []) is waits
