"""Trials of shared ports: two flows at once, each alone, at once again, and how long that takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from probes.sampling.packet_trains import Train, is_slow
from probes.sampling.prober import Flow, Prober
from probes.sampling.rounds import Pair, first_fit
from probes.sampling.samples import Place

__all__ = ["MOST_TRIALS", "Known", "SpentError", "Trial", "Trials", "attempts"]

Trial = tuple[Pair, Pair]
Try = Callable[[Sequence[Trial]], Sequence[float]]

MOST_TRIALS = 64
# The time of two flows one after the other in units of that together: 2 where they share nothing, 1
# where one transfer at a time gets through, 1.5 where each of them takes three quarters of a port.
_SHARED = 1.55
_REPEATS = 2
_FLOW_S, _MOST_FLOW_BYTES, _LEAST_FLOW_BYTES = 0.03, 1 << 30, 1 << 16
_SMALL_BYTES, _LARGE_BYTES = 4 << 10, 1 << 20


class SpentError(Exception):
    """There is no time left for trials: what was not tried stays as it was assumed."""


@dataclass(frozen=True)
class Known:
    """What the rounds told: seconds a byte of each measured link, and which are contended, how many times.

    ``kept_waiting`` are those that are faster alone than they mostly were in company: a sign, no proof.
    """

    beta: Mapping[Pair, float]
    contended: Mapping[Pair, float]
    places: Sequence[Place]
    kept_waiting: Mapping[Pair, float] = field(default_factory=dict)

    def host(self, rank: int) -> str:
        return self.places[rank].host

    def ranks_of(self) -> dict[str, list[int]]:
        """The ranks of each host."""
        found: dict[str, list[int]] = {}
        for rank, place in enumerate(self.places):
            found.setdefault(place.host, []).append(rank)
        return found


@dataclass
class Trials:
    """Runs trials with ``attempt`` until there have been ``MOST_TRIALS``."""

    attempt: Try
    made: int = 0

    @property
    def left(self) -> int:
        return MOST_TRIALS - self.made

    def shared(self, trials: Sequence[Trial]) -> list[bool]:
        """Whether the flows of each trial share a port; raises SpentError beyond the limit or the clock."""
        if len(trials) > self.left:
            raise SpentError
        self.made += len(trials)
        found = self.attempt(trials)
        if np.isnan(found).any():
            raise SpentError
        return [value < _SHARED for value in found]


def attempts(prober: Prober, known: Known) -> Try:
    """How all ranks run trials together, those that have no host in common at the same time."""
    alone: dict[Pair, list[float]] = {}

    def attempt(trials: Sequence[Trial]) -> list[float]:
        found: dict[Trial, float] = {}
        for wave in _apart(trials, known):
            found |= _wave(prober, known, wave, alone)
        return [found[trial] for trial in trials]

    return attempt


def _wave(
    prober: Prober, known: Known, wave: Sequence[Trial], alone: dict[Pair, list[float]]
) -> dict[Trial, float]:
    """Two flows take as long together as one after the other where one transfer at a time gets through.

    Until both have ended, as of two that share a port one may well be let through first. A disturbance only
    makes flows slower, so what is fast enough together is so; anything else is tried again. What a flow
    takes ``alone`` is measured in its first trials only.
    """
    together: dict[Trial, float] = {}

    def both(trials: Sequence[Trial], step: str) -> bool:
        took = _stream(prober, known, [pair for trial in trials for pair in trial], step)
        for one, other in trials:
            if not {one, other} <= took.keys():
                return False
            end_s = max(took[one], took[other])
            together[one, other] = min(together.get((one, other), end_s), end_s)
        return True

    def ratio(trial: Trial) -> float:
        return sum(min(alone[pair]) for pair in trial) / together[trial]

    out_of_time = dict.fromkeys(wave, float("nan"))
    if not both(wave, "shared ports, both"):
        return out_of_time
    for end in (0, 1):
        flows = [trial[end] for trial in wave if len(alone.get(trial[end], ())) < _REPEATS]
        took = _stream(prober, known, flows, "shared ports, one alone") if flows else {}
        if len(took) < len(flows):
            return out_of_time
        for pair, seconds in took.items():
            alone.setdefault(pair, []).append(seconds)
    doubtful = [trial for trial in wave if ratio(trial) < _SHARED]
    if doubtful and not both(doubtful, "shared ports, both again"):
        return out_of_time
    return {trial: ratio(trial) for trial in wave}


def _stream(prober: Prober, known: Known, pairs: Sequence[Pair], step: str) -> dict[Pair, float]:
    """How long each flow took, on every rank."""
    mine = prober.stream([_flow(pair, known) for pair in pairs], step)
    prober.waits_for_all(step)
    return {pair: seconds for part in prober.comm.allgather(mine) for pair, seconds in part.items()}


def _flow(pair: Pair, known: Known) -> Flow:
    """So many bytes that the flow alone takes some hundredths of a second."""
    beta = known.beta[pair]
    slow = is_slow(beta)
    size = _SMALL_BYTES if slow else _LARGE_BYTES
    length = min(max(_FLOW_S / beta, _LEAST_FLOW_BYTES), _MOST_FLOW_BYTES)
    return Flow(pair, Train(size, max(16, int(length / size)), 1, calmly=slow))


def _apart(trials: Sequence[Trial], known: Known) -> list[list[Trial]]:
    """Waves of trials that have no host in common."""
    return first_fit(trials, lambda trial: {known.host(rank) for pair in trial for rank in pair})
