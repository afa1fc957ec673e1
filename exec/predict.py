"""Predicts the time of a program on a measured network: between FIFO and fair sharing of ports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from exec.program.wires import FETCHED_BYTES
from probes.columns import Floats, floats
from probes.link_costs import HostMemory
from synth.compiler.lower import lower
from synth.network import Network
from synth.program import OPS, Program
from synth.schedule import Schedule
from synth.simulation.fair_program import fair_time_s
from synth.simulation.program import Costs, ProgramTiming, simulate_program

__all__ = ["MOST_SENDS", "Prediction", "predicted_s", "prediction", "soonest"]

# What a step between hosts costs a rank, and the slots that a connection has there. It costs as much where a
# host has fewer cores than ranks: who waits for a message has to get a core as well (benchmarks/one_host.py).
_COSTS = Costs(step_s=10e-6, fifo=8)
# Through shared memory a step is a hundredth of one over sockets: two ranks sum up 1 KiB in 5 us.
_COSTS_OF_ONE_HOST = Costs(fifo=8)
# Which operations copy, which add, and which copy once more what they have just made.
_COPY, _SUM, _AGAIN = ("s", "r", "cpy", "rcs"), ("re", "rrc", "rrs", "rrcs"), ("rcs", "rrcs")
_RECEIVED = tuple(OPS.index(op) for op in ("r", "rcs", "rrc", "rrs", "rrcs"))
# Beyond so many steps times links the flows are not followed one by one.
_MOST_WORK = 20_000_000
# A prediction is good to about this; by less no other schedule is taken for sooner than the first.
_CLEARLY = 0.94
# Links whose betas are further apart than this are not alike.
_UNEVEN = 1.2
# Longer schedules are taken as they are: compiling them would take longer than making them.
MOST_SENDS = 20_000


@dataclass(frozen=True, eq=False)
class Prediction:
    """What the time of a program is made of.

    ``in_turn``: transfers that meet at a port wait for each other, in the schedule's order. ``sharing_s``
    comes to it, or goes, as they slow each other down instead. ``worked_s`` more are needed until the last
    rank, ``worker``, has copied and added; 0 where that was not measured.
    """

    costs: Costs
    in_turn: ProgramTiming
    sharing_s: float
    worked_s: float
    worker: int

    @property
    def time_s(self) -> float:
        """The predicted seconds."""
        return self.in_turn.time_s + self.sharing_s + self.worked_s


def predicted_s(program: Program, network: Network, chunk_bytes: int, costs: Costs | None = None) -> float:
    """Seconds on ``network`` with chunks of ``chunk_bytes``; see ``prediction``."""
    return prediction(program, network, chunk_bytes, costs).time_s


def prediction(
    program: Program, network: Network, chunk_bytes: int, costs: Costs | None = None
) -> Prediction:
    """What a program takes on ``network`` with chunks of ``chunk_bytes``; the geometric mean of two models.

    ``costs`` are those of steps between hosts, or within one where the network is one host. There a long
    message takes what its receiver needs to copy it out of the sender's memory, where that was measured.

    Transfers that meet at a port either wait for each other, in the schedule's order, or slow each other
    down. TCP does something between: who began first has filled the queues. Where programs are large
    only the first is asked. On one host whose memory was measured, the copies and sums of the busiest rank
    are added: links were timed with messages that stay in the caches. A rank that only sends what others copy
    for themselves works meanwhile; all copies and sums together take what the cores need for them. Raises
    UsageError where the network lacks a rank or a link of the program.
    """
    chunk_bytes = max(1, chunk_bytes)
    costs = costs or _costs_on(network)
    fetch_s = _fetch_s_per_byte(program, network, chunk_bytes)
    worked_s = _worked_s(program, network, chunk_bytes, fetched=fetch_s > 0)
    if fetch_s:
        network = replace(network, beta_s_per_byte=floats(np.maximum(network.beta_s_per_byte, fetch_s)))
    in_turn = simulate_program(program, network, chunk_bytes, costs)
    ready_s = worked_s + (_received_s(program, in_turn) if fetch_s else in_turn.time_s)
    if fetch_s and (cores := network.memory[0].cores):
        fetched = program.count * np.isin(program.op, _RECEIVED)
        busy_s = float(worked_s.sum()) + fetch_s * chunk_bytes * float(fetched.sum())
        ready_s = np.maximum(ready_s, busy_s / cores)
    work = max(0.0, float(ready_s.max()) - in_turn.time_s), int(ready_s.argmax())
    if program.steps * network.links > _MOST_WORK:
        return Prediction(costs, in_turn, 0.0, *work)
    fair_s = fair_time_s(program, network, chunk_bytes, costs)
    sharing_s = float((in_turn.time_s * fair_s) ** 0.5) - in_turn.time_s
    return Prediction(costs, in_turn, sharing_s, *work)


def _costs_on(network: Network) -> Costs:
    """What steps cost on the hosts of a network."""
    crowded = network.memory and 0 < network.memory[0].cores < network.ranks
    return _COSTS if crowded or len(set(network.hosts)) > 1 else _COSTS_OF_ONE_HOST


def _received_s(program: Program, timing: ProgramTiming) -> Floats:
    """When each rank has received the last of what it receives; 0 where it receives nothing."""
    receiving = np.isin(program.op, _RECEIVED)
    found = np.zeros(program.ranks)
    np.maximum.at(found, program.tb_rank[program.tb_of][receiving], timing.end_s[receiving])
    return floats(found)


def _fetch_s_per_byte(program: Program, network: Network, chunk_bytes: int) -> float:
    """What a byte takes of messages that receivers copy out of the sender's memory; 0 for short ones."""
    known = network.memory and len(set(network.hosts)) == 1 and network.memory[0].fetch_s_per_byte
    if not known or chunk_bytes * int(program.count.max(initial=1)) < FETCHED_BYTES:
        return 0.0
    return _at_size(network.memory[0], known, program, chunk_bytes)


