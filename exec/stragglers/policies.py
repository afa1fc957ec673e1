"""Replay of policies over arrivals: when each policy goes on without the late ranks, and the cost.

| policy                 | goes                                                                        |
|------------------------|-----------------------------------------------------------------------------|
| `break_even`           | once the time waited has reached the least cost of going so far             |
| `break_even_extra`     | the same, but counts only the cost beyond that of the whole collective      |
| `break_even_published` | as the paper does: compares with the cost for the ranks that are ready now  |
| `always_wait`          | never                                                                       |
| `always_go`            | as soon as a rank with data is ready                                        |
| `optimum`              | when it is best in hindsight                                                |

Each policy has two measures, which count from the first rank's readiness. Its *cost* is that of ski rental
(`ski_rental`): the time waited, then the collective of all or the two phases. The proven bound limits the
ratio of this cost to the best. Its *completion* is the time at which every rank has the full result: phase 1
runs while late workers still compute, and phase 2 begins when phase 1 is over and the last worker is ready.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from exec.stragglers.arrivals import Arrivals
from exec.stragglers.buy_cost import CollectiveCosts
from exec.stragglers.ski_rental import (
    CYCLE_S,
    FAULT_FACTOR,
    WaitingCollective,
    competitive_ratio,
    fault_deadline_s,
)
from probes.base import Floats, Mask

__all__ = ["POLICIES", "Outcomes", "Replay", "ready_sets", "replay_arrivals"]

POLICIES = ("break_even", "break_even_extra", "break_even_published", "always_wait", "always_go", "optimum")
# Tolerance in cycles, so that rounding does not move a decision into the next cycle.
_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class Outcomes:
    """One policy's results by iteration: cost, completion, whether it went before all were ready.

    The optimum is the best by each measure separately; its ``went`` belongs to the best cost. The completion
    is None if the phases have no separate times.
    """

    cost_s: Floats
    completion_s: Floats | None
    went: Mask


@dataclass(frozen=True, eq=False)
class Replay:
    """The outcomes of all policies by name, and the effect of break-even on each rank.

    ``relayed[i, r]``: rank r was a relay in iteration i. ``declared_faulty[i, r]``: it would have been
    declared dead before it was ready. ``bound[i]``: the proven ratio for the costs of iteration i.
    """

    arrivals: Arrivals
    policies: dict[str, Outcomes]
    relayed: Mask
    declared_faulty: Mask
    bound: Floats

    def ratios(self, policy: str) -> Floats:
        """Return the ratio of a policy's cost to the best cost, by iteration; 1 if both are 0."""
        best_s, cost_s = self.policies["optimum"].cost_s, self.policies[policy].cost_s
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(cost_s == best_s, 1.0, cost_s / best_s)


@dataclass(frozen=True)
class _Stretch:
    """The time from ``begin_s`` to ``end_s`` in which exactly the ranks ``ready`` are ready."""

    begin_s: float
    end_s: float
    ready: frozenset[int]


def ready_sets(arrivals: Arrivals) -> set[frozenset[int]]:
    """Return the sets of ranks, except all, that are ready at some moment; each needs a cost."""
    return {stretch.ready for row in arrivals.ready_s for stretch in _stretches(row)}


def replay_arrivals(
    arrivals: Arrivals,
    costs: CollectiveCosts,
    *,
    cycle_s: float = CYCLE_S,
    fault_factor: float = FAULT_FACTOR,
) -> Replay:
    """Replay every policy over all iterations; O(iterations · ranks²) once the costs are known.

    The coordinator's cycles count from the first rank's readiness. When the last rank is ready, all policies
    that still wait run the collective at once.
    """
    shape = len(POLICIES), arrivals.iterations
    cost_s, completion_s, went = np.empty(shape), np.empty(shape), np.zeros(shape, dtype=bool)
    relayed, faulty = (np.zeros(arrivals.ready_s.shape, dtype=bool) for _ in range(2))
    bound = np.ones(arrivals.iterations)
    for at, row in enumerate(arrivals.ready_s):
        stretches = list(_stretches(row))
        options = [_option(stretch, stretch.begin_s, row, costs) for stretch in stretches]
        last_s = float(row.max())
        waits = _Option(last_s, costs.whole_s, last_s + costs.whole_s)
        rule, extra, published = (
            _break_even(stretches, row, costs, cycle_s, waiting) or waits
            for waiting in (
                WaitingCollective(0.0),
                WaitingCollective(0.0, spared_s=costs.whole_s),
                WaitingCollective(0.0, as_published=True),
            )
        )
        first = next((option for option in options if math.isfinite(option.buy_s)), waits)
        best = min([waits, *options], key=lambda option: option.cost_s)
        for policy, chosen in enumerate((rule, extra, published, waits, first, best)):
            cost_s[policy, at], completion_s[policy, at] = chosen.cost_s, chosen.completion_s
            went[policy, at] = chosen is not waits
        completion_s[-1, at] = min(option.completion_s for option in [waits, *options])
        if stretches:
            bound[at] = competitive_ratio([option.buy_s for option in options], costs.whole_s, cycle_s)
        if rule is not waits:
            over_s = rule.moment_s + rule.phase_one_s
            relayed[at] = row > rule.moment_s
            faulty[at] = row > fault_deadline_s(0.0, over_s, factor=fault_factor)
    outcomes = {
        name: Outcomes(cost_s[policy], completion_s[policy] if costs.has_phases else None, went[policy])
        for policy, name in enumerate(POLICIES)
    }
    return Replay(arrivals, outcomes, relayed, faulty, bound)


@dataclass(frozen=True)
class _Option:
    """A decision to go at a moment: its cost, and when the collective is complete."""

    moment_s: float
    buy_s: float
    completion_s: float
    phase_one_s: float = 0.0

    @property
    def cost_s(self) -> float:
        return self.moment_s + self.buy_s


def _option(stretch: _Stretch, moment_s: float, ready_s: Floats, costs: CollectiveCosts) -> _Option:
    phases = costs.phases(stretch.ready)
    over_s = max(moment_s + phases.one_s, float(ready_s.max())) + phases.two_s
    return _Option(moment_s, phases.buy_s, over_s, phases.one_s)


def _break_even(
    stretches: list[_Stretch],
    ready_s: Floats,
    costs: CollectiveCosts,
    cycle_s: float,
    waiting: WaitingCollective,
) -> _Option | None:
    """Return the decision by a rule of `ski_rental`; None if all ranks are ready before it goes."""
    for stretch in stretches:
        waiting = waiting.offered(costs.phases(stretch.ready).buy_s)
        if math.isinf(waiting.compared_s):
            continue
        due_s = max(stretch.begin_s, waiting.compared_s - waiting.spared_s)
        moment_s = max(due_s, math.ceil(due_s / cycle_s - _ROUNDING) * cycle_s)
        if moment_s < stretch.end_s and waiting.goes(moment_s):
            return _option(stretch, moment_s, ready_s, costs)
    return None


def _stretches(ready_s: Floats) -> Iterator[_Stretch]:
    """Yield the stretches of time from the first rank's readiness to the last's."""
    moments_s = np.unique(ready_s).tolist()
    for begin_s, end_s in itertools.pairwise(moments_s):
        yield _Stretch(begin_s, end_s, frozenset(np.flatnonzero(ready_s <= begin_s).tolist()))
