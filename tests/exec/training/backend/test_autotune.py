"""Which of two ways to carry out a collective is faster."""

import threading
import time

from exec.training.backend.autotune import TRIALS, Autotuner


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


def serve(autotuner, key, calls, served):
    for _ in range(calls):
        autotuner.serve(key, (lambda: served.append(0), lambda: (served.append(1), time.sleep(0.002))))


def test_both_ways_serve_in_turn_and_then_the_faster_one():
    autotuner, served = Autotuner(Alone()), []
    serve(autotuner, "large", 2 * TRIALS, served)
    assert served == [0, 1] * TRIALS
    assert autotuner.decided == {"large": 0}
    serve(autotuner, "large", 2, served)
    assert served[-2:] == [0, 0]


def test_a_trial_takes_as_long_as_its_slowest_rank():
    slow_by_the_first = [9.0, 0.0] * TRIALS
    autotuner = Autotuner(Told(slow_by_the_first))
    serve(autotuner, "large", 2 * TRIALS, [])
    assert autotuner.decided == {"large": 1}


def test_the_first_trial_of_each_way_only_warms_up():
    late = threading.Event()

    def first_slow():
        if not late.is_set():
            late.set()
            time.sleep(0.05)

    autotuner = Autotuner(Alone())
    for _ in range(2 * TRIALS):
        autotuner.serve("large", (first_slow, lambda: time.sleep(0.01)))
    assert autotuner.decided == {"large": 0}
