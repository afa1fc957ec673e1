"""When a pair of hosts counts as severed, and when it is used again."""

import pytest

from exec.adaptive.severed import FIRST_HOLD_S, Severed, is_connected, pair_of, without_pairs
from synth.network import Link, build

# Ranks 0 and 1 on a host, 2 and 3 on another, 4 alone.
HOSTS = [0, 0, 2, 2, 4]


def even(ranks=5):
    links = [Link(a, b, 1e-5, 1e-9) for a in range(ranks) for b in range(ranks) if a != b]
    return build("even", [f"host {HOSTS[rank]}" for rank in range(ranks)], links)


def cut(now_s=10.0, made=None, ends=(1, 3)):
    made = made or Severed(HOSTS)
    made.stalled(*ends, now_s)
    heard_s = dict.fromkeys(range(5), now_s)
    return made, made.found(heard_s, lambda pairs: True, now_s)


def test_a_pair_whose_hosts_both_live_is_severed_once():
    made, found = cut()
    assert found == ((0, 2),) == made.pairs
    made.stalled(2, 0, 11.0)
    assert made.found(dict.fromkeys(range(5), 11.0), lambda pairs: True, 11.0) == ()


def test_a_host_that_is_not_heard_any_more_is_no_matter_of_a_link():
    made = Severed(HOSTS)
    made.stalled(1, 3, 10.0)
    heard_s = {**dict.fromkeys(range(5), 10.4), 3: 9.9}
    assert made.found(heard_s, lambda pairs: True, 10.4) == ()
    del heard_s[3]
    assert made.found(heard_s, lambda pairs: True, 10.5) == ()
    assert made.found(dict.fromkeys(range(5), 10.6), lambda pairs: True, 10.6) == ()


def test_a_host_that_is_late_with_its_sign_of_life_is_waited_for():
    made = Severed(HOSTS)
    made.stalled(1, 3, 10.0)
    assert made.found({**dict.fromkeys(range(5), 10.4), 3: 9.9}, lambda pairs: True, 10.4) == ()
    assert made.found(dict.fromkeys(range(5), 10.6), lambda pairs: True, 10.6) == ((0, 2),)


def test_ranks_of_one_host_are_no_pair_of_hosts():
    assert cut(ends=(2, 3))[1] == ()


def test_pairs_without_which_some_reach_nobody_are_kept():
    network, made = even(), Severed(HOSTS)
    heard_s = dict.fromkeys(range(5), 10.0)

    def goes_on(pairs):
        return is_connected(without_pairs(network, HOSTS, range(5), pairs))

    for ends in ((0, 4), (2, 4)):
        made.stalled(*ends, 10.0)
    assert made.found(heard_s, goes_on, 10.0) == ((0, 4),)


def test_a_pair_carries_again_after_new_connections_came_about_for_long_enough():
    made, _ = cut(10.0)
    made.tried((0, 2), False, 11.0)
    assert made.healed(100.0) == {}
    made.tried((0, 2), True, 100.0)
    made.tried((0, 2), False, 101.0)
    made.tried((0, 2), True, 102.0)
    assert made.healed(102.0 + FIRST_HOLD_S - 0.1) == {}
    assert made.healed(102.0 + FIRST_HOLD_S) == {(0, 2): pytest.approx(92.0 + FIRST_HOLD_S)}
    assert made.pairs == ()


def test_a_pair_that_fails_again_and_again_is_held_longer_each_time():
    made, holds_s = Severed(HOSTS), []
    for turn in range(12):
        cut(1000.0 * turn, made)
        made.tried((0, 2), True, 1000.0 * turn)
        holds_s.append(made.hold_s((0, 2)))
        assert made.healed(1000.0 * turn + holds_s[-1] - 0.01) == {}
        assert len(made.healed(1000.0 * turn + holds_s[-1])) == 1
    assert holds_s[:3] == [FIRST_HOLD_S, 2 * FIRST_HOLD_S, 4 * FIRST_HOLD_S]
    assert holds_s == sorted(holds_s) and holds_s[-1] == holds_s[-2] < 1000


def test_links_between_all_ranks_of_two_hosts_are_left_out():
    left = without_pairs(even(), HOSTS, range(5), [(0, 2)])
    found = set(zip(left.src.tolist(), left.dst.tolist(), strict=True))
    assert not {(a, b) for a in (0, 1) for b in (2, 3)} & found
    assert {(0, 1), (2, 3), (0, 4), (4, 3)} <= found and left.links == 20 - 8
    assert pair_of(HOSTS, 3, 1) == (0, 2)
