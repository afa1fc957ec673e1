"""Wait or go: break-even ski rental for a collective whose workers become ready one after another.

Once the first worker is ready, the coordinator decides every cycle (AdapCC, Sec. IV-C): *wait* for all, or
*go* with the ready workers (phase 1) and bring the others' data later (phase 2). Waiting is rent: it costs
the time since the first worker was ready. Going is buying: it costs b, the time of both phases, which changes
with the ready set. Once all are ready the whole collective runs, which takes C.

**The rule.** Go in the first cycle in which the time waited has reached the least b that any ready set has
offered until then. If b is constant or falls, this is the paper's rule, which compares with the b of the
ranks that are ready now (``as_published``). By the paper's own volumes b rises with the ready ranks, so the
two differ in the normal case.

**Its ratio.** Let cycles last δ, b lie between b_min and b_max, and ρ = max(b_max, C) / b_min, over all ready
sets that occur. The rule costs at most (1 + ρ + δ/b_min) times the cost of the best decision with knowledge
of all arrivals. If b never rises and C ≤ b_min, it costs at most (2 + δ/b_min) times that; constant b is such
a case.

*Proof.* Let m(t) be the least b until t, L the time at which the last worker is ready, and OPT the least
cost: L + C, or t + b(t) for some t < L. The last cycle in which the rule still waits is at s < m(s), at most
δ before the wait ends.

- The rule goes at t* < L, so s = t* - δ. OPT ≥ t* - δ: waiting costs L > t*; going at t ≤ s costs at least
  b(t) ≥ m(s) > s; going later costs more than s. And OPT ≥ b_min, because going costs at least b_min, and
  waiting costs L > t* ≥ m(t*) ≥ b_min. So the rule costs t* + b(t*) ≤ OPT + δ + ρ·b_min ≤ (1 + ρ +
  δ/b_min)·OPT.
- The rule waits, and OPT goes: OPT ≥ b_min, and OPT ≥ s ≥ L - δ as above. So the rule costs
  L + C ≤ OPT + δ + ρ·b_min, and the same follows. If C ≤ b_min that is at most 2·OPT + δ.
- b never rises, and the rule goes at t*: b(t*) = m(t*) ≤ t*, so it costs at most 2·t*. That is at most 2·OPT
  if OPT waits or goes at t* or later. If OPT goes by s it costs at least b(s) ≥ max(t* - δ, b(t*)), so the
  rule costs at most 2·OPT + δ. If OPT goes in between it costs at least t* - δ + b(t*), so the rule costs at
  most OPT + δ. ∎

No deterministic rule has a ratio below 1 + b_max/b_min: let b be b_min at first and b_max from the next
moment on, and let the last worker be ready just after the rule has gone, at t. The rule pays t + b_max, but
min(t, b_min) was possible. On these arrivals the paper's rule, which compares with the current b, costs
2·b_max/b_min times the best.

**Extra cost only.** C is paid in any case. A rule that counts only the cost beyond C goes once the time
waited reaches the least b - C. With M = max(b_max, C) and μ = min(b_min, C) it costs at most OPT + δ + M - μ,
while the rule above may cost OPT + δ + M. If b never rises and C ≤ b_min, it costs at most 2·OPT - C + δ.

*Proof.* Take C from all costs and let b' = b - C, m' = m - C. As above, t* - δ < m'(t* - δ). So OPT pays at
least t* - δ beyond C. If OPT goes after s and C > b_min, this limit is lower by C - b_min. So the rule costs
at most C + t* + b'(t*) ≤ OPT + δ + max(0, C - b_min) + b_max - C. If it goes at 0 it costs b ≤ b_max, and OPT
≥ μ; if it waits, L + C ≤ OPT + δ + max(0, C - b_min). The last claim is the third case above with b' for b. ∎
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from probes.base import UsageError

__all__ = [
    "CYCLE_S",
    "FAULT_FACTOR",
    "WaitingCollective",
    "competitive_ratio",
    "fault_deadline_s",
]

# The cycle of AdapCC's paper (Sec. IV-C 1). A longer one loosens the bound above by δ/b_min; a shorter one
# costs more decisions.
CYCLE_S = 5e-3
# The value in AdapCC's paper (Sec. IV-C).
FAULT_FACTOR = 5.0


@dataclass(frozen=True)
class WaitingCollective:
    """One collective that waits since ``first_ready_s``, until it has waited ``compared_s - spared_s``.

    ``compared_s`` is the least cost of going so far, or with ``as_published`` the cost for the last ready
    set. ``spared_s`` is 0 for the rule, and C for a decision by the extra cost alone.
    """

    first_ready_s: float
    compared_s: float = math.inf
    spared_s: float = 0.0
    as_published: bool = False

    def offered(self, buy_s: float) -> WaitingCollective:
        """Return the collective with the cost of one more ready set; called when a worker becomes ready."""
        return replace(self, compared_s=buy_s if self.as_published else min(self.compared_s, buy_s))

    def goes(self, now_s: float) -> bool:
        """Return whether the rule says to go without the rest now."""
        return now_s - self.first_ready_s >= self.compared_s - self.spared_s


def competitive_ratio(buys_s: Sequence[float], whole_s: float = 0.0, cycle_s: float = CYCLE_S) -> float:
    """Return the bound of this module on the rule's cost over the best decision's cost.

    ``buys_s`` are the costs of going in the order of their offers; ``whole_s`` is the cost of the whole
    collective. Infinite if going may cost nothing.
    """
    least_s, most_s = min(buys_s), max(buys_s)
    if least_s <= 0:
        return math.inf
    falls = all(after <= before for before, after in itertools.pairwise(buys_s))
    rise = 1.0 if falls and whole_s <= least_s else max(most_s, whole_s) / least_s
    return 1.0 + rise + cycle_s / least_s


def fault_deadline_s(
    first_ready_s: float, phase_one_end_s: float, *, factor: float = FAULT_FACTOR, least_s: float = 0.0
) -> float:
    """Return when a worker that is still not ready counts as dead: T_fault after phase 1 (Sec. IV-C).

    T_fault is ``factor`` times the duration from the fastest worker's readiness to the end of phase 1, but at
    least ``least_s``. Raises UsageError for durations or factors that are negative or not finite.
    """
    lasted_s = phase_one_end_s - first_ready_s
    durations = {"factor": factor, "least_s": least_s, "phase_one_end_s - first_ready_s": lasted_s}
    for name, value in durations.items():
        if not 0 <= value < math.inf:
            raise UsageError(f": expected a number ≥ 0, found {value}", argument=name)
    return phase_one_end_s + max(least_s, factor * lasted_s)
