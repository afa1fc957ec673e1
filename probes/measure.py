"""All of profiling: every rank runs ``measure_task``, rank 0 gets the profile.

First ping-pong over disjoint pairs for alpha, then message trains in the round-robin rounds of
AdapCC (Sec. IV-B) for beta, several passes over all links so that a disturbance which lasts a while
does not take every sample of one link. Links whose fit is refused or that stand out are measured
again, alone, before they are reported. Ranks that have no part in a wave sleep.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from probes import pingpong, trains
from probes.assemble import Place, Samples, assemble, suspects
from probes.errors import UsageError
from probes.profile import Profile
from probes.progress import Progress
from probes.rounds import Pair, doubling_strides, pairings, rings, waves

__all__ = ["Effort", "measure_task"]

_SHORTEST_NAP_S, _LONGEST_NAP_S = 20e-6, 1e-3


@dataclass(frozen=True)
class Effort:
    """How long to look: ``quick`` is fewer passes, and over 8 ranks only strides 1, 2, 4, …"""

    quick: bool = False

    @property
    def passes(self) -> int:
        return 2 if self.quick else 5

    @property
    def enough_s(self) -> float:
        """After two passes, none begins later than this: slow links take long and vary little."""
        return 1.0 if self.quick else 3.0

    @property
    def pingpong_s(self) -> float:
        return 0.01 if self.quick else 0.03

    @property
    def trains_s(self) -> float:
        return 0.02 if self.quick else 0.04

    def strides(self, ranks: int) -> list[int]:
        return doubling_strides(ranks) if self.quick and ranks > 8 else list(range(1, ranks))


class _Prober:
    """One rank's part in the waves."""

    def __init__(self, comm: Any, effort: Effort, progress: Progress) -> None:
        self._comm, self._effort, self._progress = comm, effort, progress
        self._rank: int = comm.Get_rank()
        self._done, self._total = 0, 1

    def expect(self, waves_to_come: int) -> None:
        self._total = self._done + waves_to_come

    def alpha(self, wave: Sequence[Pair], step: str) -> Samples:
        found = Samples()
        self._start(wave, step)
        for first, second in wave:
            if self._rank == first:
                self._progress.waiting(second, step)
                balls = pingpong.round_trips(self._comm, second, self._effort.pingpong_s)
                found.round_trips_s[first, second] = balls.tolist()
            elif self._rank == second:
                self._progress.waiting(first, step)
                pingpong.answer(self._comm, first)
        return found

    def beta(self, wave: Sequence[Pair], step: str) -> Samples:
        found = Samples()
        self._start(wave, step)
        for src, dst in wave:
            if self._rank == src:
                self._progress.waiting(dst, step)
                trains.send(self._comm, dst)
            elif self._rank == dst:
                self._progress.waiting(src, step)
                found.trains[src, dst] = trains.receive(self._comm, src, self._effort.trains_s)
        return found

    def agreed(self, decision: bool) -> bool:
        """What rank 0 decides."""
        self._progress.waiting(0, "whether another pass is needed")
        return bool(self._comm.bcast(decision))

    def _start(self, wave: Sequence[Pair], step: str) -> None:
        """Wait for all ranks, asleep: ranks that poll take the cores of those that measure."""
        self._progress.update(self._done, self._total, step)
        self._progress.waiting(-1, f"{step}, before {', '.join(f'{a} → {b}' for a, b in wave[:4])}")
        self._done += 1
        request = self._comm.Ibarrier()
        nap_s = _SHORTEST_NAP_S
        while not request.Test():
            time.sleep(nap_s)
            nap_s = min(2 * nap_s, _LONGEST_NAP_S)


def measure_task(comm: Any, effort: Effort, progress: Progress) -> Profile | None:
    """The profile of the ranks of ``comm``, on rank 0; None elsewhere. Needs two ranks."""
    started_s = time.perf_counter()
    ranks: int = comm.Get_size()
    if ranks < 2:
        raise UsageError("a profile measures links between ranks: expected at least 2 ranks, found 1")
    places: list[Place] = comm.allgather(Place(socket.gethostname(), len(os.sched_getaffinity(0))))
    rounds = rings(ranks, effort.strides(ranks))
    prober = _Prober(comm, effort, progress)
    trains.warm_buffer()
    passes, found = _passes(prober, effort, rounds, places)
    samples = _gathered(comm, found)
    again = comm.bcast(suspects(samples, places) if comm.Get_rank() == 0 else None)
    retested = _gathered(comm, _retest(prober, again))
    if comm.Get_rank() != 0:
        return None
    samples.add(retested)
    return assemble(
        samples,
        places,
        library=_library(),
        seconds=time.perf_counter() - started_s,
        rounds=len(rounds) * passes,
    )


def _passes(
    prober: _Prober, effort: Effort, rounds: Sequence[Sequence[Pair]], places: Sequence[Place]
) -> tuple[int, Samples]:
    """How many passes were made, and this rank's samples of them."""
    host_of = [place.host for place in places]
    cores_of = {place.host: place.cores for place in places}
    met = _meetings(rounds) if effort.quick else pairings(len(places))
    alpha = [wave for pairs in met for wave in waves(pairs, host_of, cores_of)]
    beta = [wave for pairs in rounds for wave in waves(pairs, host_of, cores_of)]
    found = Samples()
    started_s = time.perf_counter()
    prober.expect(effort.passes * (len(alpha) + len(beta)))
    for number in range(1, effort.passes + 1):
        if number > 2 and prober.agreed(time.perf_counter() - started_s > effort.enough_s):
            return number - 1, found
        of = f"pass {number} of {effort.passes}"
        for index, wave in enumerate(alpha, start=1):
            found.add(prober.alpha(wave, f"latency, {of}, wave {index} of {len(alpha)}"))
        for index, wave in enumerate(beta, start=1):
            found.add(prober.beta(wave, f"bandwidth, {of}, wave {index} of {len(beta)}"))
    return effort.passes, found


def _retest(prober: _Prober, pairs: Sequence[Pair]) -> Samples:
    found = Samples()
    prober.expect(2 * len(pairs))
    for index, pair in enumerate(pairs, start=1):
        found.add(prober.alpha([pair], f"latency again, {index} of {len(pairs)}"))
        found.add(prober.beta([pair], f"bandwidth again, {index} of {len(pairs)}"))
    return found


def _meetings(rounds: Sequence[Sequence[Pair]]) -> list[list[Pair]]:
    """The links of ``rounds`` without direction, each once, in the round where it first comes."""
    seen: set[Pair] = set()
    met = []
    for pairs in rounds:
        fresh = {(min(pair), max(pair)) for pair in pairs} - seen
        seen |= fresh
        met.append(sorted(fresh))
    return met


def _gathered(comm: Any, samples: Samples) -> Samples:
    """On rank 0 the samples of every rank, elsewhere its own."""
    everyone = comm.gather(samples)
    if everyone is None:
        return samples
    total = Samples()
    for part in everyone:
        total.add(part)
    return total


def _library() -> str:
    from mpi4py import MPI

    text: str = MPI.Get_library_version()
    return text.replace("\0", " ").strip().splitlines()[0].split(",")[0].strip()
