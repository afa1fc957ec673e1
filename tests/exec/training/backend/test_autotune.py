"""Contests between two ways to carry out a collective."""

import threading
import time

from exec.training.contest import TRIALS, Contest


class Alone:
    """A group of one rank."""

    def allgather(self, value):
        return [value]

    def Barrier(self):  # noqa: N802
        pass


class Told(Alone):
    """A rank that hears from another what its trials took."""

    def __init__(self, other):
        self.other = other

    def allgather(self, value):
        return [value, self.other]


def serve(contest, key, calls, served):
    for _ in range(calls):
        contest.serve(key, (lambda: served.append(0), lambda: (served.append(1), time.sleep(0.002))))


def test_both_ways_serve_in_turn_and_then_the_faster_one():
    contest, served = Contest(Alone()), []
    serve(contest, "large", 2 * TRIALS, served)
    assert served == [0, 1] * TRIALS
    assert contest.decided == {"large": 0}
    serve(contest, "large", 2, served)
    assert served[-2:] == [0, 0]


def test_a_trial_takes_as_long_as_its_slowest_rank():
    slow_by_the_first = [9.0, 0.0] * TRIALS
    contest = Contest(Told(slow_by_the_first))
    serve(contest, "large", 2 * TRIALS, [])
    assert contest.decided == {"large": 1}


def test_the_first_trial_of_each_way_only_warms_up():
    late = threading.Event()

    def first_slow():
        if not late.is_set():
            late.set()
            time.sleep(0.05)

    contest = Contest(Alone())
    for _ in range(2 * TRIALS):
        contest.serve("large", (first_slow, lambda: time.sleep(0.01)))
    assert contest.decided == {"large": 0}
