"""Critical paths of runs made by hand: the parts are the time, and each is where it must be."""

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st

from exec.benchmark.critical_path import RankRun, busiest, critical_path, on_one_clock, rank_times, slowest
from exec.program.trace import CONNECTION_BITS, Connection, RankTrace
from synth.network import Link, build

US = 1000


def message(connection, number=0):
    return (connection << CONNECTION_BITS) + number


class Log:
    """A rank's log, row by row; times are microseconds."""

    def __init__(self, begin_us=0, start_us=0, end_us=0, ends=None):
        self.begin_us, self.start_us, self.end_us, self.ends = begin_us, start_us, end_us, ends or {}
        self.rows, self.readers = [], []

    def step(self, begin, end, *, off=(0, 0), after=(), **columns):
        told = {"adds": 0, "takes": -1, "there": 0, "gives": -1, "left": 0, "size": 0} | columns
        self.readers += [(len(self.rows), read, 0) for read in after]
        self.rows.append((begin, end, *off, *told.values()))
        return self

    def run(self):
        columns = np.array(self.rows, dtype=np.int64).reshape(-1, 10).T
        begin, end, before, off, adds, takes, there, gives, left, size = columns
        reader = np.array(self.readers, dtype=np.int64).reshape(-1, 3).T
        trace = RankTrace(
            start_ns=self.start_us * US,
            begin_ns=begin * US,
            end_ns=end * US,
            off_before_ns=before * US,
            off_ns=off * US,
            adds=adds > 0,
            takes=takes,
            there_ns=there * US,
            gives=gives,
            left_ns=left * US,
            given_bytes=size,
            reader_step=reader[0],
            reader_message=reader[1],
            reader_ns=reader[2] * US,
            off_after_ns=0,
            ends=self.ends,
        )
        return RankRun(self.begin_us * US, self.end_us * US, trace)


def spent_us(runs, network=None):
    """Microseconds by kind and place."""
    return {(part.kind, part.where): round(part.time_s * 1e6, 6) for part in critical_path(runs, network)}


HERE = {0: Connection(0, 1, False, False)}
WIRE = {0: Connection(0, 1, True, True)}


def test_a_rank_that_begins_late_is_late_and_the_rest_is_what_it_does():
    sender = Log(0, 40, 52, HERE).step(41, 51, gives=message(0), size=64)
    receiver = Log(0, 1, 70, HERE).step(52, 69, takes=message(0), adds=True)
    runs = [sender.run(), receiver.run()]
    assert slowest(runs) == 1
    # Each rank takes 1 us to begin.
    assert spent_us(runs) == {
        ("late", "rank 0"): 39,
        ("rest", "before the first step"): 1,
        ("step", "rank 0"): 1,
        ("copy", "rank 0"): 10,
        ("step", "rank 1"): 2,
        ("add", "rank 1"): 17,
    }
    first, second = rank_times(runs)
    assert (first.late_s, second.late_s) == pytest.approx((39e-6, 0))
    assert (second.waiting_s, second.adding_s, second.other_s) == pytest.approx((50e-6, 17e-6, 2e-6))
    assert second.time_s == pytest.approx(69e-6)


def test_without_a_core_nothing_is_copied():
    alone = Log(0, 0, 100).step(30, 90, off=(25, 40)).run()
    assert spent_us([alone]) == {("core", "rank 0"): 65, ("copy", "rank 0"): 20, ("step", "rank 0"): 15}


def test_memory_that_is_still_read_is_waited_for():
    reader = Log(0, 0, 90, HERE).step(0, 80, takes=message(0))
    writer = Log(0, 0, 100, HERE).step(0, 0, gives=message(0)).step(81, 100, after=[message(0)])
    assert spent_us([writer.run(), reader.run()]) == {
        ("copy", "rank 1"): 80,
        ("step", "rank 0"): 1,
        ("copy", "rank 0"): 19,
    }


def wired(others_bytes=0):
    """Rank 0 sends 1000 bytes to 1, and others_bytes to 2 meanwhile, over one port of 10 bytes a us."""
    ends = WIRE | {1: Connection(0, 2, True, True)}
    sender = Log(0, 0, 60, ends).step(0, 0, gives=message(0), left=50, size=1000)
    sender.step(0, 0, gives=message(1), left=60, size=others_bytes)
    receiver = Log(0, 0, 200, ends).step(190, 200, takes=message(0), there=190)
    other = Log(0, 0, 100, ends).step(90, 100, takes=message(1), there=90)
    links = [Link(0, target, 0.0, 1e-7, ("nic of 0",)) for target in (1, 2)]
    return [sender.run(), receiver.run(), other.run()], build("pair", ["a", "b", "c"], links)


def test_a_message_on_its_way_is_its_links_and_what_others_take_of_the_port_is_the_ports():
    runs, network = wired(others_bytes=500)
    assert spent_us(runs, network) == {
        ("link", "0 -> 1"): 140,
        ("port", "nic of 0"): 50,
        ("copy", "rank 1"): 10,
    }
    # Nothing is the port's of what the link alone may have taken, or without a network.
    runs, network = wired(others_bytes=5000)
    assert spent_us(runs, network)["link", "0 -> 1"] == 100
    assert spent_us(runs) == {("link", "0 -> 1"): 190, ("copy", "rank 1"): 10}
    assert spent_us(wired()[0], network) == {("link", "0 -> 1"): 190, ("copy", "rank 1"): 10}


