"""AdapCC's integer program as published finds what trying everything finds."""

from __future__ import annotations

from itertools import combinations, combinations_with_replacement, product

import pytest

from synth.network import Link, build
from synth.published.adapcc_milp import Choice, Question, SubCollective, solve, timed

KB = 1000


def _triangle(slow_alpha_s=0.0, slow=1.0):
    """Three ranks, all connected; the links of rank 2 are ``slow`` times slower."""
    links = [
        Link(
            a,
            b,
            slow_alpha_s if 2 in (a, b) else 1e-6,
            (slow if 2 in (a, b) else 1.0) * 1e-9,
        )
        for a, b in product(range(3), repeat=2)
        if a != b
    ]
    return build("triangle", ["a", "b", "c"], links)


def _line(alpha_s, betas):
    """Ranks 2 and 3 send to rank 1, which sends to the root: it may aggregate or not."""
    links = [
        Link(1, 0, alpha_s[0], betas[0]),
        Link(2, 1, alpha_s[1], betas[1]),
        Link(3, 1, alpha_s[2], betas[2]),
    ]
    return build("line", ["a", "b", "c", "d"], links)


def _paths(network, source, target, seen=()):
    if source == target:
        yield ()
        return
    for link in range(network.links):
        onward = int(network.dst[link])
        if int(network.src[link]) == source and onward not in (*seen, source):
            for rest in _paths(network, onward, target, (*seen, source)):
                yield (link, *rest)


def _in_trees(network, root):
    """The path of every rank to the root, for each in-tree."""
    others = [rank for rank in range(network.ranks) if rank != root]
    out = [[link for link in range(network.links) if int(network.src[link]) == rank] for rank in others]
    for above in product(*out):
        up = dict(zip(others, above, strict=True))
        paths = {(root, root): ()}
        for rank in others:
            path, at = [], rank
            while at != root and len(path) < network.ranks:
                path.append(up[at])
                at = int(network.dst[up[at]])
            paths[rank, root] = tuple(path)
        if all(len(path) < network.ranks for path in paths.values()):
            yield paths


def _parts(question):
    """Every sub-collective that there is."""
    network = question.network
    if question.kind == "reduce":
        roots = range(network.ranks) if question.root is None else [question.root]
        for root in roots:
            for paths in _in_trees(network, root):
                inner = sorted({int(network.dst[link]) for path in paths.values() for link in path})
                sets = [s for n in range(len(inner) + 1) for s in combinations(inner, n)]
                for choice, aggregates in product(question.choices, sets):
                    yield SubCollective(choice, paths, frozenset(aggregates), root)
        return
    flows = question.flows()
    for paths in product(*([*_paths(network, *flow)] for flow in flows)):
        for choice in question.choices:
            yield SubCollective(choice, dict(zip(flows, paths, strict=True)), frozenset(), question.root)


def _least_s(question):
    """The least objective of all strategies."""
    found = [
        timed(question, parts)
        for parts in combinations_with_replacement(list(_parts(question)), question.sub_collectives)
        if sum(part.choice.size_bytes for part in parts) == question.size_bytes
    ]
    return min(found)


def _solved(question):
    found = solve(question, time_limit_s=600)
    assert found.status == "optimal"
    assert found.time_s == pytest.approx(_least_s(question), rel=1e-5)
    assert found.bound_s == pytest.approx(found.time_s, rel=1e-4)
    return found


@pytest.mark.parametrize("root", [0, None])
def test_a_reduce_is_the_best_of_all(root):
    choices = (Choice(100 * KB, 10 * KB), Choice(100 * KB, 50 * KB))
    _solved(Question(_triangle(slow=4.0), "reduce", 100 * KB, 1, choices, root))


@pytest.mark.parametrize("count", [2, 3, 4])
def test_so_are_several_side_by_side(count):
    part = 120 * KB // count
    found = _solved(Question(_triangle(slow=3.0), "reduce", 120 * KB, count, (Choice(part, part // 4),)))
    assert len(found.parts) == count


def test_parts_need_not_be_alike():
    choices = tuple(Choice(size * KB, 10 * KB) for size in (30, 60, 90))
    found = _solved(Question(_triangle(slow=2.0), "reduce", 120 * KB, 2, choices))
    assert sum(part.choice.size_bytes for part in found.parts) == 120 * KB


@pytest.mark.parametrize("kind", ["broadcast", "all_to_all"])
@pytest.mark.parametrize("count", [1, 2])
def test_copies_take_the_best_paths(kind, count):
    choices = (Choice(100 * KB // count, 10 * KB), Choice(100 * KB // count, 25 * KB))
    if kind == "all_to_all" and count == 2:
        choices = choices[:1]
    _solved(Question(_triangle(slow=4.0), kind, 100 * KB, count, choices, 0))


def test_where_load_costs_more_than_waiting_a_is_one():
    network = _line((1e-6,) * 3, (1e-9,) * 3)
    found = _solved(Question(network, "reduce", 100 * KB, 1, (Choice(100 * KB, 10 * KB),)))
    assert 1 in found.parts[0].aggregates


def test_where_waiting_costs_more_than_load_a_is_nought():
    # The way from rank 1 to the root has room for three; rank 3 is late by its latency.
    network = _line((1e-6, 1e-6, 400e-6), (1e-11, 1e-9, 1e-9))
    found = _solved(Question(network, "reduce", 100 * KB, 1, (Choice(100 * KB, 10 * KB),), kernel_s=50e-6))
    assert 1 not in found.parts[0].aggregates


def test_the_chunk_size_weighs_latency_against_the_pipeline():
    sizes = (Choice(100 * KB, 1 * KB), Choice(100 * KB, 10 * KB), Choice(100 * KB, 100 * KB))
    chosen = []
    for alpha_s in (1e-9, 1e-3):
        network = _line((alpha_s,) * 3, (1e-9,) * 3)
        chosen.append(_solved(Question(network, "reduce", 100 * KB, 1, sizes)).parts[0].choice.chunk_bytes)
    assert chosen[0] < chosen[1] == 100 * KB


def test_links_that_share_a_port_share_its_bandwidth():
    links = [Link(1, 0, 1e-6, 1e-9, ("nic",)), Link(2, 0, 1e-6, 1e-9, ("nic",)), Link(2, 1, 1e-6, 1e-9)]
    network = build("one nic", ["a", "b", "c"], links)
    _solved(Question(network, "reduce", 100 * KB, 1, (Choice(100 * KB, 10 * KB),)))
