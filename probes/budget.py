"""What to measure, how often and how long, so that it fits into a number of seconds.

One round is measured first to learn what a wave costs on this cluster. Then, as far as it must: fewer
passes, shorter looks at each link, fewer rounds. The rounds of strides 1, 2, 4, … come first, so that
whatever is cut, every rank is reached.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from probes.prober import Dose
from probes.rounds import Pair, Waves

__all__ = ["Cost", "Plan", "fitted"]

_SHORTEST = 0.25
# What remains for measuring suspects again, and for ending in time.
_FOR_ROUNDS = 0.8


@dataclass(frozen=True)
class Plan:
    """Waves of links for alpha and for beta, a pass over all of them ``passes`` times."""

    rounds: tuple[tuple[Pair, ...], ...]
    passes: int
    dose: Dose
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True)
class Cost:
    """Seconds that one wave took, for alpha and for beta, in the round that was measured first."""

    alpha_s: float
    beta_s: float


def fitted(plan: Plan, cut: Waves, cost: Cost, left_s: float) -> Plan:
    """``plan`` with as many passes, as long looks and as many rounds as fit into ``left_s`` seconds."""
    left_s *= _FOR_ROUNDS
    once_s = _seconds(plan.rounds, cut, cost)
    passes = min(plan.passes, int(left_s / once_s)) if once_s > 0 else plan.passes
    if passes >= 1:
        left_out = () if passes == plan.passes else (f"{plan.passes - passes} of {plan.passes} passes",)
        return replace(plan, passes=passes, left_out=left_out)
    share = max(left_s / once_s, _SHORTEST)
    shorter: tuple[str, ...] = (
        f"{1 - share:.0%} of the time at each link",
        f"{plan.passes - 1} of {plan.passes} passes",
    )
    dose = replace(plan.dose, pingpong_s=plan.dose.pingpong_s * share, trains_s=plan.dose.trains_s * share)
    rounds = plan.rounds
    while len(rounds) > 1 and share * _seconds(rounds, cut, cost) > left_s:
        rounds = rounds[:-1]
    if len(rounds) < len(plan.rounds):
        shorter = (f"{len(plan.rounds) - len(rounds)} of {len(plan.rounds)} rounds", *shorter)
    return Plan(rounds, 1, dose, shorter)


def _seconds(rounds: Sequence[Sequence[Pair]], cut: Waves, cost: Cost) -> float:
    return sum(len(cut(pairs)) * (cost.beta_s + cost.alpha_s / 2) for pairs in rounds)
