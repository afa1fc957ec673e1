"""Predicts the time of a program on a measured network: between FIFO and fair sharing of ports."""

from __future__ import annotations

from collections.abc import Sequence

from synth.compiler.lower import lower
from synth.network import Network
from synth.program import Program
from synth.schedule import Schedule
from synth.simulation.fair_program import fair_time_s
from synth.simulation.program import Costs, simulate_program

__all__ = ["MOST_SENDS", "predicted_s", "soonest"]

# What a step between hosts costs a rank, and the slots that a connection has there.
_COSTS = Costs(step_s=10e-6, fifo=8)
# Through shared memory a step is a hundredth of one over sockets: two ranks sum up 1 KiB in 5 us.
_COSTS_OF_ONE_HOST = Costs(fifo=8)
# Beyond so many steps times links the flows are not followed one by one.
_MOST_WORK = 20_000_000
# A prediction is good to about this; by less no other schedule is taken for sooner than the first.
_CLEARLY = 0.94
# Links whose betas are further apart than this are not alike.
_UNEVEN = 1.2
# Longer schedules are taken as they are: compiling them would take longer than making them.
MOST_SENDS = 20_000


def predicted_s(program: Program, network: Network, chunk_bytes: int, costs: Costs | None = None) -> float:
    """Seconds on ``network`` with chunks of ``chunk_bytes``; the geometric mean of two models.

    ``costs`` are those of steps between hosts, or within one where the network is one host.

    Transfers that meet at a port either wait for each other, in the schedule's order, or slow each other
    down. TCP does something between: who began first has filled the queues. Where programs are large
    only the first is asked. Raises UsageError where the network lacks a rank or a link of the program.
    """
    chunk_bytes = max(1, chunk_bytes)
    costs = costs or (_COSTS if len(set(network.hosts)) > 1 else _COSTS_OF_ONE_HOST)
    in_turn_s = simulate_program(program, network, chunk_bytes, costs).time_s
    if program.steps * network.links > _MOST_WORK:
        return in_turn_s
    fair_s = fair_time_s(program, network, chunk_bytes, costs)
    return float((in_turn_s * fair_s) ** 0.5)


def soonest(schedules: Sequence[Schedule]) -> Schedule:
    """The schedule whose program is predicted to end first, if clearly before the first of them.

    The first is taken, too, where it is long, or where one rank is alone. Of those that are not clearly later
    than the soonest a forest is taken where links between hosts differ: what is predicted of forests was
    measured, to 5 %; other trees, in which a slow rank passes sums on while results are on their way to it,
    took up to a third longer. On one host, where each message costs its ranks more than a model of links
    knows, it is the one with the fewest sends.
    """
    first, *others = schedules
    if first.sends > MOST_SENDS or not first.network.links:
        return first
    compared = [first, *(one for one in others if one.sends <= MOST_SENDS)]
    # On one host, too, what steps cost decides: by links alone a forest of a thousand chunks would win.
    expected_s = [predicted_s(lower(one), one.network, one.chunk_bytes, _COSTS) for one in compared]
    near = [at for at, time_s in enumerate(expected_s) if time_s < min(expected_s) / _CLEARLY]
    beta = first.network.beta_s_per_byte[~first.network.within_host]
    if not len(beta):
        return compared[min(near, key=lambda at: (compared[at].sends, expected_s[at]))]
    uneven = beta.max() > _UNEVEN * beta.min()
    forests = [at for at in near if uneven and compared[at].method == "forest"]
    return compared[min(forests or ([0] if 0 in near else near), key=lambda at: expected_s[at])]