def _at_size(
    memory: HostMemory, costs_s_per_byte: tuple[float, ...], program: Program, chunk_bytes: int
) -> float:
    """A cost at the size of the buffer: beyond the caches it is several times as much."""
    size = np.log(max(1, program.collective.total_bytes(chunk_bytes)))
    return float(np.interp(size, np.log(memory.sizes_bytes), costs_s_per_byte))


def _worked_s(program: Program, network: Network, chunk_bytes: int, *, fetched: bool) -> Floats:
    """Seconds that each rank copies and adds while all others do; 0 where that was not measured.

    Messages that are ``fetched`` are not copied into slots and out of them.
    """
    if not network.memory or len(set(network.hosts)) > 1:
        return np.zeros(program.ranks)
    memory = network.memory[0]
    copy_s, add_s = (
        _at_size(memory, costs, program, chunk_bytes)
        for costs in (memory.copy_s_per_byte, memory.add_s_per_byte)
    )
    again_s = 0.0 if fetched else min(memory.copy_s_per_byte)
    copies = ("cpy",) if fetched else _COPY
    of_op = [copy_s * (op in copies) + add_s * (op in _SUM) + again_s * (op in _AGAIN) for op in OPS]
    step_s = np.array(of_op)[program.op] * program.count * chunk_bytes
    return floats(np.bincount(program.tb_rank[program.tb_of], weights=step_s, minlength=program.ranks))


def soonest(schedules: Sequence[Schedule]) -> Schedule:
    """The schedule whose program is predicted to end first, if clearly before the first of them.

    The first is taken, too, where one rank is alone, and where it is long: but on one host a shorter one is,
    for there each of thousands of short messages costs more than the little that they gain. Of those that are
    not clearly later than the soonest a forest or a ring is taken where links between hosts differ: what is
    predicted of them was measured, to 5 %. Others took up to a third longer: TCP does not keep to their order
    at ports. On one host, where each message costs its ranks more than a model of links
    knows, it is the one with the fewest sends.
    """
    first, *others = schedules
    short = [one for one in others if one.sends <= MOST_SENDS]
    several = len(set(first.network.hosts)) > 1
    if not first.network.links or (first.sends > MOST_SENDS and (several or not short)):
        return first
    compared = short if first.sends > MOST_SENDS else [first, *short]
    # On one host, too, what steps cost decides: by links alone a forest of a thousand chunks would win.
    expected_s = [predicted_s(lower(one), one.network, one.chunk_bytes, _COSTS) for one in compared]
    near = [at for at, time_s in enumerate(expected_s) if time_s < min(expected_s) / _CLEARLY]
    beta = first.network.beta_s_per_byte[~first.network.within_host]
    if not len(beta):
        return compared[min(near, key=lambda at: (compared[at].sends, expected_s[at]))]
    uneven = beta.max() > _UNEVEN * beta.min()
    steady = [at for at in near if uneven and _is_steady(compared[at])]
    return compared[min(steady or ([0] if 0 in near else near), key=lambda at: expected_s[at])]


def _is_steady(schedule: Schedule) -> bool:
    """Whether it takes as long in whatever order ports serve what meets there: streams do, and rings."""
    if schedule.method == "forest":
        return True
    network = schedule.network
    used = np.zeros(network.links, dtype=bool)
    used[schedule.link] = True
    users = np.bincount(network.link_port, weights=used[network.port_user], minlength=1)
    return bool(users.max() <= 1)
