"""Rounds of all hosts at once: each host sends in each, halves are cut by racks, all flows arrive."""

from probes.profiling import flows_of


def test_halves_are_cut_in_the_order_of_racks():
    hosts = ("n1", "n2", "n3", "n4")
    rounds = flows_of(hosts, {"n1": "a", "n3": "a", "n2": "b", "n4": "b"})
    assert list(rounds) == ["all NICs", "across the middle", "back across the middle"]
    assert rounds["across the middle"] == [(0, 1), (2, 3)]
    assert rounds["back across the middle"] == [(1, 0), (3, 2)]
    assert sorted(src for src, _ in rounds["all NICs"]) == [0, 1, 2, 3]
    assert sorted(dst for _, dst in rounds["all NICs"]) == [0, 1, 2, 3]


def test_ranks_send_to_their_counterparts_and_an_odd_host_stays_in_the_middle():
    hosts = tuple(f"n{at // 2}" for at in range(10))
    across = flows_of(hosts, {})["across the middle"]
    assert across == [(0, 6), (1, 7), (2, 8), (3, 9)]
    assert flows_of(hosts[:6], {}) == {}
