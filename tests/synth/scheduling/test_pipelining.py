"""Pipelining: chunks in parts that overtake one another."""

from __future__ import annotations

from typing import Any

import pytest
from drawn_examples import drawn
from hypothesis import given, settings, strategies as st

from synth import Request, synthesize
from synth.check.schedule import check
from synth.methods import direct
from synth.networks.families import family
from synth.portfolio.attempts import METHODS
from synth.portfolio.request import cut, cut_again
from synth.scheduling import block_exchange
from synth.scheduling.justification import least_s
from synth.scheduling.pipelining import pipelined
from synth.simulation.schedule import replay


def asked(spec: str, kind: Any, size_bytes: int, method: str = "auto") -> Request:
    return Request(family(spec, [7e-7], [50e9]), kind, size_bytes=size_bytes, method=method)


@settings(max_examples=drawn(100), deadline=None)
@given(
    st.sampled_from(["torus:3x3", "switch:6", "ring:5", "fat_tree:3x2", "mesh:2x3"]),
    st.sampled_from(["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast"]),
    st.sampled_from(["greedy", "forest", "paths", "exchange"]),
    st.sampled_from([2, 3, 8]),
)
def test_parts_are_proven_and_never_slower_than_one_after_the_other(
    spec: str, kind: str, method: str, parts: int
) -> None:
    if method == "exchange":
        kind = "all_reduce"
    if kind == "all_to_all":
        method = "paths"
    request = asked(spec, kind, 1 << 16, method)
    schedule = METHODS[method].synthesize(request.network, *cut(request, 1))
    shape, chunk_bytes = cut_again(request, schedule.collective, parts)
    assert shape.chunks == parts * schedule.collective.chunks
    assert shape.same_but_for_chunks(schedule.collective)
    found = pipelined(schedule, shape, chunk_bytes)
    assert found.sends == parts * schedule.sends
    assert not check(found, replay(found))
    alone = replay(schedule, chunk_bytes=chunk_bytes).time_s
    assert replay(found).time_s <= parts * alone * (1 + 1e-9)
    assert least_s(schedule, parts) <= replay(found).time_s * (1 + 1e-9)


def test_behind_a_switch_sums_go_out_while_others_come_in() -> None:
    # One chunk a rank goes in, waits, and goes out again: two latencies, where the bound has one.
    request = asked("switch:8", "all_reduce", 1 << 16, "direct")
    shape, chunk_bytes = request.shape(), (1 << 16) // 8
    whole = direct.synthesize(request.network, shape, chunk_bytes)
    finer, part_bytes = cut_again(request, shape, 8)
    found = pipelined(whole, finer, part_bytes)
    sent_s = 2 * 7 * chunk_bytes / 50e9
    assert replay(whole).time_s == pytest.approx(sent_s + 2 * 7e-7)
    assert replay(found).time_s == pytest.approx(sent_s + 7e-7)


def test_exchanges_overlap_in_parts() -> None:
    request = asked("torus:4x4", "all_reduce", 1 << 18, "exchange")
    whole = block_exchange.synthesize(request.network, *cut(request, 1))
    found = pipelined(whole, *cut_again(request, whole.collective, 8))
    assert check(found, replay(found)) == []
    assert replay(found).time_s < 0.85 * replay(whole).time_s


@pytest.mark.long
def test_exchanges_on_a_torus_are_near_the_bound() -> None:
    found = synthesize(asked("torus:4x4", "all_reduce", 1 << 18)).schedule
    assert found.outcome is not None and found.outcome.percent_of_optimal > 80
