"""Merged messages: the same result in fewer messages, each as long as allowed."""

from __future__ import annotations

import pytest

from synth.check import check, judge
from synth.collective import collective
from synth.compiler import lower
from synth.methods import doubling, host_halving, ring
from synth.networks import family, pod
from synth.program import OPS
from synth.schedules import Schedule

_S = OPS.index("s")


def _sends(schedule: Schedule, most_chunks: int) -> int:
    program = lower(schedule, most_chunks=most_chunks, fuse=False)
    assert judge(program) == []
    assert program.count.max() <= most_chunks
    sent = program.count[program.op == _S]
    assert sent.sum() == schedule.sends
    return len(sent)


@pytest.mark.parametrize(("laps", "hosts"), [(1, 2), (2, 3), (1, 4), (2, 4)])
def test_messages_of_adjacent_chunks_become_one(laps: int, hosts: int) -> None:
    network = pod(f"dgx-a100:{hosts}")
    ranks = network.ranks
    schedule = host_halving.synthesize(network, collective("all_reduce", ranks, ranks * laps), 1 << 16)
    assert check(schedule) == []
    assert _sends(schedule, 1) == schedule.sends
    steps = (hosts - 1).bit_length()
    whole = _sends(schedule, 1 << 10)
    # Halving over hosts that are no power of two sends some ranges in two parts, as they wrap around.
    parts = 1 if hosts & (hosts - 1) == 0 else 2
    assert whole <= 2 * ranks * laps * (7 * parts + steps * parts)
    assert whole <= _sends(schedule, 2) <= schedule.sends


def test_halving_and_doubling_takes_a_message_a_step() -> None:
    network = family("fully_connected:8", [1e-6], [1e9])
    schedule = doubling.halving_doubling(network, collective("all_reduce", 8, 8), 1 << 10)
    assert _sends(schedule, 8) < schedule.sends / 2


def test_a_ring_of_single_chunks_stays() -> None:
    network = family("ring:5", [1e-6], [1e9])
    schedule = ring.synthesize(network, collective("all_gather", 5, 1), 1 << 10)
    assert _sends(schedule, 64) == schedule.sends
