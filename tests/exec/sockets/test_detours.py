"""Messages that may come two ways arrive once and in order."""

import random

from exec.sockets.detours import MUTE_S, OrderedMessages, Sent


def test_each_message_is_taken_once_and_in_order_whatever_way_it_comes():
    chance = random.Random(3)
    for _ in range(200):
        count = chance.randrange(1, 20)
        coming = [number for number in range(count) for _ in range(chance.randrange(1, 4))]
        chance.shuffle(coming)
        arrivals, taken = OrderedMessages(), []
        for number in coming:
            taken += arrivals.take(number, b"%d" % number)
        assert taken == [b"%d" % number for number in range(count)]


def test_a_message_that_is_missing_holds_up_those_after_it():
    arrivals = OrderedMessages()
    assert arrivals.take(1, b"1") == []
    assert arrivals.take(2, b"2") == []
    assert arrivals.take(0, b"0") == [b"0", b"1", b"2"]
    assert arrivals.take(1, b"1") == []


def sent(sizes, nowhere=True):
    made, end = Sent(lambda: nowhere), 0
    for size in sizes:
        end += size
        number = made.next_number()
        made.note(number, end, b"%d" % number)
    return made


def test_what_is_acknowledged_is_forgotten():
    made = sent([10, 20, 30])
    made.look(30, 0.0)
    assert made.to_pass(7) == [(2, b"2")]
    made.look(60, 0.0)
    assert not made.waiting


def test_messages_go_round_only_where_nothing_is_acknowledged_for_a_while():
    made = sent([10, 20])
    made.look(5, 100.0)
    assert not made.mute
    made.look(5, 100.0 + MUTE_S + 0.1)
    assert made.mute
    made.look(10, 101.0)
    assert not made.mute and made.waiting


def test_a_peer_that_has_no_room_is_not_mute():
    made = sent([10], nowhere=False)
    made.look(0, 1e9)
    assert not made.mute


def test_a_relay_is_given_each_message_once_and_another_all_of_them():
    made = sent([10, 20])
    assert [number for number, _ in made.to_pass(3)] == [0, 1]
    assert made.to_pass(3) == []
    number = made.next_number()
    made.note(number, 60, b"2")
    assert [number for number, _ in made.to_pass(3)] == [2]
    assert [number for number, _ in made.to_pass(4)] == [0, 1, 2]
