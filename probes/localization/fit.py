"""The fewest causes that explain the deviations of links from their normal values.

A cause is a part at fault (a host, a pair of hosts, a trunk …) with one level, which all its links share.
Causes combine in one of two ways. A rate is the rate of the slowest part on the way (`Ceiling`); a latency is
the sum of what all parts add (`Sum`). Causes are added greedily: first those that lower the misfit of the
links most, after a penalty for each cause. Then their levels are refined, and causes that the others make
needless are removed.

The misfit of a link is Huber's loss (1964) of its deviation in standard deviations, so that a disturbed link
has a bounded pull. The penalty is that of the Bayesian information criterion (Schwarz 1978), plus the
logarithm of the number of parts of a kind (Chen and Chen 2008): the more parts there are, the likelier one of
them looks bad by chance. A fixed least gain and the family's cost are added.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import numpy as np

from probes.base import Floats, Indices, Mask, floats
from probes.localization.groups import quantiles
from probes.localization.model import FaultKind

__all__ = ["ENDS", "Cause", "CauseFit", "Ceiling", "DeviationModel", "Family", "Sum", "explain"]

# Huber's loss is quadratic up to this many standard deviations. One normally distributed value in 370 is
# beyond 3.
_HUBER = 3.0
# The part of every cause's penalty that does not depend on its family or links, as a logarithm of the
# likelihood ratio to no cause. A ratio of e^8 is 3,000 to one.
_LEAST_GAIN = 8.0
# At least this share of the links whose misfit a cause changes must fit better with it. A part at fault slows
# all its links, so the remaining quarter is for noise.
_AGREE = 0.75
# Quantiles of the severities of a part's unexplained links that are tried as its level. The second is for a
# part with most links held back further by slower parts.
_LEVELS = (0.5, 0.15)
# A level is estimated from the links that are more than this many standard deviations worse than explained.
_WORSE = 1.0
# A further part of the best part's family is added in the same step if its gain, less its penalty, is at
# least this share of the best part's.
_TOGETHER = 0.5
# A cause is removed if its slowdown is below this share of the least slowdown that counts. The share is below
# 1 so that refinement does not drop a cause that was just added.
_KEEP = 0.9
# The most rounds of adding, refining and removing causes, and the most restarts of the search; two suffice
# almost always. _REFINEMENTS is the number of refinement passes before each removal. _MOST_STEPS is the most
# steps of adding in a round.
_MOST_ROUNDS, _REFINEMENTS = 4, 3
_MOST_STEPS = 200
# A part is tried only if the share of its links that are worse by more than half a standard deviation reaches
# this fraction of ``agree``. The fraction is below 1 because links within half a deviation may favour a
# cause, too.
_NEARLY = 0.9
ENDS: tuple[FaultKind, ...] = ("host", "egress", "ingress")


class DeviationModel(Protocol):
    """Deviations of links, and how causes combine. ``severity`` is a cause's level, 0 for none."""

    def start(self) -> Floats:
        """Return the state of every link without any cause."""

    def worse(self, state: Floats, at: Indices | slice = ...) -> Floats:
        """Return by how many standard deviations links are worse than a state."""

    def severity(self, state: Floats, at: Indices) -> Floats:
        """Return the severity of one more cause that would explain each link exactly."""

    def put(self, state: Floats, severity: Floats | float, at: Indices | slice = ...) -> Floats:
        """Return the state of the links ``at`` with one more cause."""

    def slowdown(self, state: Floats, after: Floats) -> Floats:
        """Return how much slower links are in ``after`` than in ``state``, as a logarithm."""


@dataclass(frozen=True, eq=False)
class Ceiling:
    """The slowest part decides. ``values`` are logarithms of the rates, relative to the normal ones."""

    values: Floats
    sigma: Floats

    def start(self) -> Floats:
        return np.zeros(len(self.values))

    def worse(self, state: Floats, at: Indices | slice = slice(None)) -> Floats:
        return floats((state - self.values[at]) / self.sigma[at])

    def severity(self, state: Floats, at: Indices) -> Floats:
        return -self.values[at]

    def put(self, state: Floats, severity: Floats | float, at: Indices | slice = slice(None)) -> Floats:
        return floats(np.minimum(state, np.negative(severity)))

    def slowdown(self, state: Floats, after: Floats) -> Floats:
        return state - after


