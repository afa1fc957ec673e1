"""Copies and sums in memory: a cost for each size, whatever the machine."""

import os

import numpy as np

from probes.live import memory_timing as module
from probes.live.memory import Room
from probes.live.memory_timing import SIZES_BYTES, memory_speed
from probes.live.process_memory import read_process


class Alone:
    """A world of one rank."""

    def Barrier(self):  # noqa: N802
        pass

    def Get_rank(self):  # noqa: N802
        return 0

    def allgather(self, mine):
        return [mine]


def test_every_size_has_a_cost_that_a_machine_can_have():
    speed = memory_speed(Alone())
    assert speed.sizes_bytes == SIZES_BYTES[: len(speed.sizes_bytes)]
    for costs in (speed.copies, speed.sums, speed.fetches, speed.written_fetches):
        assert len(costs) == len(speed.sizes_bytes)
        assert all(1e-13 < cost < 1e-6 for cost in costs)


def test_where_nobody_may_read_the_memory_of_others_nothing_is_said_of_it(monkeypatch):
    monkeypatch.setattr(module, "reader_of", lambda *_: lambda: False)
    monkeypatch.setattr(module, "SIZES_BYTES", SIZES_BYTES[:2])
    speed = memory_speed(Alone())
    assert speed.fetches == speed.written_fetches == ()


def test_operands_take_a_small_part_of_what_memory_is_free(monkeypatch):
    monkeypatch.setattr(module, "rooms", lambda: (Room(("m",), "memory", 24 * 3 << 16),))
    assert memory_speed(Alone()).sizes_bytes == SIZES_BYTES[:2]
    monkeypatch.setattr(module, "rooms", lambda: ())
    assert memory_speed(Alone()).sizes_bytes == SIZES_BYTES[:1]


def test_memory_is_read_of_this_process_and_not_of_one_that_is_not_there():
    given, found = np.arange(100), np.zeros(100, int)
    addresses = given.ctypes.data, found.ctypes.data
    assert read_process(os.getpid(), *addresses, given.nbytes)
    assert (found == given).all()
    assert not read_process((1 << 22) + 1, *addresses, given.nbytes)
