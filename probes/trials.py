"""Trials of shared ports: two flows at once, then each alone, and what they reach together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from probes.prober import Flow, Prober
from probes.rounds import Pair
from probes.samples import Place

__all__ = ["MOST_TRIALS", "Known", "SpentError", "Trial", "Trials", "attempts"]

Trial = tuple[Pair, Pair]
Try = Callable[[Sequence[Trial]], Sequence[float]]

MOST_TRIALS = 64
# In units of what each flow does alone: 2 where they share nothing, 1 where one transfer at a time
# gets through.
_SHARED = 1.4
_REPEATS = 2
_FLOW_S, _MOST_FLOW_BYTES, _LEAST_FLOW_BYTES = 0.12, 1 << 30, 1 << 19
_SMALL_BYTES, _LARGE_BYTES, _SMALL_S_PER_BYTE = 16 << 10, 1 << 20, 4e-8


class SpentError(Exception):
    """There is no time left for trials: what was not tried stays as it was assumed."""


@dataclass(frozen=True)
class Known:
    """What the rounds told: seconds a byte of each measured link, and which are contended, how many times."""

    beta: Mapping[Pair, float]
    contended: Mapping[Pair, float]
    places: Sequence[Place]

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
    steps = [
        [pair for trial in wave for pair in trial],
        [one for one, _ in wave],
        [other for _, other in wave],
    ]
    names = ("together", "the first alone", "the second alone")
    times: list[dict[Pair, list[float]]] = [{}, {}, {}]
    for repeat in range(1, _REPEATS + 1):
        for number, (name, pairs) in enumerate(zip(names, steps, strict=True)):
            step = f"shared ports, {name}, {repeat} of {_REPEATS}"
            mine = prober.stream([_flow(pair, known) for pair in pairs], step)
            prober.waits_for_all(step)
            for part in prober.comm.allgather(mine):
                for pair, seconds in part.items():
                    times[number].setdefault(pair, []).append(seconds)
    best = [{pair: min(values) for pair, values in found.items()} for found in times]
    alone = best[1] | best[2]
    found = {}
    for one, other in wave:
        ratios = [alone[pair] / best[0][pair] for pair in (one, other) if pair in alone and pair in best[0]]
        found[one, other] = float(np.sum(ratios)) if len(ratios) == 2 else float("nan")
    return found


def _flow(pair: Pair, known: Known) -> Flow:
    """So many bytes that the flow alone takes a tenth of a second."""
    beta = known.beta[pair]
    size = _SMALL_BYTES if beta > _SMALL_S_PER_BYTE else _LARGE_BYTES
    length = min(max(_FLOW_S / beta, _LEAST_FLOW_BYTES), _MOST_FLOW_BYTES)
    return Flow(pair, size, max(16, int(length / size)))


def _apart(trials: Sequence[Trial], known: Known) -> list[list[Trial]]:
    """Waves of trials that have no host in common."""
    waves: list[tuple[list[Trial], set[str]]] = []
    for trial in trials:
        hosts = {known.host(rank) for pair in trial for rank in pair}
        for wave, busy in waves:
            if not busy & hosts:
                wave.append(trial)
                busy |= hosts
                break
        else:
            waves.append(([trial], hosts))
    return [wave for wave, _ in waves]
