"""Copies and sums in memory: a cost for each size, whatever the machine."""

from probes.sampling.memory_speed import SIZES_BYTES, memory_speed


class Alone:
    """A world of one rank."""

    def Barrier(self):  # noqa: N802
        pass


def test_every_size_has_a_cost_that_a_machine_can_have():
    for costs in memory_speed(Alone()):
        assert len(costs) == len(SIZES_BYTES)
        assert all(1e-13 < cost < 1e-6 for cost in costs)
