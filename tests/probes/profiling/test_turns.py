"""In which order links are measured: urgent ones first, then by age, and every link once."""

import itertools

import numpy as np
import pytest
from drawn_examples import drawn
from hypothesis import given, settings, strategies as st

from probes.base.columns import floats, ints
from probes.profiling.budget import in_turn, links_at
from probes.profiling.history import History
from probes.profiling.options import Effort
from probes.sampling.samples import Place


def history(hosts, measured_s=None):
    pairs = list(itertools.permutations(range(len(hosts)), 2))
    zeros = floats(np.zeros(len(pairs)))
    src, dst = (ints([pair[end] for pair in pairs]) for end in (0, 1))
    measured = zeros if measured_s is None else floats(measured_s)
    return History(
        tuple(hosts), src, dst, floats([]), floats([]), floats([]), zeros, zeros, measured, 0.0, floats([])
    )


def rounds_of(turns):
    found = {}
    for at, *pair in zip(turns.round.tolist(), turns.src.tolist(), turns.dst.tolist(), strict=True):
        found.setdefault(at, []).append(tuple(pair))
    return list(found.values())


CLUSTERS = st.lists(st.integers(1, 4), min_size=2, max_size=6).map(
    lambda slots: [f"gpu{host}" for host, count in enumerate(slots) for _ in range(count)]
)


@settings(max_examples=drawn(60), deadline=None)
@given(CLUSTERS, st.data())
def test_every_wanted_link_comes_once_and_no_rank_sends_or_gets_twice_in_a_round(hosts, data):
    known = history(hosts)
    masks = st.lists(st.booleans(), min_size=len(known.src), max_size=len(known.src)).map(np.array)
    wanted, urgent = data.draw(masks), data.draw(masks)
    rounds = rounds_of(in_turn(known, wanted, urgent))
    pairs = list(zip(known.src.tolist(), known.dst.tolist(), strict=True))
    assert sorted(itertools.chain(*rounds)) == sorted(itertools.compress(pairs, wanted))
    for ring in rounds:
        assert len({src for src, _ in ring}) == len({dst for _, dst in ring}) == len(ring)
    # As soon as a round has no urgent link, none follows.
    first = {pair for pair, wants, hurries in zip(pairs, wanted, urgent, strict=True) if wants and hurries}
    has = [bool(first.intersection(ring)) for ring in rounds]
    assert has == sorted(has, reverse=True)


@pytest.mark.parametrize("ranks", [4, 9, 32])
def test_where_some_rounds_fit_every_link_has_its_turn_before_any_has_a_second(ranks):
    known = history([f"gpu{rank}" for rank in range(ranks)])
    every, none = np.ones(len(known.src), dtype=bool), np.zeros(len(known.src), dtype=bool)
    measured = np.zeros(len(known.src))
    row = {pair: at for at, pair in enumerate(zip(known.src.tolist(), known.dst.tolist(), strict=True))}
    fits = max(1, ranks // 4)
    for run in range(1, 1 + -(-(ranks - 1) // fits)):
        turns = in_turn(history(known.hosts, measured), every, none)
        for pair in itertools.chain(*rounds_of(turns)[:fits]):
            measured[row[pair]] = run
    assert measured.all()


def test_a_rank_is_the_nth_of_its_host_and_those_that_are_gone_are_left_out():
    known = history(["a", "b", "a"])
    every = np.ones(len(known.src), dtype=bool)
    turns = in_turn(known, every, ~every)
    # a's two ranks come first now.
    here = [Place("a", 4), Place("a", 4), Place("b", 4)]
    now = {0: 0, 1: 2, 2: 1}
    plan = Effort(turns=turns).plan(here)
    assert [list(ring) for ring in plan.rounds] == [
        [(now[src], now[dst]) for src, dst in ring] for ring in rounds_of(turns)
    ]
    left = Effort(turns=turns).plan(here[:2]).rounds
    assert sorted(itertools.chain(*left)) == [(0, 1), (1, 0)]
    # All links are measured if none of the earlier hosts is present.
    others = Effort(turns=turns).plan([Place("x", 4), Place("y", 4)]).rounds
    assert sorted(itertools.chain(*others)) == [(0, 1), (1, 0)]


def test_all_links_of_the_host_that_links_have_in_common_are_meant():
    known = history(["a", "b", "c"])
    pairs = list(zip(known.src.tolist(), known.dst.tolist(), strict=True))
    sends = [pairs.index((0, 1)), pairs.index((0, 2))]
    assert [pair for pair, at in zip(pairs, links_at(known, [sends]), strict=True) if at] == [
        pair for pair in pairs if 0 in pair
    ]
    assert links_at(known, [[pairs.index((0, 1))]]).all()
    assert not links_at(known, []).any()
