"""Every method on every network for every collective, judged by the checker; bounds hold for all."""

from __future__ import annotations

import pytest
from drawn_examples import chessboard, drawn
from hypothesis import HealthCheck, given, settings, strategies as st
from sample_networks import NAMED, named, networks

from synth.bounds.lower_bounds import bounds
from synth.check.schedule import check
from synth.collective import KINDS, collective
from synth.errors import NotApplicableError
from synth.methods import greedy, paths, ring, tree
from synth.network import Link, build
from synth.networks.dgx import pod
from synth.portfolio.attempts import METHODS
from synth.portfolio.rank_subsets import serve
from synth.schedules import COPY, REDUCE
from synth.simulation.schedule import replay

POINT_KINDS = ("scatter", "gather", "all_to_all", "all_to_next")
SPREADING = tuple(kind for kind in KINDS if kind not in POINT_KINDS)
OTHERS = (greedy.synthesize, paths.synthesize)


# Machines of 2024 to 2026 and fabrics, as few GPUs of each as show all of its kinds of links.
MACHINES = (
    "hgx-b300",
    "nvl36",
    "gb300-nvl72",
    "h20",
    "l40s:2",
    "dgx-spark:2",
    "dgx-spark:4/ring",
    "gh200:3",
    "mi325x",
    "mi355x:2",
    "dgx-h100:2/rail",
    "dgx-a100/2x200:2x2/rail/2",
    "dgx-h100+nvls",
    "dgx-b200+nvls:2",
)


def _bounds(network, shape, chunk_bytes):
    return [bound for fluid in (False, True) for bound in bounds(network, shape, chunk_bytes, fluid=fluid)]


def _judge(schedule, proven=None):
    timing = replay(schedule)
    assert check(schedule, timing) == []
    # The table is in the order of starts, up to rounding; a search that holds ports for longer is not exact.
    if not schedule.network.queues:
        assert (timing.start_s[1:] >= timing.start_s[:-1] * (1 - 1e-9)).all()
    for bound in proven or _bounds(schedule.network, schedule.collective, schedule.chunk_bytes):
        assert bound.time_s <= timing.time_s * (1 + 1e-9), (schedule.method, bound)


def _serve(name, network, shape, chunk_bytes, seed=0):
    method = METHODS[name]
    limits = {"time_limit_s": 0.25} if method.solves else {}
    return serve(
        method.synthesize,
        network,
        shape,
        chunk_bytes,
        relays=method.relays,
        others=OTHERS,
        seed=seed,
        **limits,
    )


@pytest.mark.parametrize(("name", "kind"), chessboard(NAMED, KINDS, one_in=7))
def test_every_method_every_network_every_collective(name, kind):
    network = named(name)
    shape = collective(kind, network.ranks, 3, root=1)
    proven = _bounds(network, shape, 1 << 20)
    served = set()
    for method in METHODS:
        if METHODS[method].solves and not METHODS[method].suits(network, shape):
            continue
        try:
            schedule = _serve(method, network, shape, 1 << 20, seed=7)
        except NotApplicableError:
            continue
        # A solver that finds nothing better hands back the schedule that it began with.
        assert schedule.method == method or METHODS[method].solves
        _judge(schedule, proven)
        served.add(method)
    assert "paths" in served
    assert "greedy" in served or kind in POINT_KINDS


@pytest.mark.parametrize(
    ("spec", "kind"), chessboard(MACHINES, ["all_reduce", "all_gather", "all_to_all", "broadcast"], one_in=4)
)
def test_some_methods_on_every_machine(spec, kind):
    network = pod(spec)
    shape = collective(kind, network.ranks)
    proven = bounds(network, shape, 1 << 20, fluid=True)
    served = set()
    for method in ("ring", "direct", "tree", "hierarchical", "greedy", "paths", "symmetric", "nvls"):
        try:
            schedule = _serve(method, network, shape, 1 << 20, seed=7)
        except NotApplicableError:
            continue
        _judge(schedule, proven)
        served.add(method)
    assert "paths" in served


