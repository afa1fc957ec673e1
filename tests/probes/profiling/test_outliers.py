import itertools

import pytest

from probes.base.columns import floats
from probes.profiling.outliers import Names, asymmetric, describe, noisy, slow_parts
from probes.sampling.samples import Place
from synth.bounds.lower_bounds import bounds
from synth.collective import collective
from synth.network import Link, build

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
        "host gpu2 receives at 25% of the others (0.25 GB/s): "
        "a ring all_reduce takes 4.0 times as long, any other at least 2.7 times",
        "rank 4 (gpu1) sends at 50% of the others (5 GB/s): "
        "a ring all_reduce takes 2.0 times as long, any other at least 1.5 times",
    ]
    assert [part.word for part in parts] == ["slow_receiver", "slow_sender"]
    assert [len(part.rows) for part in parts] == [27, 2]
    assert slow_parts(pairs, beta, 8 * beta, places) == []


def test_one_slow_nic_of_several_is_that_of_its_rank():
    places = [Place(f"gpu{rank // 2}", 8) for rank in range(8)]
    pairs = list(itertools.permutations(range(8), 2))
    beta = floats([1e-8 if src == 3 and dst // 2 != 1 else 1e-9 for src, dst in pairs])
    parts = slow_parts(pairs, beta, beta, places)
    assert [part.text for part in parts] == [
        "rank 3 (gpu1) sends at 10% of the others (0.1 GB/s): a ring all_reduce takes 10.0 times as long"
    ]


def slow(ranks, bandwidth_of, places=None):
    pairs = list(itertools.permutations(range(ranks), 2))
    beta = floats([1e-9 / bandwidth_of(src, dst) for src, dst in pairs])
    return slow_parts(pairs, beta, beta, places or [Place(f"n{rank + 1}", 8) for rank in range(ranks)])


def test_the_worst_is_told_first_whatever_it_is():
    parts = slow(4, lambda src, dst: min({0: 0.4, 2: 0.1}.get(src, 1), {0: 0.4}.get(dst, 1)))
    assert [part.text.partition(" (")[0] for part in parts] == [
        "host n3 sends at 10% of the others",
        "host n1 sends at 40% of the others",
        "host n1 receives at 40% of the others",
    ]
    parts = slow(5, lambda src, dst: 0.05 if (src, dst) == (1, 2) else 0.3 if src == 4 else 1)
    assert [part.word for part in parts] == ["outlier", "slow_sender"]


def test_gpus_with_nvlink_make_no_others_slow():
    inside = [Place("a", 8)] * 4
    assert slow(4, lambda src, dst: 1.0 if {src, dst} == {0, 1} else 0.1, inside) == []
    pairwise = slow(8, lambda src, dst: 1.0 if src // 2 == dst // 2 else 0.1, [Place("a", 8)] * 8)
    assert pairwise == []


def test_that_others_take_no_longer_is_not_told_as_a_cost():
    (part,) = slow(6, lambda src, dst: 1 / 1.68 if src == 0 else 1.0)
    assert part.text.endswith("a ring all_reduce takes 1.7 times as long")


@pytest.mark.parametrize(("hosts", "times"), [(3, 2.5), (4, 2.5), (8, 10.0)])
def test_what_a_slow_host_costs_at_least_is_what_is_proven_of_its_network(hosts, times):
    def least_s(slow_by):
        links = [
            Link(src, dst, 0.0, 1e-9 * (slow_by if src == 0 else 1), (f"{src} out", f"{dst} in"))
            for src, dst in itertools.permutations(range(hosts), 2)
        ]
        network = build("test", [f"n{rank + 1}" for rank in range(hosts)], links)
        found = bounds(network, collective("all_reduce", hosts, 10 * hosts), 1000, fluid=True)
        return max(bound.time_s for bound in found)

    (part,) = slow(hosts, lambda src, dst: 1 / times if src == 0 else 1.0)
    assert part.text.endswith(f"any other at least {least_s(times) / least_s(1):.1f} times")
