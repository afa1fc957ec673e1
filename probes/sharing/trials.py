"""Trials of shared ports: two flows at once, each alone, at once again, and how long that takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from probes.sampling.prober import Flow, Prober
from probes.sampling.rounds import Pair, first_fit
from probes.sampling.samples import Place

__all__ = ["MOST_TRIALS", "Known", "SpentError", "Trial", "Trials", "attempts"]

Trial = tuple[Pair, Pair]
Try = Callable[[Sequence[Trial]], Sequence[float]]

MOST_TRIALS = 64
# The time of two flows one after the other in units of that together: 2 where they share nothing, 1
# where one transfer at a time gets through.
_SHARED = 1.4
_REPEATS = 2
_FLOW_S, _MOST_FLOW_BYTES, _LEAST_FLOW_BYTES = 0.08, 1 << 30, 1 << 19
_SMALL_BYTES, _LARGE_BYTES, _SMALL_S_PER_BYTE = 16 << 10, 1 << 20, 4e-8


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

    def attempt(trials: Sequence[Trial]) -> list[float]:
        found: dict[Trial, float] = {}
        for wave in _apart(trials, known):
            found |= _wave(prober, known, wave)
        return [found[trial] for trial in trials]

    return attempt


def _wave(prober: Prober, known: Known, wave: Sequence[Trial]) -> dict[Trial, float]:
    """Two flows take as long together as one after the other where one transfer at a time gets through.

    Until both have ended, as of two that share a port one may well be let through first.
    """
    both = [pair for trial in wave for pair in trial]
    firsts, seconds = [one for one, _ in wave], [other for _, other in wave]
    alone: dict[Pair, float] = {}
    together: dict[Pair, list[float]] = {}
    for step, pairs in enumerate((both, firsts, seconds, both), start=1):
        took = _stream(prober, known, pairs, f"shared ports, step {step} of 4")
        if pairs is both:
            for pair, took_s in took.items():
                together.setdefault(pair, []).append(took_s)
        else:
            alone |= took
    found = {}
    for one, other in wave:
        ends = [max(pair) for pair in zip(together.get(one, []), together.get(other, []), strict=False)]
        whole = {one, other} <= alone.keys() and len(ends) == _REPEATS
        found[one, other] = (alone[one] + alone[other]) / min(ends) if whole else float("nan")
    return found


def _stream(prober: Prober, known: Known, pairs: Sequence[Pair], step: str) -> dict[Pair, float]:
    """How long each flow took, on every rank."""
    mine = prober.stream([_flow(pair, known) for pair in pairs], step)
    prober.waits_for_all(step)
    return {pair: seconds for part in prober.comm.allgather(mine) for pair, seconds in part.items()}


def _flow(pair: Pair, known: Known) -> Flow:
    """So many bytes that the flow alone takes a tenth of a second."""
    beta = known.beta[pair]
    size = _SMALL_BYTES if beta > _SMALL_S_PER_BYTE else _LARGE_BYTES
    length = min(max(_FLOW_S / beta, _LEAST_FLOW_BYTES), _MOST_FLOW_BYTES)
    return Flow(pair, size, max(16, int(length / size)))


def _apart(trials: Sequence[Trial], known: Known) -> list[list[Trial]]:
    """Waves of trials that have no host in common."""
    return first_fit(trials, lambda trial: {known.host(rank) for pair in trial for rank in pair})