@dataclass(frozen=True, eq=False)
class Sum:
    """Extra latencies add up. ``values`` and ``normal`` are seconds, ``sigma`` is relative."""

    values: Floats
    normal: Floats
    sigma: Floats

    def start(self) -> Floats:
        return self.normal.copy()

    def worse(self, state: Floats, at: Indices | slice = slice(None)) -> Floats:
        return floats(np.log(self.values[at] / state) / self.sigma[at])

    def severity(self, state: Floats, at: Indices) -> Floats:
        return self.values[at] - state

    def put(self, state: Floats, severity: Floats | float, at: Indices | slice = slice(None)) -> Floats:
        return state + severity

    def slowdown(self, state: Floats, after: Floats) -> Floats:
        return np.log(after / state)


@dataclass(frozen=True, eq=False)
class Family:
    """Parts of one kind.

    ``labels`` has the part of each link, -1 for none. It holds two arrays if a part can be at either end of a
    link.

    ``least`` is the smallest slowdown that counts, as a logarithm, for every part. ``cost`` is a further
    penalty for kinds that are rarer, or that other kinds imitate. ``possible`` marks the parts with enough
    links to tell them from parts of another kind. ``subject`` describes the links, with "{0}" and "{1}" for
    the names of the part. At least the share ``agree`` of the links whose misfit a fault of the part changes
    must fit better with the fault.
    """

    kind: FaultKind
    labels: tuple[Indices, ...]
    count: int
    name: Callable[[int], tuple[str, ...]]
    least: float
    cost: float
    possible: Mask
    subject: str
    agree: float = _AGREE

    @cached_property
    def sizes(self) -> Indices:
        """The number of links of each part."""
        return sum(
            (np.bincount(labels[labels >= 0], minlength=self.count) for labels in self.labels),
            start=np.zeros(self.count, dtype=np.int64),
        )

    @cached_property
    def penalty(self) -> Floats:
        """The penalty of each part as a cause, in units of the logarithm of the likelihood."""
        choices = max(1, int(self.possible.sum()))
        return floats(_LEAST_GAIN + self.cost + np.log(choices) + 0.5 * np.log(np.maximum(self.sizes, 1)))

    def links(self, part: int) -> Indices:
        """Return the links of a part."""
        return np.flatnonzero(np.logical_or.reduce([labels == part for labels in self.labels]))


@dataclass(frozen=True, eq=False)
class Cause:
    """A part at fault, with its severity; ``gain`` is how much better it explains its ``links``."""

    family: Family
    part: int
    severity: float
    links: Indices
    penalty: float
    gain: float = 0.0

    @property
    def kind(self) -> FaultKind:
        return self.family.kind

    @property
    def parts(self) -> tuple[str, ...]:
        return self.family.name(self.part)

    @property
    def subject(self) -> str:
        """The words for its links."""
        return self.family.subject.format(*self.parts)


@dataclass(frozen=True, eq=False)
class CauseFit:
    """The causes, the state of every link under all of them, and the total of misfits and penalties."""

    causes: tuple[Cause, ...] = ()
    state: Floats = field(default_factory=lambda: np.zeros(0))
    total: float = 0.0


@dataclass(frozen=True)
class _Candidate:
    family: Family
    part: int
    severity: float
    penalty: float
    net: float


def explain(model: DeviationModel, families: Sequence[Family]) -> CauseFit:
    """Return the fewest causes among the parts of ``families`` that explain the links.

    A cause that was added early may be in the way of a better one. So the search is repeated from the causes
    at ends of links (hosts, NICs, ranks) alone, as long as the total of misfits and penalties falls. Many
    slow pairs are often one slow host.
    """
    best = _search(model, families, ())
    for _ in range(_MOST_ROUNDS):
        ends = [cause for cause in best.causes if cause.kind in ENDS]
        if len(ends) == len(best.causes):
            break
        again = _search(model, families, ends)
        if again.total >= best.total:
            break
        best = again
    return best


