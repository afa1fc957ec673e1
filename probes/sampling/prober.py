"""One rank's part in profiling: its measurements in each wave, while ranks without a part sleep."""

from __future__ import annotations

import time
from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Any

from probes.base import Safekeeping
from probes.sampling import cuda_copies, latency, packet_trains
from probes.sampling.cuda_copies import GpuEnd
from probes.sampling.packet_trains import Train
from probes.sampling.rounds import Pair
from probes.sampling.run_queue import waited_s
from probes.sampling.samples import Samples

__all__ = ["Dose", "PacketTrain", "Prober"]

# Naps double between these: short waits end promptly, long waits leave the cores to others.
_SHORTEST_NAP_S, _LONGEST_NAP_S = 20e-6, 1e-3


@dataclass(frozen=True)
class Dose:
    """The time for one link in one wave, and the message sizes (empty: chosen to suit the link)."""

    pingpong_s: float
    trains_s: float
    sizes: tuple[int, ...] = ()


@dataclass(frozen=True)
class PacketTrain:
    """A train on one link, sent while others may be sending."""

    pair: Pair
    train: Train


class Prober:
    """Measurements of one rank; all ranks call the same methods in the same order."""

    def __init__(
        self,
        comm: Any,
        dose: Dose,
        progress: Safekeeping,
        gpu: GpuEnd | None = None,
        near: Set[int] = frozenset(),
    ) -> None:
        """Take part with ``gpu``, if any; ``near`` are the ranks with GPUs on the same host."""
        self.dose = dose
        self.gpu, self._near = gpu, near
        self.comm, self._progress = comm, progress
        self.rank: int = comm.Get_rank()
        self._done, self._total = 0, 1
        self.deadline_s = float("inf")

    def expect(self, waves_to_come: int) -> None:
        self._total = self._done + waves_to_come

    def alpha(self, wave: Sequence[Pair], step: str, share: float = 1.0) -> Samples | None:
        """Time round trips of the pairs of one wave, for this share of the dose.

        Returns None, on every rank, when time is up.
        """
        if not self._start(wave, step):
            return None
        found = Samples()
        for first, second in wave:
            if self.rank not in (first, second):
                continue
            began_s, before_s = time.perf_counter(), waited_s()
            if self.rank == first:
                self._progress.waiting(second, step)
                if self.gpu and second in self._near:
                    found.round_trips_s[second, first] = self._copied_twice(self.gpu, second)
                    cuda_copies.lend(self.comm, second, self.gpu)
                else:
                    balls = latency.round_trips(self.comm, second, share * self.dose.pingpong_s)
                    found.round_trips_s[first, second] = balls.tolist()
            else:
                self._progress.waiting(first, step)
                if self.gpu and first in self._near:
                    cuda_copies.lend(self.comm, first, self.gpu)
                    found.round_trips_s[first, second] = self._copied_twice(self.gpu, first)
                else:
                    latency.answer(self.comm, first)
            me, peer = (first, second) if self.rank == first else (second, first)
            found.waited[me, peer] = [_share_waited(began_s, before_s)]
        self._keep(found)
        return found

    def beta(self, wave: Sequence[Pair], step: str, *, alone: bool = False) -> Samples | None:
        """Time trains on the links of one wave; returns None, on every rank, when time is up."""
        if not self._start(wave, step):
            return None
        found = Samples()
        kept = found.again if alone else found.trains
        for src, dst in wave:
            began_s, before_s = time.perf_counter(), waited_s()
            if self.rank == src:
                self._progress.waiting(dst, step)
                if self.gpu and dst in self._near:
                    cuda_copies.lend(self.comm, dst, self.gpu)
                else:
                    packet_trains.send(self.comm, dst)
                found.sender_waited[src, dst] = [_share_waited(began_s, before_s)]
            elif self.rank == dst:
                kept[src, dst] = self._receive(src, step, alone=alone)
                found.receiver_waited[src, dst] = [_share_waited(began_s, before_s)]
        self._keep(found)
        return found

    def stream(self, flows: Sequence[PacketTrain], step: str) -> dict[Pair, float]:
        """Start all ``flows`` at once; return the seconds until each flow to this rank has arrived."""
        found: dict[Pair, float] = {}
        if not self._start([flow.pair for flow in flows], step):
            return found
        began_s = time.perf_counter()
        for flow in flows:
            src, dst = flow.pair
            if self.rank == src:
                self._progress.waiting(dst, step)
                packet_trains.send_train(self.comm, dst, flow.train)
            elif self.rank == dst:
                self._progress.waiting(src, step)
                packet_trains.receive_train(self.comm, src, flow.train)
                found[flow.pair] = time.perf_counter() - began_s
        return found

    def says(self, step: str) -> None:
        """Report the current step of this rank to the progress."""
        self._progress.waiting(-1, step)

    def waits_for_all(self, step: str) -> None:
        """Report that a collective call follows, and sleep until all ranks are ready."""
        self._progress.waiting(-1, step)
        self._asleep(self.comm.Ibarrier())

    def _receive(self, src: int, step: str, *, alone: bool) -> packet_trains.Trains:
        count = 0

        def alive() -> None:
            nonlocal count
            count += 1
            self._progress.waiting(src, f"{step}, train {count}")

        alive()
        if self.gpu and src in self._near:
            return cuda_copies.trains_from(self.comm, src, self.gpu, self.dose.trains_s, self.dose.sizes)
        return packet_trains.receive(self.comm, src, self.dose.trains_s, self.dose.sizes, alive, alone=alone)

    def _copied_twice(self, gpu: GpuEnd, peer: int) -> list[float]:
        """Return twice the times of tiny copies from ``peer``, in place of round trips."""
        return [2 * seconds for seconds in cuda_copies.latencies(self.comm, peer, gpu)]

    def _keep(self, found: Samples) -> None:
        if found.trains or found.again or found.round_trips_s:
            self._progress.partial(found)

    def _start(self, wave: Sequence[Pair], step: str) -> bool:
        """Sleep until all ranks are ready: ranks that poll take cores from those that measure.

        Returns whether there is time for this wave: no rank's clock is past the deadline.
        """
        import numpy as np
        from mpi4py import MPI

        self._progress.update(self._done, self._total, step)
        self._progress.waiting(-1, f"{step}, before {', '.join(f'{a} → {b}' for a, b in wave[:4])}")
        self._done += 1
        late = np.array([time.perf_counter() > self.deadline_s], dtype=np.int32)
        anybody = np.zeros(1, dtype=np.int32)
        self._asleep(self.comm.Iallreduce(late, anybody, MPI.MAX))
        return not anybody[0]

    def _asleep(self, request: Any) -> None:
        """Sleep until ``request`` completes, and leave the cores to ranks that measure or compute."""
        nap_s = _SHORTEST_NAP_S
        while not request.Test():
            time.sleep(nap_s)
            nap_s = min(2 * nap_s, _LONGEST_NAP_S)


def _share_waited(began_s: float, before_s: float) -> float:
    """Return the share of the time since ``began_s`` in which this rank waited for a core.

    ``before_s`` is the time that it had waited for a core until ``began_s``.
    """
    return (waited_s() - before_s) / max(time.perf_counter() - began_s, 1e-9)
