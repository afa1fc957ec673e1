"""Rates of hosts over time, from a trace of a public cloud, and what planning for each moment could gain.

The clairvoyant knows each moment's rates as it begins, and has its schedule at once: by simulation it is what
no adaptation can beat with these methods.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from exec.replan import SchedulePrediction, replanned
from synth.network import Link, Network, build
from synth.schedules import Schedule

__all__ = ["Moment", "forecasts", "makespan_s", "network_of", "rates"]

TRACE = Path(__file__).parents[1] / "../shared/data/topologies/traces/adapcc-bandwidth-hw.txt"
BASE_GBIT = 14.7
_BYTES_PER_MBIT = 125_000
_ALPHA_S = 1e-4


@dataclass(frozen=True)
class Moment:
    """The rates of one moment (Mbit/s), and what a collective is predicted to take: as planned, at best."""

    rates: tuple[float, ...]
    static_s: float
    best_s: float


def rates(amplify: float, hosts: int, mbit: float) -> Iterator[tuple[float, ...]]:
    """For each moment the rate of each host: the trace from another place on, amplified (Sec. VI-D)."""
    values = [value if value < 25 else value / 1000 for value in ast.literal_eval(TRACE.read_text())]
    for at in range(len(values)):
        row = []
        for host in range(hosts):
            value = values[(at + host * len(values) // hosts + len(values) // 3) % len(values)] / BASE_GBIT
            share = (
                value * (1 - amplify) if value < 0.97 else value * (1 + amplify) if value > 1.03 else value
            )
            row.append(max(1.0, mbit * share))
        yield tuple(row)


def network_of(mbit: Sequence[float]) -> Network:
    """Hosts of one rank behind a switch, each with its rate both ways."""
    links = [
        Link(a, b, _ALPHA_S, 1 / (min(one, other) * _BYTES_PER_MBIT), (f"host {a} out", f"host {b} in"))
        for a, one in enumerate(mbit)
        for b, other in enumerate(mbit)
        if a != b
    ]
    return build("hosts", [f"host {at}" for at in range(len(mbit))], links)


def forecasts(static: Schedule, moments: Sequence[tuple[float, ...]]) -> list[Moment]:
    """Return what the static schedule is predicted to take at each moment, and the best for that moment."""
    found, known = [], [static]
    for mbit in moments:
        network = network_of(mbit)
        plan = replanned(static, network, least_gain=1.0, others=known[1:], quick=True, jobs=0)
        if plan.schedule is not None and plan.schedule not in known:
            known.append(plan.schedule)
        found.append(Moment(mbit, SchedulePrediction(static).time_s(network), plan.after_s))
    return found


def makespan_s(times_s: Sequence[float], iterations: int, hold_s: float) -> float:
    """Return the makespan of ``iterations`` that take ``times_s[m]`` in moment m, of ``hold_s`` each."""
    now_s = 0.0
    for _ in range(iterations):
        left = 1.0
        while left > 0:
            at = min(int(now_s / hold_s + 1e-9), len(times_s) - 1)
            until_s = (at + 1) * hold_s if at < len(times_s) - 1 else float("inf")
            step_s = min(left * times_s[at], until_s - now_s)
            now_s, left = now_s + step_s, left - step_s / times_s[at]
            if left < 1e-9:
                break
    return now_s
