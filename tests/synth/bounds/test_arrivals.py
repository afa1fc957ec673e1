"""The arrival bound: never above what an exhaustive search finds, and equal to it where that is known."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest
from drawn_examples import drawn
from hypothesis import HealthCheck, given, settings, strategies as st
from sample_networks import networks

from synth import Request
from synth.bounds import arrivals as arrival_bound
from synth.bounds.arrivals import arrivals
from synth.bounds.cuts import candidate_cuts
from synth.bounds.lower_bounds import bounds
from synth.collective import Collective, collective, of_blocks
from synth.errors import NotApplicableError
from synth.methods import direct, greedy, paths
from synth.network import Link, Network, build
from synth.networks.dgx import pod
from synth.networks.families import family
from synth.portfolio.plain import bounds_of
from synth.portfolio.request import cut
from synth.rank_sets import of_sets
from synth.scheduling import block_exchange
from synth.simulation.schedule import replay


def _switch(ranks: int, flight: int) -> Network:
    links = [
        Link(a, b, float(flight), 1.0, (f"out {a}", f"in {b}"))
        for a in range(ranks)
        for b in range(ranks)
        if a != b
    ]
    return build("switch", [f"h{rank}" for rank in range(ranks)], links)


def _line(ranks: int, flight: int) -> Network:
    ends = [(rank, rank + 1) for rank in range(ranks - 1)]
    links = [Link(*pair, float(flight), 1.0) for a, b in ends for pair in ((a, b), (b, a))]
    return build("line", [f"h{rank}" for rank in range(ranks)], links)


def _hosts(hosts: int, size: int, inside: Link, across: Link) -> Network:
    """Links between all; those between hosts share a NIC in and a NIC out of each host."""
    links = []
    for a, b in product(range(hosts * size), repeat=2):
        if a // size == b // size and a != b:
            links.append(inside._replace(src=a, dst=b))
        elif a != b:
            links.append(across._replace(src=a, dst=b, ports=(f"out {a // size}", f"in {b // size}")))
    return build("hosts", [f"h{rank // size}" for rank in range(hosts * size)], links)


def _rounds(network: Network, chunks: int) -> list[tuple[tuple[int, int], ...]]:
    """All sets of (link, chunk) that can start at once and that no further send fits into."""
    held = [set(network.resources_of(link)) for link in range(network.links)]
    found = []

    def extend(link: int, taken: frozenset[int], sends: tuple[tuple[int, int], ...]) -> None:
        if link == network.links:
            used = {one for one, _ in sends}
            if all(one in used or held[one] & taken for one in range(network.links)):
                found.append(sends)
            return
        extend(link + 1, taken, sends)
        if not held[link] & taken:
            for chunk in range(chunks):
                extend(link + 1, taken | held[link], (*sends, (link, chunk)))

    extend(0, frozenset(), ())
    return found


def _least_steps(network: Network, chunks: int) -> int:
    """The fewest steps of an all_reduce in which each send holds its link for one and then flies.

    Exhaustive, and generous: a send carries all that its source knows, and what comes twice does no harm.
    """
    ranks, flight = network.ranks, round(float(network.alpha_s[0]))
    everything = (1 << ranks) - 1
    rounds = _rounds(network, chunks)
    src, dst = network.src.tolist(), network.dst.tolist()
    state = (tuple(1 << rank for rank in range(ranks) for _ in range(chunks)), ((),) * flight)
    states: set[tuple[tuple[int, ...], tuple[tuple[tuple[int, int], ...], ...]]] = {state}
    for step in range(1, 100):
        later = set()
        for known, flying in states:
            for sends in rounds:
                launched = tuple((dst[link] * chunks + c, known[src[link] * chunks + c]) for link, c in sends)
                queue = (*flying, launched)
                after = list(known)
                for slot, what in queue[0]:
                    after[slot] |= what
                if all(one == everything for one in after):
                    return step
                later.add((tuple(after), queue[1:]))
        states = later
    raise AssertionError("no all_reduce")


@pytest.mark.parametrize(
    ("network", "chunks"),
    [
        *((_switch(3, flight), 1) for flight in (0, 1, 2, 3)),
        *((_switch(4, flight), 1) for flight in (0, 1, 2)),
        pytest.param(_switch(3, 1), 2, marks=pytest.mark.long),
        (_line(3, 1), 1),
        (_line(3, 0), 2),
        (_line(3, 1), 2),
        (_line(4, 1), 1),
        (_hosts(2, 2, Link(0, 0, 0.0, 1.0), Link(0, 0, 0.0, 1.0)), 1),
        (_hosts(2, 2, Link(0, 0, 1.0, 1.0), Link(0, 0, 1.0, 1.0)), 1),
    ],
)
def test_no_all_reduce_of_a_few_ranks_is_faster(network, chunks):
    least = _least_steps(network, chunks)
    bound = bounds(network, collective("all_reduce", network.ranks, chunks), 1)[0]
    assert 0 < bound.time_s <= least * (1 + 1e-9)


@pytest.mark.parametrize(("ranks", "flight"), [(3, 2), (3, 3), (4, 2)])
def test_behind_a_switch_one_shot_cannot_be_beaten_where_flights_are_long(ranks, flight):
    """N − 1 sends one after the other and the last one's flight: nobody needs fewer."""
    network = _switch(ranks, flight)
    found = bounds(network, collective("all_reduce", ranks, 1), 1)[0]
    assert found.name.startswith("latency and ")
    assert found.time_s == pytest.approx(ranks - 1 + flight)
    assert _least_steps(network, 1) == ranks - 1 + flight


