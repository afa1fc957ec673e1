"""The job of equal collectives: a rank that computes busy uses a core."""

import time

from exec.adaptive import iterations


def test_a_busy_rank_uses_processor_time():
    before_s = time.thread_time()
    iterations._use_core(0.02)
    assert time.thread_time() - before_s >= 0.02
