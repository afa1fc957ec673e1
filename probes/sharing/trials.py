"""Trials of shared ports: the slowdown of a few flows at once, compared with each alone."""

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

# A trial: flows that last equally long when alone. Each host takes part in only one flow.
Trial = tuple[Pair, ...]

# Every trial sends flows at once and alone, so this bounds the time of the search for ports.
MOST_TRIALS = 64
# Least slowdown of flows that share a port. The slowdown is 1 if they share nothing, 2 if a port serves one
# of two at a time, and 4/3 if each of two needs two thirds of a port.
SHARED = 1.29
# With a smaller slowdown, nothing delayed the flows.
_DOUBTFUL = 1.1
# A slowdown is as expected if it differs from the expected one by less than this factor.
_AS_EXPECTED = 1.06
# The number of times that each flow is measured alone, and the seconds that it lasts.
_REPEATS, _FLOW_S = 2, 0.03
# If any link is slow, each flow is measured alone once instead of twice, and lasts twice as long. Bursts from
# queues and shapers then have little weight.
_SLOW_REPEATS, _SLOW_FLOW_S = 1, 0.06
# Seconds that flows which fill a trunk should last by their given rates. They run once more unless they end
# within _AS_PREDICTED times as long.
_CARRY_S, _AS_PREDICTED = 0.2, 1.03
# Bounds on the bytes of a flow, and the bytes of a message on a slow link and on others.
_MOST_FLOW_BYTES, _LEAST_FLOW_BYTES = 1 << 30, 1 << 16
_SMALL_BYTES, _LARGE_BYTES = 4 << 10, 1 << 20


class SpentError(Exception):
    """The time or the trials are used up; ports that were not tried stay as assumed."""


@dataclass(frozen=True)
class Accept:
    """The slowdowns that are accepted after one measurement; others are measured once more.

    Values up to ``below`` are accepted, because a disturbance only slows flows down. Values within 6 % of the
    expected value ``near`` are accepted, too.
    """

    below: float = _DOUBTFUL
    near: float = math.inf

    def accepts(self, slowdown: float) -> bool:
        return slowdown <= self.below or 1 / _AS_EXPECTED < slowdown / self.near < _AS_EXPECTED


# Used for a trial whose result a later one confirms.
ACCEPT_ANY = Accept(below=math.inf)
Try = Callable[[Sequence[Trial], Accept], Sequence[float]]
# A function that runs flows of these bytes at once; it returns the seconds until all have ended.
Carry = Callable[[Mapping[Pair, float]], float]


@dataclass(frozen=True)
class Known:
    """Results of the rounds: seconds per byte of each link, and the slowdowns of contended links.

    ``kept_waiting`` are links that are faster alone than in the median under concurrent load, which suggests
    contention but does not prove it. ``alone`` are links measured alone, so that their time in a trial is
    known in advance.
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
        """Return the ranks of each host."""
        found: dict[str, list[int]] = {}
        for rank, place in enumerate(self.places):
            found.setdefault(place.host, []).append(rank)
        return found


@dataclass
class ContentionTrials:
    """A budget of ``MOST_TRIALS`` for trials run by ``attempt`` and for loads run by ``carry``."""

    attempt: Try
    carry: Carry
    made: int = 0

    @property
    def left(self) -> int:
        return MOST_TRIALS - self.made

    def slowdowns(self, trials: Sequence[Trial], accept: Accept = Accept()) -> list[float]:
        """Return how many times longer the flows of each trial take together than alone.

        Raises SpentError if the trials or the time are used up.
        """
        if len(trials) > self.left:
            raise SpentError
        self.made += len(trials)
        found = self.attempt(trials, accept)
        if np.isnan(found).any():
            raise SpentError
        return [max(1.0, float(value)) for value in found]

    def carried(self, rates: Mapping[Pair, float]) -> float:
        """Return the total bytes/s of concurrent flows whose bytes are proportional to ``rates``.

        The flows last so long that latencies and bursts from queues and shapers have little weight. Raises
        SpentError as `slowdowns` does.
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
        """Return whether the flows of each trial share a port; raises SpentError as `slowdowns` does."""
        return [value > SHARED for value in self.slowdowns(trials, accept)]


def attempts(prober: Prober, known: Known) -> Try:
    """Return a function that runs trials on all ranks; trials without a common host run in parallel."""
    alone: dict[Pair, list[float]] = {}

    def attempt(trials: Sequence[Trial], accept: Accept) -> list[float]:
        found: dict[Trial, float] = {}
        for wave in _apart(trials, known):
            found |= _wave(prober, known, wave, alone, accept)
        return [found[trial] for trial in trials]

    return attempt


def carries(prober: Prober, known: Known) -> Carry:
    """Return a function that runs flows of any length on all ranks."""

    def carry(wanted: Mapping[Pair, float]) -> float:
        step = "what a trunk carries"
        mine = prober.stream([_sized(pair, known, length) for pair, length in wanted.items()], step)
        taken_s = _gathered(prober, mine, step)
        return max(taken_s.values()) if taken_s.keys() >= wanted.keys() else float("nan")

    return carry


def _wave(
    prober: Prober, known: Known, wave: Sequence[Trial], alone: dict[Pair, list[float]], accept: Accept
) -> dict[Trial, float]:
    """Return how many times longer the flows of each trial take together than alone.

    The time together ends with the last flow, because a shared port may serve one flow first. A disturbance
    only slows flows down, so the faster of two measurements counts. Slowdowns that ``accept`` accepts are not
    measured again. ``alone`` collects each flow's times alone. These times are measured in the flow's first
    trials, or computed if its link is slow and was measured alone before.
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
    """Return how long each flow took, on every rank."""
    lasts_s = _SLOW_FLOW_S if known.slow else _FLOW_S
    return _gathered(
        prober, prober.stream([_sized(pair, known, lasts_s / known.beta[pair]) for pair in pairs], step), step
    )


def _gathered(prober: Prober, mine: dict[Pair, float], step: str) -> dict[Pair, float]:
    """Return the measurements of all ranks, on every rank."""
    prober.waits_for_all(step)
    return {pair: seconds for part in prober.comm.allgather(mine) for pair, seconds in part.items()}


def _sized(pair: Pair, known: Known, length: float) -> PacketTrain:
    """Return a flow of about ``length`` bytes."""
    slow = is_slow(known.beta[pair])
    size = _SMALL_BYTES if slow else _LARGE_BYTES
    length = min(max(length, _LEAST_FLOW_BYTES), _MOST_FLOW_BYTES)
    return PacketTrain(pair, Train(size, max(16, int(length / size)), 1, calmly=slow))


def _apart(trials: Sequence[Trial], known: Known) -> list[list[Trial]]:
    """Group trials into waves without a common host."""
    return first_fit(trials, lambda trial: {known.host(rank) for pair in trial for rank in pair})
