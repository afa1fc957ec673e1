"""AdapCC's strategies as programs: what does not aggregate passes on, and sums are right."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from exec.program.interpreter import interpret
from synth.check.program import judge
from synth.errors import NotApplicableError
from synth.network import Link, build
from synth.program import OPS
from synth.published.adapcc_algorithm import strategy_algorithm
from synth.published.adapcc_milp import Choice, PublishedStrategy, Question, SubCollective, timed


def _network():
    pairs = [(1, 0), (2, 1), (3, 1), (2, 0), (3, 2)]
    links = [Link(*ends, 1e-6, 1e-9) for pair in pairs for ends in (pair, pair[::-1])]
    return build("four", ["a", "b", "c", "d"], links)


ONE = (Choice(240, 40),)


def _strategy(kind, aggregates=(), choices=ONE, root=0):
    """In the first part ranks 2 and 3 lead to 1, which leads to the root; in others 3 to 2 to the root."""
    network = _network()
    question = Question(network, kind, sum(choice.size_bytes for choice in choices), len(choices), choices)
    link = {(int(a), int(b)): at for at, (a, b) in enumerate(zip(network.src, network.dst, strict=True))}
    ways = (((1, 0), (2, 1, 0), (3, 1, 0)), ((1, 0), (2, 0), (3, 2, 0)))
    parts = []
    for number, choice in enumerate(choices):
        hops = [(0,), *ways[min(number, 1)]]
        if kind == "broadcast":
            hops = [way[::-1] for way in hops[1:]]
        if kind == "all_to_all":
            hops = [(a, b) if (a, b) in link else (a, 1, b) for a, b in question.flows()]
        paths = {(way[0], way[-1]): tuple(link[pair] for pair in pairwise(way)) for way in hops}
        parts.append(SubCollective(choice, paths, frozenset(aggregates), root))
    return PublishedStrategy(question, tuple(parts), timed(question, parts), 0.0, "feasible")


def _run(strategy, **options):
    algorithm, unit_bytes = strategy_algorithm(strategy, **options)
    made = algorithm()
    assert judge(made) == []
    elements = strategy.question.size_bytes // unit_bytes
    rng = np.random.default_rng(1)
    count = elements * (4 if strategy.question.kind == "all_to_all" else 1)
    inputs = [rng.integers(0, 1000, count) for _ in range(4)]
    if strategy.question.kind == "broadcast":
        inputs[1:] = [one[:0] for one in inputs[1:]]
    return made, inputs, interpret(made, inputs, in_place=strategy.question.kind != "all_to_all")


@pytest.mark.parametrize("aggregates", [(), (0,), (1,), (0, 1)])
def test_a_reduce_sums_whatever_aggregates(aggregates):
    made, inputs, outputs = _run(_strategy("reduce", aggregates))
    assert outputs[0].tolist() == sum(inputs).tolist()
    sends = np.isin(made.op, [at for at, op in enumerate(OPS) if op.endswith("s")])
    # Six chunks; over the link to the root go sums, or the chunks of three ranks.
    to_root = sends & (made.tb_rank[made.tb_of] == 1) & (made.tb_send[made.tb_of] == 0)
    assert to_root.sum() == (6 if 1 in aggregates else 18)


def test_parts_have_chunks_of_their_own_size():
    _, inputs, outputs = _run(_strategy("reduce", (1,), (Choice(120, 40), Choice(100, 50))))
    assert outputs[0].tolist() == sum(inputs).tolist()


def test_an_all_reduce_goes_back_the_same_ways():
    _, inputs, outputs = _run(_strategy("reduce", (), (Choice(120, 40), Choice(120, 60))), back=True)
    assert all(output.tolist() == sum(inputs).tolist() for output in outputs)


def test_copies_come_where_they_are_wanted():
    _, inputs, outputs = _run(_strategy("broadcast"))
    assert all(output.tolist() == inputs[0].tolist() for output in outputs)
    _, inputs, outputs = _run(_strategy("all_to_all"))
    share = len(inputs[0]) // 4
    for rank, output in enumerate(outputs):
        mine = slice(rank * share, (rank + 1) * share)
        assert output.tolist() == np.concatenate([one[mine] for one in inputs]).tolist()


def test_parts_of_a_reduce_with_several_roots_are_refused():
    strategy = _strategy("reduce", (), (Choice(120, 40), Choice(120, 60)))
    first, second = strategy.parts
    other = SubCollective(second.choice, second.paths, second.aggregates, 1)
    mixed = PublishedStrategy(strategy.question, (first, other), 0.0, 0.0, "feasible")
    with pytest.raises(NotApplicableError, match="roots"):
        strategy_algorithm(mixed)