def test_a_short_all_reduce_of_many_ranks_behind_a_switch_takes_two_flights():
    network = family("switch:64", [1e-6], [1e9])
    found = bounds(network, collective("all_reduce", 64, 64), 1, fluid=True)[0]
    # One-shot would take 1 + 63 · 0.064 µs. In two flights all but what few others' parts bring at once.
    assert found.time_s == pytest.approx(2e-6 + 0.064e-6 - 1e-6 / 63, rel=1e-6)


@settings(max_examples=drawn(25), suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(
    st.integers(2, 4),
    st.integers(1, 3),
    st.sampled_from([0.0, 0.5e-6, 2e-6]),
    st.sampled_from([1e9, 20e9]),
    st.sampled_from([1e-6, 3e-6]),
    st.sampled_from([1e9, 5e9]),
    st.sampled_from([64, 4096, 1 << 18]),
)
def test_no_schedule_between_hosts_is_faster(hosts, size, near_s, near, far_s, far, share_bytes):
    network = _hosts(hosts, size, Link(0, 0, near_s, 1 / near), Link(0, 0, far_s, 1 / far))
    asked = Request(network, "all_reduce", size_bytes=share_bytes * network.ranks)
    bound = bounds_of(asked)
    for time_s in _made(asked):
        assert all(each.time_s <= time_s * (1 + 1e-9) for each in bound)


def test_crossings_before_hosts_have_summed_are_worth_less():
    """2 · 3 crossings over the NICs of four machines, but for an eighth of a flight before and after."""
    network = pod("dgx-a100:4")
    found = {
        bound.name: bound.time_s
        for bound in bounds(network, collective("all_reduce", network.ranks, 1), 1 << 24, fluid=True)
    }
    inside = network.within_host
    near_s, far_s = float(network.alpha_s[inside][0]), float(network.alpha_s[~inside][0])
    rate = 32 / float(network.beta_s_per_byte[~inside][0])
    expected_s = 6 * (1 << 24) / rate + far_s + 2 * near_s * 7 / 8
    assert found["partition into 4 hosts"] == pytest.approx(expected_s)


def test_hosts_do_not_reduce_sooner_than_by_shares():
    """Between hosts each byte crosses before its host has summed it, or is handed out after it has."""
    network = pod("dgx-a100:4")
    shape = collective("all_reduce", network.ranks, 1)
    first, second, *_ = bounds(network, shape, 1 << 16, fluid=True)
    assert first.name.startswith("latency and ")
    assert first.time_s > 1.1 * second.time_s


def test_the_last_bytes_of_a_broadcast_go_all_the_way():
    network = _line(4, 5)
    found = bounds(network, collective("broadcast", 4, 1), 100, fluid=True)
    (arrival,) = [bound for bound in found if bound.name.startswith("latency and ")]
    assert arrival.time_s == pytest.approx(3 * 5 + 100)


def test_all_to_all_waits_for_what_is_far():
    """Half way round there is one rank, both of whose ways are four flights long."""
    network = family("ring:8", [1e-6], [1e9])
    need_bytes = 1000.0 * (1 - np.eye(8))
    found = arrivals(network, candidate_cuts(network), need_bytes, "points", None)
    assert found.time_s >= 4e-6 + 1000 / 2e9 - 1e-12


def _made(asked: Request) -> Iterator[float]:
    for split, method in product((1, 3), (greedy.synthesize, direct.synthesize, block_exchange.synthesize)):
        try:
            yield replay(method(asked.network, *cut(asked, split))).time_s
        except NotApplicableError:
            continue


@settings(max_examples=drawn(60), suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(
    networks(7),
    st.sampled_from(["all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all"]),
    st.sampled_from([3, 3000, 3 << 20]),
)
def test_no_schedule_is_faster(network, kind, share_bytes):
    asked = Request(network, kind, size_bytes=share_bytes * network.ranks)
    bound = bounds_of(asked)
    for time_s in _made(asked):
        assert all(each.time_s <= time_s * (1 + 1e-9) for each in bound)


def _moved(ranks: int, ends: list[tuple[list[int], list[int]]], size_bytes: int) -> Collective:
    """One block from each set of holders to each set of takers."""
    sides = of_sets([held for held, _ in ends]), of_sets([wanted for _, wanted in ends])
    sizes = [size_bytes] * len(ends)
    return of_blocks(ranks, sizes, *sides, [False] * len(ends), chunk_bytes=max(1, size_bytes // 3))


def test_what_several_ranks_hold_starts_at_the_nearest():
    moved = _moved(4, [([0, 1], [3])], 99)
    (arrival,) = [one for one in bounds(_line(4, 5), moved, 33, fluid=True) if "latency and" in one.name]
    assert arrival.time_s == pytest.approx(2 * 5 + 99)


@settings(max_examples=drawn(60), suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(data=st.data(), network=networks(7), size_bytes=st.sampled_from([3, 3000, 3 << 20]))
def test_no_redistribution_is_faster(data, network, size_bytes):
    some = st.lists(st.integers(0, network.ranks - 1), min_size=1, max_size=network.ranks, unique=True)
    ends = [
        (sorted(held), sorted(set(wanted) - set(held)))
        for held, wanted in data.draw(st.lists(st.tuples(some, some), min_size=1, max_size=4))
    ]
    ends = [one for one in ends if one[1]]
    if ends:
        moved = _moved(network.ranks, ends, size_bytes)
        bound = bounds(network, moved, size_bytes // 3)
        made = paths.synthesize(network, moved, size_bytes // 3)
        assert all(each.time_s <= replay(made).time_s * (1 + 1e-9) for each in bound)


def test_nothing_is_looked_at_that_nobody_needs():
    network = family("ring:4", [1e-6], [1e9])
    assert arrivals(network, candidate_cuts(network), np.zeros((4, 4)), "points", None).time_s == 0


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(networks(), st.integers(1, 1 << 20), st.floats(0.0, 2.0))
def test_what_is_not_looked_at_would_not_be_the_largest(monkeypatch, network, size_bytes, share):
    need_bytes = np.full((network.ranks, network.ranks), float(size_bytes))
    np.fill_diagonal(need_bytes, 0.0)
    cuts = tuple(candidate_cuts(network))
    monkeypatch.setattr(arrival_bound, "_NOTICEABLE", 0.0)
    monkeypatch.setattr(arrival_bound, "_MOST_SETS", 0)
    full = arrivals(network, cuts, need_bytes, "sums", None)
    monkeypatch.setattr(arrival_bound, "_MOST_PAIRED", 0)
    known_s = share * full.time_s
    assert arrivals(network, cuts, need_bytes, "sums", None).time_s == full.time_s
    quick = arrivals(network, cuts, need_bytes, "sums", None, known_s)
    if full.time_s > known_s:
        assert quick.time_s == full.time_s


def test_a_bound_of_data_that_leaves_is_named_after_what_leaves():
    network = _line(4, 5)
    for kind, word in (("all_gather", "ingress"), ("reduce_scatter", "egress")):
        found = bounds(network, collective(kind, 4, 4), 100, fluid=True)
        names = [bound.name for bound in found if bound.name.startswith("latency and ")]
        assert all(word in name or "traffic" in name for name in names), names