def _search(model: DeviationModel, families: Sequence[Family], known: Sequence[Cause]) -> CauseFit:
    """Return the causes that a greedy search keeps if it starts from the ``known`` causes."""
    causes, state = list(known), _state(model, known)
    for _ in range(_MOST_ROUNDS):
        added = _added(model, families, causes, state)
        if not added:
            break
        causes, state = _settled(model, [*causes, *added])
    total = float(_loss(model.worse(state)).sum()) + sum(cause.penalty for cause in causes)
    return CauseFit(tuple(causes), state, total)


def _added(
    model: DeviationModel, families: Sequence[Family], known: Sequence[Cause], state: Floats
) -> list[Cause]:
    """Return further causes, found in steps: each step adds the best parts, given earlier steps."""
    taken = {(id(cause.family), cause.part) for cause in known}
    found: list[Cause] = []
    state = state.copy()
    for _ in range(_MOST_STEPS):
        before = model.worse(state)
        every = [
            candidate
            for family in families
            for candidate in _candidates(model, family, state, before)
            if (id(family), candidate.part) not in taken
        ]
        if not every:
            break
        best = max(every, key=lambda one: one.net)
        for one in every:
            # Pairs of a family share no links and so do not compete: all candidates are added.
            if one.family is best.family and (one.net >= _TOGETHER * best.net or "pair" in one.family.kind):
                links = one.family.links(one.part)
                found.append(Cause(one.family, one.part, one.severity, links, one.penalty))
                state[links] = model.put(state[links], one.severity, links)
                taken.add((id(one.family), one.part))
    return found


def _candidates(model: DeviationModel, family: Family, state: Floats, before: Floats) -> list[_Candidate]:
    """Return the parts of a family that explain more than they cost, each at its better level."""
    likely = _likely(model, family, state, before)
    unexplained = np.flatnonzero(before > _WORSE)
    severity = model.severity(state[unexplained], unexplained)
    label = np.concatenate([labels[unexplained] for labels in family.labels])
    values = np.concatenate([severity for _ in family.labels])
    chosen = np.append(likely, False)[label]  # the last entry is for label -1
    if not chosen.any():
        return []
    label, values = label[chosen], values[chosen]
    best_net, best_level = np.zeros(family.count), np.zeros(family.count)
    for share in _LEVELS:
        levels = quantiles(label, values, family.count, share)
        levels[~(levels > 0)] = np.nan
        effect = _effects(model, family, state, before, levels)
        told = effect.agree + effect.contradict
        counts = (effect.agree >= family.agree * told) & (effect.slowdown >= family.least)
        net = np.where(counts, effect.gain - family.penalty, 0.0)
        better = net > best_net
        best_net[better], best_level[better] = net[better], levels[better]
    return [
        _Candidate(family, part, float(best_level[part]), float(family.penalty[part]), float(best_net[part]))
        for part in np.flatnonzero(best_net > 0).tolist()
    ]


def _likely(model: DeviationModel, family: Family, state: Floats, before: Floats) -> Mask:
    """Return the parts that may explain enough, without trying a level.

    A part cannot gain more than the misfits of its worse links, so these must exceed its penalty. Also,
    enough of the part's links that no cause holds back so far must be worse than normal.
    """
    worse = np.flatnonzero(before > 0.5 * _WORSE)
    misfit = _loss(before[worse])
    free = model.slowdown(model.start(), state) == 0
    most, low, touched = np.zeros(family.count + 1), np.zeros(family.count + 1), np.zeros(family.count + 1)
    # Label -1 is counted after the last part.
    for labels in family.labels:
        label = labels[worse]
        most += np.bincount(label % (family.count + 1), misfit, family.count + 1)
        low += np.bincount(label[free[worse]] % (family.count + 1), minlength=family.count + 1)
        if not free.all():
            held = labels[~free]
            touched += np.bincount(held % (family.count + 1), minlength=family.count + 1)
    enough = low[:-1] >= _NEARLY * family.agree * (family.sizes - touched[:-1])
    return family.possible & (most[:-1] > family.penalty) & enough


@dataclass(frozen=True, eq=False)
class _Effects:
    """For each part: the misfit it removes, the links for and against it, and its mean slowdown."""

    gain: Floats
    agree: Floats
    contradict: Floats
    slowdown: Floats


