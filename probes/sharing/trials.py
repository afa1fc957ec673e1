"""Trials of shared ports: a few flows at once, each alone, at once again, and how much longer that takes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from probes.sampling import PacketTrain, Pair, Place, Prober, Train, first_fit, is_slow

__all__ = [
    "ACCEPT_ANY",
    "MOST_TRIALS",
    "SHARED",
    "Accept",
    "ContentionTrials",
    "Known",
    "SpentError",
    "Trial",
    "attempts",
    "carries",
]

# Flows that take equally long alone; each host takes part in one of them only.
Trial = tuple[Pair, ...]

MOST_TRIALS = 64
# How many times longer flows take together than alone: 1 where they share nothing, 2 where of two one at a
# time gets through, 4/3 where each of two takes two thirds of a port.
SHARED = 1.29
# Below this nothing held the flows up.
_DOUBTFUL = 1.1
# A slowdown is as expected if it differs from the expected one by less than this factor.
_AS_EXPECTED = 1.06
_REPEATS, _FLOW_S = 2, 0.03
# Where links are slow, flows last so long that what queues and shapers let through at once weighs little.
_SLOW_REPEATS, _SLOW_FLOW_S = 1, 0.06
_CARRY_S = 0.2
# Flows through a trunk that take less than this times what an earlier trial predicts are not repeated.
_AS_PREDICTED = 1.03
_MOST_FLOW_BYTES, _LEAST_FLOW_BYTES = 1 << 30, 1 << 16
_SMALL_BYTES, _LARGE_BYTES = 4 << 10, 1 << 20


class SpentError(Exception):
    """There is no time left for trials: what was not tried stays as it was assumed."""


@dataclass(frozen=True)
class Accept:
    """The slowdowns that are accepted after one measurement; others are measured once more.

    Up to ``below``, as a disturbance only slows flows down, and within 6 % of the expected value ``near``.
    """

    below: float = _DOUBTFUL
    near: float = math.inf

    def accepts(self, slowdown: float) -> bool:
        return slowdown <= self.below or 1 / _AS_EXPECTED < slowdown / self.near < _AS_EXPECTED


# For a trial whose result a later one confirms.
ACCEPT_ANY = Accept(below=math.inf)
Try = Callable[[Sequence[Trial], Accept], Sequence[float]]
# The bytes of each flow, seconds until all are through.
Carry = Callable[[Mapping[Pair, float]], float]


@dataclass(frozen=True)
class Known:
    """What the rounds measured: seconds a byte of each link, and how many times contended ones are slower.

    ``kept_waiting`` are links that are faster alone than they mostly were in company: a sign, no proof.
    ``alone`` are links that were measured alone, so their time in a trial is known before.
    """

    beta: Mapping[Pair, float]
    contended: Mapping[Pair, float]
    places: Sequence[Place]
    kept_waiting: Mapping[Pair, float] = field(default_factory=dict)
    alone: frozenset[Pair] = frozenset()

    @cached_property
    def slow(self) -> bool:
        """Whether there are slow links."""
        return any(map(is_slow, self.beta.values()))

    def host(self, rank: int) -> str:
        return self.places[rank].host

    def ranks_of(self) -> dict[str, list[int]]:
        """The ranks of each host."""
        found: dict[str, list[int]] = {}
        for rank, place in enumerate(self.places):
            found.setdefault(place.host, []).append(rank)
        return found


@dataclass
class ContentionTrials:
    """Runs ``MOST_TRIALS`` trials at most, with ``attempt``; flows of any length with ``carry``."""

    attempt: Try
    carry: Carry
    made: int = 0

    @property
    def left(self) -> int:
        return MOST_TRIALS - self.made

    def slowdowns(self, trials: Sequence[Trial], accept: Accept = Accept()) -> list[float]:
        """How many times longer the flows of each trial take together than alone.

        Raises SpentError beyond the limit or the clock.
        """
        if len(trials) > self.left:
            raise SpentError
        self.made += len(trials)
        found = self.attempt(trials, accept)
        if np.isnan(found).any():
            raise SpentError
        return [max(1.0, float(value)) for value in found]

    def carried(self, rates: Mapping[Pair, float]) -> float:
        """The bytes/s of some flows at once if each has its part of the bytes; raises as `slowdowns` does.

        They last so long that latencies, and what queues and shapers let through at once, weigh little.
        """
        if not self.left:
            raise SpentError
        self.made += 1
        wanted = {pair: rate * _CARRY_S for pair, rate in rates.items()}
        taken_s = self.carry(wanted)
        if not taken_s < _AS_PREDICTED * _CARRY_S:
            taken_s = min(taken_s, self.carry(wanted))
        if np.isnan(taken_s):
            raise SpentError
        return sum(wanted.values()) / taken_s

    def shared(self, trials: Sequence[Trial], accept: Accept = Accept(below=SHARED)) -> list[bool]:
        """Whether the flows of each trial share a port; raises SpentError as `slowdowns` does."""
        return [value > SHARED for value in self.slowdowns(trials, accept)]


def attempts(prober: Prober, known: Known) -> Try:
    """How all ranks run trials together, those that have no host in common at the same time."""
    alone: dict[Pair, list[float]] = {}

    def attempt(trials: Sequence[Trial], accept: Accept) -> list[float]:
        found: dict[Trial, float] = {}
        for wave in _apart(trials, known):
            found |= _wave(prober, known, wave, alone, accept)
        return [found[trial] for trial in trials]

    return attempt


def carries(prober: Prober, known: Known) -> Carry:
    """How all ranks run flows of any length together."""

    def carry(wanted: Mapping[Pair, float]) -> float:
        step = "what a trunk carries"
        mine = prober.stream([_sized(pair, known, length) for pair, length in wanted.items()], step)
        taken_s = _gathered(prober, mine, step)
        return max(taken_s.values()) if taken_s.keys() >= wanted.keys() else float("nan")

    return carry


def _wave(
    prober: Prober, known: Known, wave: Sequence[Trial], alone: dict[Pair, list[float]], accept: Accept
) -> dict[Trial, float]:
    """How many times longer the flows of each trial take together than alone.

    The time together is that until all flows have ended: of two that share a port one may be let through
    first. A disturbance only makes flows slower, so of two measurements the faster counts; those that
    ``accept`` accepts are not repeated. The time of a flow ``alone`` is measured in its first trials, unless
    its link is slow and was measured alone before.
    """
    together: dict[Trial, float] = {}

    def at_once(trials: Sequence[Trial], step: str) -> bool:
        took = _stream(prober, known, [pair for trial in trials for pair in trial], step)
        for trial in trials:
            if not took.keys() >= set(trial):
                return False
            end_s = max(took[pair] for pair in trial)
            together[trial] = min(together.get(trial, end_s), end_s)
        return True

    def slowdown(trial: Trial) -> float:
        return together[trial] / max(min(alone[pair]) for pair in trial)

    out_of_time = dict.fromkeys(wave, float("nan"))
    repeats = _SLOW_REPEATS if known.slow else _REPEATS
    for pair in {pair for trial in wave for pair in trial} & known.alone:
        if is_slow(known.beta[pair]):
            train = _sized(pair, known, _SLOW_FLOW_S / known.beta[pair]).train
            alone.setdefault(pair, [train.messages * train.size_bytes * known.beta[pair]])
    if not at_once(wave, "shared ports, at once"):
        return out_of_time
    for turn in range(max(map(len, wave))):
        flows = [
            trial[turn] for trial in wave if turn < len(trial) and len(alone.get(trial[turn], ())) < repeats
        ]
        took = _stream(prober, known, flows, "shared ports, one alone") if flows else {}
        if len(took) < len(flows):
            return out_of_time
        for pair, seconds in took.items():
            alone.setdefault(pair, []).append(seconds)
    doubtful = [trial for trial in wave if not accept.accepts(slowdown(trial))]
    if doubtful and not at_once(doubtful, "shared ports, at once again"):
        return out_of_time
    return {trial: slowdown(trial) for trial in wave}


def _stream(prober: Prober, known: Known, pairs: Sequence[Pair], step: str) -> dict[Pair, float]:
    """How long each flow took, on every rank."""
    lasts_s = _SLOW_FLOW_S if known.slow else _FLOW_S
    return _gathered(
        prober, prober.stream([_sized(pair, known, lasts_s / known.beta[pair]) for pair in pairs], step), step
    )


def _gathered(prober: Prober, mine: dict[Pair, float], step: str) -> dict[Pair, float]:
    """What every rank measured, on every rank."""
    prober.waits_for_all(step)
    return {pair: seconds for part in prober.comm.allgather(mine) for pair, seconds in part.items()}


def _sized(pair: Pair, known: Known, length: float) -> PacketTrain:
    """A flow of about so many bytes."""
    slow = is_slow(known.beta[pair])
    size = _SMALL_BYTES if slow else _LARGE_BYTES
    length = min(max(length, _LEAST_FLOW_BYTES), _MOST_FLOW_BYTES)
    return PacketTrain(pair, Train(size, max(16, int(length / size)), 1, calmly=slow))


def _apart(trials: Sequence[Trial], known: Known) -> list[list[Trial]]:
    """Waves of trials that have no host in common."""
    return first_fit(trials, lambda trial: {known.host(rank) for pair in trial for rank in pair})