@settings(max_examples=drawn(50), suppress_health_check=[HealthCheck.too_slow])
@given(
    network=networks(),
    kind=st.sampled_from(SPREADING),
    chunks=st.integers(1, 5),
    chunk_bytes=st.sampled_from([1, 1000, 1 << 20]),
    policy=st.sampled_from(greedy.POLICIES),
    seed=st.integers(0, 3),
)
def test_greedy_on_random_networks(network, kind, chunks, chunk_bytes, policy, seed):
    shape = collective(kind, network.ranks, chunks, root=network.ranks - 1)
    _judge(greedy.synthesize(network, shape, chunk_bytes, seed=seed, policy=policy))


@settings(max_examples=drawn(80))
@given(
    network=networks(),
    kind=st.sampled_from(KINDS),
    chunks=st.integers(1, 5),
    method=st.sampled_from(
        [name for name in METHODS if not (METHODS[name].solves or name in ("greedy", "forest"))]
    ),
)
def test_classic_methods_on_random_networks(network, kind, chunks, method):
    shape = collective(kind, network.ranks, chunks, root=network.ranks // 2)
    try:
        schedule = METHODS[method].synthesize(network, shape, 4096)
    except NotApplicableError:
        return
    _judge(schedule)


@pytest.mark.parametrize("policy", greedy.POLICIES)
def test_the_same_seed_gives_the_same_schedule(policy):
    network = named("ring, clique, switch")
    shape = collective("all_gather", network.ranks)
    first, again, other = (
        greedy.synthesize(network, shape, 1 << 20, seed=seed, policy=policy) for seed in (1, 1, 2)
    )
    assert first.chunk.tolist() == again.chunk.tolist()
    assert first.link.tolist() == again.link.tolist()
    assert first.link.tolist() != other.link.tolist()


def test_greedy_never_sends_a_chunk_to_a_rank_twice():
    network = named("uneven mesh")
    schedule = greedy.synthesize(network, collective("all_gather", network.ranks, 2), 1 << 16)
    received = list(zip(schedule.chunk.tolist(), network.dst[schedule.link].tolist(), strict=True))
    assert len(set(received)) == len(received) == network.ranks * (network.ranks - 1) * 2


def test_greedy_names_a_rank_that_cannot_be_reached():
    network = build("cut", ["a", "b", "c"], [Link(0, 1, 0, 1e-9), Link(1, 0, 0, 1e-9), Link(2, 0, 0, 1e-9)])
    with pytest.raises(NotApplicableError, match="rank 2 cannot be reached"):
        greedy.synthesize(network, collective("broadcast", 3), 100)


def test_the_ring_takes_n_minus_one_steps_each_way():
    network = named("ring of 5")
    schedule = ring.synthesize(network, collective("all_reduce", 5, 5), 1000)
    assert schedule.sends == 2 * 4 * 5
    assert int((schedule.op == REDUCE).sum()) == int((schedule.op == COPY).sum()) == 20
    step_s = network.travel_s(1000)[0]
    assert replay(schedule).time_s == pytest.approx(8 * step_s)


def test_the_ring_finds_a_snake_through_a_mesh():
    network = named("mesh")
    links = {(int(s), int(d)): row for row, (s, d) in enumerate(zip(network.src, network.dst, strict=True))}
    order = ring.cycle(network, network.travel_s(1), links)
    assert sorted(order) == list(range(12))
    assert all((a, b) in links for a, b in zip(order, order[1:] + order[:1], strict=True))


def test_the_ring_says_when_there_is_no_cycle():
    with pytest.raises(NotApplicableError, match="cycle through all ranks"):
        ring.synthesize(named("line of 4"), collective("all_gather", 4), 100)


@pytest.mark.parametrize("ranks", range(2, 40))
def test_double_trees_are_trees_and_no_rank_is_inner_in_both(ranks):
    first, second = tree.parents(ranks)
    for parent in (first, second):
        assert sum(above < 0 for above in parent) == 1
        for rank in range(ranks):
            seen = set()
            while rank >= 0:
                assert rank not in seen
                seen.add(rank)
                rank = parent[rank]
        assert max(parent.count(rank) for rank in range(ranks)) <= 2
    both = set(first) & set(second) - {-1}
    roots = {first.index(-1), second.index(-1)}
    assert len(both - roots) <= 1
