import time

import pytest
from wire import beside, wires

from probes.sampling import latency, packet_trains


@pytest.mark.parametrize("delay_s", [1e-4, 2e-3])
def test_no_round_trip_is_shorter_than_twice_the_flight(delay_s):
    here, there = wires(delay_s)
    times = beside(lambda: latency.round_trips(here, 1, 0.02), lambda: latency.answer(there, 0))
    assert len(times) >= 20
    assert times.min() >= 2 * delay_s


def test_a_fast_pair_plays_more_but_not_without_end():
    here, there = wires()
    times = beside(lambda: latency.round_trips(here, 1, 1e6), lambda: latency.answer(there, 0))
    assert len(times) == 2000


def test_balls_that_come_late_again_and_again_do_not_prolong_the_look():
    here, there = wires()
    send, sent = there.Send, 0

    def losing(buffer, peer, tag):
        nonlocal sent
        sent += 1
        # As a lost packet, which is sent again after a while.
        time.sleep(0.01 if sent > 20 and sent % 2 else 0)
        send(buffer, peer, tag)

    there.Send = losing
    times = beside(lambda: latency.round_trips(here, 1, 0.1), lambda: latency.answer(there, 0))
    assert 20 <= len(times) < 200
    assert times.min() < 0.01


def test_a_receiver_times_the_trains_that_it_asked_for():
    here, there = wires()
    found = beside(lambda: packet_trains.receive(here, 1, 0.001), lambda: packet_trains.send(there, 0))
    # A wire that looks slow, because no rank has time for it, is measured twice.
    assert len(found.seconds) >= 2
    assert all(values and min(values) > 0 for values in found.seconds.values())
    assert set(there.sent_bytes) >= set(found.seconds)


@pytest.mark.parametrize("delay_s", [0.0, 2e-3])
def test_no_train_over_a_slow_wire_looks_faster_than_its_bytes(delay_s):
    here, there = wires(delay_s)
    send = there.Send

    def slowly(buffer, peer, tag):
        time.sleep(len(buffer) * 1e-7)
        send(buffer, peer, tag)

    there.Send = slowly
    found = beside(lambda: packet_trains.receive(here, 1, 0.001), lambda: packet_trains.send(there, 0))
    # No faster than its bytes, however late its messages are looked at.
    assert min(found.whole_s_per_byte) >= 1e-7
    assert packet_trains.is_slow(min(found.whole_s_per_byte))
