"""Fits a profile into a time budget: which links, how many passes, how long each.

One round is measured first to learn what a wave costs on this cluster. Then, as far as it must: fewer
passes, shorter looks at each link, fewer rounds. The rounds of strides 1, 2, 4, … come first, so that
whatever is cut, every rank is reached.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace

from probes.sampling.prober import Dose
from probes.sampling.rounds import Pair, Waves, meetings

__all__ = ["Cost", "Plan", "fitted"]

_SHORTEST, _SHORTER = 0.25, 0.125
# Of a wave, what does not depend on how long it looks: the barrier before it, finding the pace.
_OVERHEAD_S = 2e-3
# What remains is for measuring suspects again, and for ending in time.
_FOR_ROUNDS = 0.85


@dataclass(frozen=True)
class Plan:
    """Rounds of links, a pass over all of them up to ``passes`` times, and how long to look at each.

    ``tried`` says that the first round has been measured already, as its part of the first pass.
    """

    rounds: tuple[tuple[Pair, ...], ...]
    passes: int
    dose: Dose
    tried: bool = False
    left_out: tuple[str, ...] = ()

    def rounds_of(self, number: int) -> tuple[tuple[Pair, ...], ...]:
        """The rounds to measure in one pass, counted from 1."""
        return self.rounds[1:] if self.tried and number == 1 else self.rounds

    def without(self, pairs: Set[Pair]) -> Plan:
        """The plan without these links, and without the rounds that hold no others."""
        left = (tuple(pair for pair in these if pair not in pairs) for these in self.rounds)
        return replace(self, rounds=tuple(these for these in left if these))


@dataclass(frozen=True)
class Cost:
    """Seconds that one wave took, for alpha and for beta, in the round that was measured first."""

    alpha_s: float
    beta_s: float

    def shorter(self, dose: Dose, share: float) -> Cost:
        """The cost when each link is looked at for only this share of ``dose``: the rest of a wave stays."""
        return Cost(
            _shorter(self.alpha_s, dose.pingpong_s, share), _shorter(self.beta_s, dose.trains_s, share)
        )


def fitted(plan: Plan, cut: Waves, cost: Cost, left_s: float) -> Plan:
    """``plan``, its first round done, so that the rest of a pass fits into ``left_s`` more seconds.

    Where all of it fits, there may be more passes; where nothing fits, the first round stands.
    """
    left_s *= _FOR_ROUNDS
    rest_s = _seconds(plan.rounds[1:], cut, cost)
    if rest_s <= left_s:
        return replace(plan, tried=True)
    rounds, share = plan.rounds, 1.0
    while share > _SHORTEST and _seconds(rounds[1:], cut, cost.shorter(plan.dose, share)) > left_s:
        share -= _SHORTER
    cost = cost.shorter(plan.dose, share)
    dose = replace(plan.dose, pingpong_s=plan.dose.pingpong_s * share, trains_s=plan.dose.trains_s * share)
    rounds = rounds[: _most_rounds(rounds, cut, cost, left_s)]
    dropped = len(plan.rounds) - len(rounds)
    none = (f"{dropped} of {len(plan.rounds)} rounds",) if dropped else ()
    return Plan(rounds, 1, dose, tried=True, left_out=(*none, f"{1 - share:.0%} of the time at each link"))


def _shorter(wave_s: float, look_s: float, share: float) -> float:
    return min(wave_s, max(wave_s - look_s, _OVERHEAD_S) + share * look_s)


def _most_rounds(rounds: Sequence[Sequence[Pair]], cut: Waves, cost: Cost, left_s: float) -> int:
    """How many rounds fit, the first of them free as it has been measured."""
    least, most = 1, len(rounds)
    while least < most:
        middle = (least + most + 1) // 2
        if _seconds(rounds[1:middle], cut, cost) <= left_s:
            least = middle
        else:
            most = middle - 1
    return least


def _seconds(rounds: Sequence[Sequence[Pair]], cut: Waves, cost: Cost) -> float:
    alpha = sum(len(cut(pairs)) for pairs in meetings(rounds))
    beta = sum(len(cut(pairs)) for pairs in rounds)
    return alpha * cost.alpha_s + beta * cost.beta_s
