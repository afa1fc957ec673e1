"""Answers to ranks, whoever is lost meanwhile."""

import random

from exec.launcher.protocol import JobForRanks, Release
from exec.launcher.ranks import AllGathers, RankPhase, RankState, Responder


def world(ranks, *, survive=True):
    answers = Responder(JobForRanks("a:b", None, ranks, wires="sockets", survive=survive))
    return answers, {number: RankState(number, "a", 1, None, 0.0) for number in range(ranks)}


def give(answers, ranks, has_value):
    for rank in ranks.values():
        rank.phase, rank.has_value = RankPhase.RETURNED, rank.number in has_value


def told(answers, ranks):
    return {rank.number: answer for rank, answer in answers.due(ranks)}


def test_an_exchange_is_whole_when_all_that_are_there_have_given():
    exchanges = AllGathers(3)
    exchanges.give(0, b"a0")
    exchanges.give(0, b"a1")
    exchanges.give(2, b"c0")
    assert list(exchanges.whole(())) == []
    exchanges.give(1, b"b0")
    assert list(exchanges.whole(())) == [(b"a0", b"b0", b"c0")]
    exchanges.give(2, b"c1")
    assert list(exchanges.whole(())) == []
    assert list(exchanges.whole({1})) == [(b"a1", b"", b"c1")]
    assert list(exchanges.whole({0, 1, 2})) == []


def test_what_a_lost_rank_gave_before_counts():
    exchanges = AllGathers(2)
    exchanges.give(1, b"last")
    assert list(exchanges.whole({1})) == []
    exchanges.give(0, b"a")
    assert list(exchanges.whole({1})) == [(b"a", b"last")]


def test_nobody_is_let_go_before_all_have_returned_and_the_value_is_handed_over():
    answers, ranks = world(3)
    ranks[0].phase = ranks[1].phase = RankPhase.RETURNED
    ranks[0].has_value = True
    assert told(answers, ranks) == {}
    ranks[2].phase = RankPhase.RETURNED
    assert told(answers, ranks) == {0: Release(True)}
    assert told(answers, ranks) == {}
    ranks[0].phase = RankPhase.FINISHED
    assert told(answers, ranks) == {1: Release(False), 2: Release(False)}
    assert told(answers, ranks) == {}


def test_only_rank_0_is_asked_where_the_run_does_not_survive():
    answers, ranks = world(2, survive=False)
    give(answers, ranks, {1})
    assert told(answers, ranks) == {0: Release(False), 1: Release(False)}


def test_whoever_is_lost_when_all_others_are_let_go_and_the_lowest_that_can_gives_the_value():
    chance = random.Random(7)
    for _ in range(300):
        answers, ranks = world(4)
        has_value = {number for number in ranks if chance.random() < 0.5}
        give(answers, ranks, has_value)
        asked = []
        while any(rank.connected for rank in ranks.values()):
            due = told(answers, ranks)
            asked += [number for number, answer in due.items() if answer.hand_over]
            dying = {number for number in ranks if ranks[number].connected and chance.random() < 0.3}
            for number in dying:
                ranks[number].lose("gone")
            for number in due.keys() - dying:
                ranks[number].phase = RankPhase.FINISHED
        handed_over = [number for number in asked if ranks[number].phase is RankPhase.FINISHED]
        left = [number for number in has_value if ranks[number].phase is RankPhase.FINISHED]
        assert handed_over == ([min(left)] if left else [])