def test_ports_carry_what_their_links_carry():
    runs, network = wired(others_bytes=500)
    found = [(one.kind, one.where, one.carried_bytes, one.needed_s) for one in busiest(runs, network)]
    assert found == [
        ("port", "nic of 0", 1500, pytest.approx(150e-6)),
        ("link", "0 -> 1", 1000, pytest.approx(100e-6)),
        ("link", "0 -> 2", 500, pytest.approx(50e-6)),
    ]
    assert busiest(runs, None) == ()


def test_a_sender_waits_until_its_last_message_has_left():
    sender = Log(0, 0, 100, WIRE).step(0, 10, gives=message(0), left=95, size=1000)
    receiver = Log(0, 0, 60, WIRE).step(50, 60, takes=message(0), there=50)
    assert spent_us([sender.run(), receiver.run()]) == {
        ("step", "rank 0"): 5,
        ("link", "0 -> 1"): 85,
        ("copy", "rank 0"): 10,
    }


def test_a_message_waits_for_a_receiver_that_begins_late():
    sender = Log(0, 1, 75, WIRE).step(1, 5, gives=message(0), left=75, size=1000)
    receiver = Log(0, 61, 80, WIRE).step(70, 80, takes=message(0), there=70)
    assert spent_us([sender.run(), receiver.run()]) == {
        ("rest", "before the first step"): 1,
        ("late", "rank 1"): 60,
        ("link", "0 -> 1"): 9,
        ("copy", "rank 1"): 10,
    }
    # The sender's own wait for it to leave is the receiver's as well.
    sender = Log(0, 1, 100, WIRE).step(1, 5, gives=message(0), left=75, size=1000)
    assert spent_us([sender.run(), receiver.run()]) == {
        ("rest", "before the first step"): 1,
        ("late", "rank 1"): 60,
        ("link", "0 -> 1"): 14,
        ("step", "rank 0"): 25,
    }


def test_clocks_that_are_apart_are_put_together():
    runs, network = wired(others_bytes=500)
    ahead = [0, 7_000_000, -3_000]
    apart = on_one_clock(runs, [-each for each in ahead])
    assert spent_us(on_one_clock(apart, ahead), network) == spent_us(runs, network)


@st.composite
def random_runs(draw):
    """Ranks that take turns in a random order; their steps take and give messages, some over wires."""
    ranks, steps = draw(st.integers(1, 4)), draw(st.integers(0, 25))
    free = [draw(st.integers(0, 50)) for _ in range(ranks)]
    logs = [Log(draw(st.integers(0, begin)), begin) for begin in free]
    under_way, ends, count = [], {}, defaultdict(int)
    for _ in range(steps):
        rank = draw(st.integers(0, ranks - 1))
        options = {"adds": draw(st.booleans()), "off": (draw(st.integers(0, 9)), draw(st.integers(0, 9)))}
        begin = free[rank] + draw(st.integers(0, 5))
        own = [each for each in under_way if each[1] == rank]
        if own and draw(st.booleans()):
            name, _, sent, is_wired = own[0]
            under_way.remove(own[0])
            came = sent + draw(st.integers(0, 40)) * is_wired
            begin = max(begin, came)
            options |= {"takes": name, "there": came * is_wired}
        end = begin + draw(st.integers(0, 20))
        if ranks > 1 and draw(st.booleans()):
            target = draw(st.sampled_from([other for other in range(ranks) if other != rank]))
            number = rank * ranks + target
            ends[number] = Connection(rank, target, bool(number % 2), False)
            name = message(number, count[number])
            count[number] += 1
            under_way.append((name, target, end, number % 2))
            options |= {"gives": name, "size": 8, "left": end * (number % 2)}
        logs[rank].step(begin, end, **options)
        free[rank] = end
    for log, end in zip(logs, free, strict=True):
        log.ends, log.end_us = ends, end + draw(st.integers(0, 30))
    return [log.run() for log in logs]


@given(random_runs(), st.integers(-20, 20))
def test_the_parts_of_any_run_are_its_time_and_those_of_a_rank_are_its(runs, ahead_us):
    for given_runs in (runs, on_one_clock(runs, [0] + [ahead_us * US] * (len(runs) - 1))):
        last = slowest(given_runs)
        time_s = (given_runs[last].end_ns - given_runs[last].begin_ns) * 1e-9
        parts = critical_path(given_runs, None)
        assert sum(part.time_s for part in parts) == pytest.approx(time_s, abs=1e-12)
        assert all(part.time_s > 0 for part in parts)
    first_ns = min(run.trace.start_ns for run in runs)
    for own, run in zip(rank_times(runs), runs, strict=True):
        assert own.time_s == pytest.approx((run.end_ns - first_ns) * 1e-9, abs=1e-12)
        assert min(replace(own, rank=0).__dict__.values()) >= 0
