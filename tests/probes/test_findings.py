import itertools

import pytest

from probes.columns import floats
from probes.findings import Names, asymmetric, describe, noisy, slow_parts
from probes.samples import Place

PAIRS = list(itertools.permutations(range(6), 2))


@pytest.mark.parametrize(
    ("best", "middle", "high", "found"),
    [
        (1.5, 1.5, 1.01, [0]),
        (1.5, 1.5, 1.6, []),
        (1.5, 1.0, 1.01, []),
        (1.05, 1.5, 1.01, []),
    ],
)
def test_a_pair_is_asymmetric_at_best_in_the_middle_and_beyond_its_intervals(best, middle, high, found):
    columns = [floats([first, 1.0]) for first in (best, middle, best)]
    assert asymmetric([(0, 1), (1, 0)], *columns, floats([best, high])) == found


def test_a_link_without_its_way_back_is_not_asymmetric():
    one = floats([1.0])
    assert asymmetric([(0, 1)], one, one, one, one) == []


def test_noisy_is_twice_its_best():
    assert noisy(floats([1, 1, 1]), floats([1, 2.5, 1]), floats([1.5, 2.5, 3])) == [1, 2]


def test_a_sentence_names_the_worst_first_and_counts_the_rest():
    worst = [(float(times), f"link {times}") for times in range(1, 9)]
    text = describe("slow", worst)
    assert text.startswith("8 links slow: link 8, link 7, ")
    assert text.endswith(", link 3 and 2 more")
    assert describe("slow", worst[:1]) == "1 link slow: link 1"


@pytest.mark.parametrize(
    ("hosts", "link"),
    [("aaa", "0 → 2"), ("abc", "a → c"), ("aab", "rank 0 (a) → rank 2 (b)")],
)
def test_a_link_is_called_by_host_where_that_says_it_all(hosts, link):
    assert Names(hosts).link(0, 2) == link


def test_a_host_is_slow_when_all_its_ranks_are_and_ranks_are_judged_inside_it_too():
    places = [Place(f"gpu{rank // 3}", 8) for rank in range(12)]
    pairs = list(itertools.permutations(range(12), 2))
    cost = {pair: 1e-10 if pair[0] // 3 == pair[1] // 3 else 1e-9 for pair in pairs}
    for pair in pairs:
        if pair[0] // 3 != pair[1] // 3 and pair[1] // 3 == 2:
            cost[pair] = 4e-9
        if pair[0] == 4 and pair[1] // 3 == 1:
            cost[pair] = 2e-10
    beta = floats([cost[pair] for pair in pairs])
    parts = slow_parts(pairs, beta, beta, places)
    assert [part.text for part in parts] == [
        "host gpu2 receives at 25% of the others (0.25 GB/s)",
        "rank 4 (gpu1) sends at 50% of the others (5 GB/s)",
    ]
    assert [part.word for part in parts] == ["slow_receiver", "slow_sender"]
    assert [len(part.rows) for part in parts] == [27, 2]
    assert slow_parts(pairs, beta, 8 * beta, places) == []


def test_one_slow_nic_of_several_is_that_of_its_rank():
    places = [Place(f"gpu{rank // 2}", 8) for rank in range(8)]
    pairs = list(itertools.permutations(range(8), 2))
    beta = floats([1e-8 if src == 3 and dst // 2 != 1 else 1e-9 for src, dst in pairs])
    parts = slow_parts(pairs, beta, beta, places)
    assert [part.text for part in parts] == ["rank 3 (gpu1) sends at 10% of the others (0.1 GB/s)"]
