import itertools

import pytest

from probes.sampling.packet_trains import Trains
from probes.sampling.samples import Samples
from probes.sharing.contention import behind, disturbed, held_up, kept_waiting

BETA = 1e-7
PAIRS = list(itertools.permutations(range(4), 2))


def trains(beta, middle=None):
    return Trains({4096: [4096 * beta] * 3}, [beta, middle or beta, middle or beta])


def samples(slow=(), middle=None):
    return Samples(trains={pair: trains(BETA, middle if pair in slow else None) for pair in PAIRS})


def test_a_link_that_waits_in_company_is_held_up_until_it_is_measured_alone():
    found = samples([(0, 2), (1, 3)], 2 * BETA)
    beta = dict.fromkeys(PAIRS, BETA)
    assert held_up(beta, found) == [(0, 2), (1, 3)]
    assert kept_waiting(beta, found) == {}
    found.again[0, 2] = trains(BETA)
    assert held_up(beta, found) == [(1, 3)]
    assert kept_waiting(beta, found) == {(0, 2): pytest.approx(2)}


def test_what_lost_most_comes_first():
    found = samples([(0, 2), (1, 3)], 2 * BETA)
    found.trains[1, 3] = trains(BETA, 4 * BETA)
    assert held_up(dict.fromkeys(PAIRS, BETA), found) == [(1, 3), (0, 2)]


def test_a_slow_host_holds_nobody_up():
    slow = [pair for pair in PAIRS if 3 in pair]
    beta = {pair: BETA * (3 if pair in slow else 1) for pair in PAIRS}
    assert held_up(beta, samples(slow, 3 * BETA)) == []


def test_alone_and_slower_than_in_company_is_disturbed():
    found = samples()
    found.again = {(0, 1): trains(BETA), (0, 2): trains(1.3 * BETA), (0, 3): Trains({}, [BETA])}
    assert disturbed([(0, 1), (0, 2), (0, 3)], found) == [(0, 2), (0, 3)]


THROUGH = [(0, 2), (0, 3), (1, 2), (1, 3)]


def test_of_the_links_through_a_trunk_the_one_behind_most_is_told():
    beta = {pair: BETA * (1.08 if pair == (1, 2) else 1) for pair in PAIRS}
    assert behind(beta, [THROUGH, [(2, 0), (3, 1)]], samples()) == [(1, 2)]
    assert behind(beta, [], samples()) == []


def test_a_link_through_a_trunk_that_is_as_slow_as_its_end_is_not_behind():
    beta = {pair: BETA * (3 if 2 in pair else 1) for pair in PAIRS}
    assert behind(beta, [THROUGH], samples()) == []


def test_a_trunk_lets_through_what_links_do_alone():
    beta = {pair: BETA * (2 if pair in THROUGH and pair != (1, 3) else 1) for pair in PAIRS}
    found = samples()
    found.again[1, 3] = trains(BETA)
    assert behind(beta, [THROUGH], found) == [(0, 2), (0, 3), (1, 2)]
