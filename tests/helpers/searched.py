"""Calls of a test's ranks that try their pool: tasks of their own, and what rank 0 does with them."""

import math
import os
import time

from exec.search.rank_pool import pools_of
from synth.portfolio.worker_pool import ProcessPool


def rooted(number):
    """A square root, with the process that found it and its parent, the rank."""
    return math.sqrt(number), os.getpid(), os.getppid()


def sleeps(seconds):
    time.sleep(seconds)
    return seconds


def dies(status):
    os._exit(status)


def roots_of(comm, numbers, progress):
    """The root of each number, in a pool for each half of them, and how many processes found them."""
    with pools_of(comm, progress) as pools:
        if pools is None:
            return None
        found, processes = [], set()
        for half in (numbers[::2], numbers[1::2]):
            with pools(max(1, comm.Get_size() - 1), rooted) as pool:
                tickets = [pool.submit(number) for number in half]
                while len(pool.finished) < len(half):
                    pool.wait()
            found.append([pool.finished[ticket][0] for ticket in tickets])
            processes |= {pool.finished[ticket][1] for ticket in tickets}
            assert pool.peak_bytes > 1 << 20
        return found, len(processes), pools is ProcessPool


def leaves_early(comm, arguments, progress):
    """Return what a pool closed at once leaves to the next one, and whether a withdrawn task began."""
    with pools_of(comm, progress) as pools:
        if pools is None:
            return None
        with pools(comm.Get_size() - 1, sleeps) as pool:
            tickets = [pool.submit(600) for _ in range(comm.Get_size())]
            pool.withdraw(tickets[-1])
            pool.wait(time.perf_counter() + 1.0)
            early = dict(pool.finished)
        with pools(comm.Get_size() - 1, sleeps) as pool:
            pool.submit(0.0)
            pool.wait()
        return early, pool.finished


def raises(comm, number, progress):
    with pools_of(comm, progress) as pools:
        if pools is None:
            return None
        with pools(max(1, comm.Get_size() - 1), rooted) as pool:
            pool.submit(number)
            pool.wait()
        return pool.finished


def loses_a_process(comm, status, progress):
    with pools_of(comm, progress) as pools:
        if pools is None:
            return None
        with pools(comm.Get_size() - 1, dies) as pool:
            pool.submit(status)
            pool.wait()
        return pool.finished
