"""Choice of the faster of two ways to carry out a collective."""

import itertools
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
    """A rank that hears from another what its trials took, ``of_the_other`` again and again."""

    def __init__(self, *of_the_other):
        self.of_the_other = itertools.cycle(of_the_other)

    def allgather(self, value):
        return [value, next(self.of_the_other)]


def serve(autotuner, key, calls, served):
    for _ in range(calls):
        autotuner.serve(key, (lambda: served.append(0), lambda: (served.append(1), time.sleep(0.002))))


def test_both_ways_serve_in_turn_and_then_the_faster_one():
    autotuner, served = Autotuner(Told(0.05, 0.06)), []
    serve(autotuner, "large", 2 * TRIALS, served)
    assert served == [0, 1] * TRIALS
    assert autotuner.decided == {"large": 0}
    serve(autotuner, "large", 2, served)
    assert served[-2:] == [0, 0]


def test_a_trial_takes_as_long_as_its_slowest_rank():
    autotuner = Autotuner(Told(0.07, 0.05))
    serve(autotuner, "large", 2 * TRIALS, [])
    assert autotuner.decided == {"large": 1}


def test_a_way_that_takes_much_longer_is_not_tried_again():
    autotuner, served = Autotuner(Told(9.0, 0.05)), []
    serve(autotuner, "large", 6, served)
    assert autotuner.decided == {"large": 1}
    assert served == [0, 1, 0, 1, 1, 1]


def test_a_first_trial_that_took_long_condemns_no_way():
    autotuner = Autotuner(Told(9.0, 0.05, 0.06, 0.07, 0.06, 0.07))
    serve(autotuner, "large", 2 * TRIALS, [])
    assert autotuner.decided == {"large": 0}


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
