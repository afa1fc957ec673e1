"""The predicted time of a program on a measured network: a mean of FIFO and fair sharing at ports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from synth.compiler import lower
from synth.network import Network
from synth.prediction.one_host import HostTiming, host_timing
from synth.program import Program
from synth.schedules import Schedule
from synth.simulation import Costs, ProgramTiming, fair_time_s, replay, simulate_program

__all__ = [
    "MOST_SENDS",
    "Prediction",
    "is_clearly_sooner",
    "predicted_s",
    "prediction",
    "schedule_run_s",
    "soonest",
]

# Costs between hosts: the seconds of a step on a rank, and the slots of a connection.
_COSTS = Costs(step_s=10e-6, fifo=8)
# Costs within one host. A step through shared memory is far cheaper than one over sockets: two ranks sum 1
# KiB in 5 us.
_COSTS_OF_ONE_HOST = Costs(fifo=8)
# The largest product of steps and links for which fair sharing at ports is simulated.
_MOST_WORK = 20_000_000
# A schedule is clearly faster only if its predicted time is below this share of the other's: predictions are
# not more accurate.
_CLEARLY = 0.94
# Schedules with more sends are not predicted: compiling them would take longer than making them.
MOST_SENDS = 20_000


@dataclass(frozen=True, eq=False)
class Prediction:
    """The parts of a program's predicted time.

    ``in_turn`` is the simulation in which transfers that meet at a port wait for each other. ``sharing_s``,
    positive or negative, is added to its time, because the transfers partly share the port instead.
    ``on_host`` replaces both if all ranks are on one host whose memory was measured.
    """

    costs: Costs
    in_turn: ProgramTiming
    sharing_s: float
    on_host: HostTiming | None = None

    @property
    def time_s(self) -> float:
        return self.on_host.time_s if self.on_host else self.in_turn.time_s + self.sharing_s


def predicted_s(program: Program, network: Network, chunk_bytes: int, costs: Costs | None = None) -> float:
    """Return the predicted seconds on ``network`` with chunks of ``chunk_bytes``; see ``prediction``."""
    if network.is_measured_host:
        return host_timing(program, network, max(1, chunk_bytes), network.memory[0]).time_s
    return prediction(program, network, chunk_bytes, costs).time_s


def prediction(
    program: Program, network: Network, chunk_bytes: int, costs: Costs | None = None
) -> Prediction:
    """Predict the time of a program on ``network`` with chunks of ``chunk_bytes``.

    On one host whose memory was measured, the model is `synth.prediction.one_host`. Elsewhere the result is
    the geometric mean of two models of transfers that meet at a port: they wait for each other in the
    schedule's order, or they share it. TCP lies between, because the transfer that began first has filled the
    queues. Large programs, and those in which switches sum or copy, use only the first model. ``costs``
    defaults to the costs of steps between hosts, or inside a host if the network has only one. Raises
    UsageError if the network lacks a rank or a link of the program.
    """
    chunk_bytes = max(1, chunk_bytes)
    costs = costs or (_COSTS if len(set(network.hosts)) > 1 else _COSTS_OF_ONE_HOST)
    in_turn = simulate_program(program, network, chunk_bytes, costs)
    if network.is_measured_host:
        return Prediction(costs, in_turn, 0.0, host_timing(program, network, chunk_bytes, network.memory[0]))
    if program.uses_switches or program.steps * network.links > _MOST_WORK:
        return Prediction(costs, in_turn, 0.0)
    fair_s = fair_time_s(program, network, chunk_bytes, costs)
    return Prediction(costs, in_turn, float((in_turn.time_s * fair_s) ** 0.5) - in_turn.time_s)


def schedule_run_s(schedule: Schedule) -> float:
    """Return the predicted seconds of a run; above ``MOST_SENDS`` sends, the simulated time of its links."""
    if schedule.sends > MOST_SENDS:
        return replay(schedule).time_s
    return predicted_s(lower(schedule), schedule.network, schedule.chunk_bytes)


def is_clearly_sooner(time_s: float, other_s: float) -> bool:
    """Return whether a run is faster than another by more than the error of predictions."""
    return time_s < _CLEARLY * other_s


def soonest(schedules: Sequence[Schedule]) -> Schedule:
    """Return the schedule predicted to be fastest, or the first schedule if it is about as fast.

    - If there are no links, or the first is too long to predict on several hosts, the first is returned.
    - On one host, a first schedule that is too long to predict loses to shorter ones, because thousands of
      short messages cost more there than they gain. Among schedules close to the fastest, the one with the
      fewest sends wins, because the model of links underestimates the cost of messages.
    - Between hosts, a forest or a ring close to the fastest wins: their measured times agree with predictions
      to 5 %. Other schedules took up to a third longer, because TCP does not keep their order at ports.
    """
    first, *others = schedules
    short = [one for one in others if one.sends <= MOST_SENDS]
    several = len(set(first.network.hosts)) > 1
    if not first.network.links or (first.sends > MOST_SENDS and (several or not short)):
        return first
    compared = short if first.sends > MOST_SENDS else [first, *short]
    # Count the cost of steps on one host, too: by links alone a forest of a thousand chunks would win.
    expected_s = [predicted_s(lower(one), one.network, one.chunk_bytes, _COSTS) for one in compared]
    near = [at for at, time_s in enumerate(expected_s) if time_s < min(expected_s) / _CLEARLY]
    if first.network.within_host.all():
        return compared[min(near, key=lambda at: (compared[at].sends, expected_s[at]))]
    steady = [at for at in near if _is_steady(compared[at])]
    return compared[min(steady or ([0] if 0 in near else near), key=lambda at: expected_s[at])]


def _is_steady(schedule: Schedule) -> bool:
    """Return whether the time does not depend on the order at ports, as in forests and rings."""
    if schedule.method == "forest":
        return True
    network = schedule.network
    used = np.zeros(network.links, dtype=bool)
    used[schedule.link] = True
    users = np.bincount(network.link_port, weights=used[network.port_user], minlength=1)
    return bool(users.max() <= 1)
