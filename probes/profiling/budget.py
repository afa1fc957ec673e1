"""Fit of a profile into a time budget: its links, its passes, and the time at each link.

The first round shows what a wave costs on this cluster. As far as necessary, passes are cut first, then the
time at each link, then rounds. The rounds of strides 1, 2, 4, … come first, so that every rank is reached
whatever is cut. If links are measured repeatedly, urgent ones come first, then those measured longest ago.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence, Set
from dataclasses import dataclass, replace

import numpy as np

from probes.base import Ints, Mask, ints
from probes.profiling.history import History
from probes.sampling import Dose, Pair, Place, Waves, first_fit, meetings, rings, strides

__all__ = ["Cost", "RoundPlan", "Turns", "fitted", "in_turn", "links_at"]

# The time at each link is cut by eighths down to a quarter; then rounds are dropped instead.
_SHORTEST, _SHORTER = 0.25, 0.125
# Fixed cost of a wave: the barrier before it, and finding the pace.
_OVERHEAD_S = 2e-3
# Share of the time left that rounds may take. The rest is for measuring suspects again and for ending in
# time.
_FOR_ROUNDS = 0.85


@dataclass(frozen=True)
class RoundPlan:
    """Rounds of links, at most ``passes`` passes over all of them, and the time at each link.

    ``tried`` says that the first round has already been measured, which counts for the first pass.
    """

    rounds: tuple[tuple[Pair, ...], ...]
    passes: int
    dose: Dose
    tried: bool = False
    left_out: tuple[str, ...] = ()

    def rounds_of(self, number: int) -> tuple[tuple[Pair, ...], ...]:
        """Return the rounds to measure in one pass, counted from 1."""
        return self.rounds[1:] if self.tried and number == 1 else self.rounds

    def without(self, pairs: Set[Pair]) -> RoundPlan:
        """Return the plan without these links, and without the rounds that hold no others."""
        left = (tuple(pair for pair in these if pair not in pairs) for these in self.rounds)
        return replace(self, rounds=tuple(these for these in left if these))


@dataclass(frozen=True)
class Cost:
    """Seconds of one wave, for alpha and for beta, in the round that was measured first."""

    alpha_s: float
    beta_s: float

    def shorter(self, dose: Dose, share: float) -> Cost:
        """Return the cost if each link gets this share of ``dose``; a wave's overhead stays."""
        return Cost(
            _shorter(self.alpha_s, dose.pingpong_s, share), _shorter(self.beta_s, dose.trains_s, share)
        )