def _effects(
    model: DeviationModel, family: Family, state: Floats, before: Floats, levels: Floats
) -> _Effects:
    """Return each part's effect at its level; its slowdown is the mean of links favouring it."""
    gain, agree, contradict, slower = (np.zeros(family.count) for _ in range(4))
    wanted = np.append(np.isfinite(levels), False)  # the last entry is for label -1
    for labels in family.labels:
        at = np.flatnonzero(wanted[labels])
        label = labels[at]
        after = model.put(state[at], levels[label], at)
        lower = _loss(before[at]) - _loss(model.worse(after, at))
        favours = lower > 0
        gain += np.bincount(label, lower, family.count)
        agree += np.bincount(label, favours, family.count)
        contradict += np.bincount(label, lower < 0, family.count)
        slower += np.bincount(label, favours * model.slowdown(state[at], after), family.count)
    return _Effects(gain, agree, contradict, slower / np.maximum(agree, 1))


def _settled(model: DeviationModel, causes: Sequence[Cause]) -> tuple[list[Cause], Floats]:
    """Refine the severities, and remove causes that the others make needless, the weakest first."""
    left = list(causes)
    while True:
        for _ in range(_REFINEMENTS):
            left = _refined(model, left)
        gains, slowdowns, state = _own_effects(model, left)
        left = [
            Cause(one.family, one.part, one.severity, one.links, one.penalty, gain)
            for one, gain in zip(left, gains, strict=True)
        ]
        nets = [one.gain - one.penalty for one in left]
        weak = [
            at for at, one in enumerate(left) if nets[at] <= 0 or slowdowns[at] < _KEEP * one.family.least
        ]
        if not weak:
            return left, state
        # Two causes may each be needless while the other is there, so one goes at a time.
        del left[min(weak, key=lambda at: nets[at])]


def _refined(model: DeviationModel, causes: Sequence[Cause]) -> list[Cause]:
    """Return the causes, each at the median severity of the links that it decides."""
    found = list(causes)
    for at, cause in enumerate(found):
        others = _state(model, [*found[:at], *found[at + 1 :]], cause.links)
        severity = model.severity(others, cause.links)
        decides = severity >= 0.5 * cause.severity
        if isinstance(model, Ceiling):
            # Two kinds of links do not show this part's level: those that another part holds back further,
            # and those whose severity exceeds twice the cause's by more than three standard deviations.
            decides &= -others < cause.severity
            decides &= severity <= 2.0 * cause.severity + 3.0 * model.sigma[cause.links]
        if decides.any():
            found[at] = Cause(
                cause.family, cause.part, float(np.median(severity[decides])), cause.links, cause.penalty
            )
    return found


def _state(model: DeviationModel, causes: Sequence[Cause], at: Indices | None = None) -> Floats:
    """Return the state of the links ``at`` (all by default) under the causes."""
    state = model.start()
    for cause in causes:
        state[cause.links] = model.put(state[cause.links], cause.severity, cause.links)
    return state if at is None else state[at]


def _own_effects(model: DeviationModel, causes: Sequence[Cause]) -> tuple[list[float], list[float], Floats]:
    """Return the misfit that each cause removes, its own slowdown, and the state under all causes.

    The slowdown is the median over the links that the cause slows by more than half the least slowdown that
    counts. Another part may hold back the other links as much.
    """
    state = _state(model, causes)
    now = _loss(model.worse(state))
    gains, slowdowns = [], []
    for at, cause in enumerate(causes):
        without = _state(model, [*causes[:at], *causes[at + 1 :]], cause.links)
        gains.append(float((_loss(model.worse(without, cause.links)) - now[cause.links]).sum()))
        slower = model.slowdown(without, state[cause.links])
        clearly = slower[slower > 0.5 * cause.family.least]
        slowdowns.append(float(np.median(clearly)) if len(clearly) else 0.0)
    return gains, slowdowns, state


def _loss(worse: Floats) -> Floats:
    size = np.abs(worse)
    return np.where(size < _HUBER, 0.5 * size * size, _HUBER * (size - 0.5 * _HUBER))