def fitted(plan: RoundPlan, cut: Waves, cost: Cost, left_s: float) -> RoundPlan:
    """Cut ``plan``, whose first round is done, so that the rest of a pass fits into ``left_s`` seconds.

    If all of it fits, there may be more passes. If nothing fits, only the first round remains.
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
    return RoundPlan(
        rounds, 1, dose, tried=True, left_out=(*none, f"{1 - share:.0%} of the time at each link")
    )


def _shorter(wave_s: float, look_s: float, share: float) -> float:
    return min(wave_s, max(wave_s - look_s, _OVERHEAD_S) + share * look_s)


def _most_rounds(rounds: Sequence[Sequence[Pair]], cut: Waves, cost: Cost, left_s: float) -> int:
    """Return how many rounds fit; the first is free because it has been measured."""
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


@dataclass(frozen=True, eq=False)
class Turns:
    """Links in the order in which they are measured, with the number of the round of each.

    ``hosts`` has the host of each rank. A rank is identified as the n-th of its host, because rank numbers
    may differ in another run.
    """

    hosts: tuple[str, ...]
    src: Ints
    dst: Ints
    round: Ints

    def rounds(self, places: Sequence[Place]) -> list[list[Pair]]:
        """Return the rounds between the ranks at ``places``; links of missing ranks are left out."""
        number_of = {name: rank for rank, name in enumerate(_names(place.host for place in places))}
        here = [number_of.get(name) for name in _names(self.hosts)]
        found: dict[int, list[Pair]] = {}
        for at, src, dst in zip(self.round.tolist(), self.src.tolist(), self.dst.tolist(), strict=True):
            ends = here[src], here[dst]
            if ends[0] is not None and ends[1] is not None:
                found.setdefault(at, []).append((ends[0], ends[1]))
        return list(found.values())


def in_turn(history: History, wanted: Mask, urgent: Mask) -> Turns:
    """Order the ``wanted`` links of a history: ``urgent`` links, then the links measured longest ago."""
    pairs = zip(history.src.tolist(), history.dst.tolist(), strict=True)
    row = {pair: at for at, pair in enumerate(pairs) if wanted[at]}
    age_s = history.measured_s

    def oldest(ring: Sequence[Pair]) -> float:
        return min(float(age_s[row[pair]]) for pair in ring)

    ranks = len(history.hosts)
    first, rest = list[tuple[float, list[list[Pair]]]](), list[list[Pair]]()
    for ring in rings(ranks, strides(ranks)):
        hurried = [pair for pair in ring if pair in row and urgent[row[pair]]]
        others = [pair for pair in ring if pair in row and not urgent[row[pair]]]
        if hurried:
            waves, others = _filled(hurried, others, history.hosts)
            first.append((oldest(hurried), waves))
        rest += [others] if others else []
    first.sort(key=lambda one: one[0])
    rounds = [ring for _, waves in first for ring in waves] + sorted(rest, key=oldest)
    return Turns(
        history.hosts,
        ints([src for ring in rounds for src, _ in ring]),
        ints([dst for ring in rounds for _, dst in ring]),
        ints([number for number, ring in enumerate(rounds) for _ in ring]),
    )


def links_at(history: History, groups: Iterable[Sequence[int]]) -> Mask:
    """Return all links at hosts that may be at fault.

    A group of links has hosts at two ends. The hosts at the end with fewer hosts may be at fault, or the
    hosts at both ends if both have the same number.
    """
    suspected = set[str]()
    for rows in groups:
        src = {history.hosts[rank] for rank in history.src[list(rows)].tolist()}
        dst = {history.hosts[rank] for rank in history.dst[list(rows)].tolist()}
        suspected |= src if len(src) <= len(dst) else set()
        suspected |= dst if len(dst) <= len(src) else set()
    at = np.array([host in suspected for host in history.hosts], dtype=np.bool_)
    return np.asarray(at[history.src] | at[history.dst], dtype=np.bool_)


def _filled(
    first: Sequence[Pair], others: Sequence[Pair], hosts: Sequence[str]
) -> tuple[list[list[Pair]], list[Pair]]:
    """Return rounds of ``first`` (a host sends and receives at most once), and the leftovers.

    Idle hosts of a round take links of ``others``, which form one round by themselves. The leftovers are the
    links of ``others`` that fit nowhere.
    """

    def ends(pair: Pair) -> tuple[Hashable, Hashable]:
        """Return the sender and the receiver: hosts, or ranks within one host."""
        src, dst = pair
        if hosts[src] == hosts[dst]:
            return ("sends", src), ("receives", dst)
        return ("sends", hosts[src]), ("receives", hosts[dst])

    rounds, left = first_fit(first, ends), list(others)
    for ring in rounds:
        busy = {end for pair in ring for end in ends(pair)}
        kept = []
        for pair in left:
            if busy.isdisjoint(ends(pair)):
                busy.update(ends(pair))
                ring.append(pair)
            else:
                kept.append(pair)
        left = kept
    return rounds, left


def _names(hosts: Iterable[str]) -> list[tuple[str, int]]:
    """Return (host, n-th rank there) of each rank."""
    seen: Counter[str] = Counter()
    found = []
    for host in hosts:
        found.append((host, seen[host]))
        seen[host] += 1
    return found
