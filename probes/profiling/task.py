"""Profiling as one task of all ranks: every rank calls ``profile``, rank 0 gets the result.

In the round-robin rounds of AdapCC (Sec. IV-B), ping-pong gives alpha and message trains give beta. There are
several passes over all links, so that a lasting disturbance does not spoil every sample of one link. Links
that stand out, or whose fit is rejected, are measured again, alone, before they are reported. Then trials
show which links share ports.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from probes.base import SILENT, Safekeeping, UsageError
from probes.files import held
from probes.link_costs import Profile, SentSegments
from probes.live import CudaEnd, Need, cuda_end, library_name, require_room
from probes.paths import nic_kind
from probes.profiling.assemble import assemble
from probes.profiling.declared import bound_nic, declared_nic
from probes.profiling.options import Effort
from probes.profiling.phases import Steps
from probes.sampling import Place, Prober, Samples, packet_trains, sent_and_retransmitted

__all__ = ["Begun", "profile", "rescued"]


# The bytes that a rank needs: of memory, mostly for its message buffer, and of /dev/shm, for MPI.
_RANK_BYTES, _SHARED_BYTES = 112 << 20, 1 << 20


@dataclass(frozen=True)
class Begun:
    """Facts that a profile needs besides samples, kept in case the run is cut short."""

    places: tuple[Place, ...]
    library: str
    links: int


def profile(comm: Any, effort: Effort | None = None, progress: Safekeeping = SILENT) -> Profile | None:
    """Measure alpha and beta of every link between the ranks of ``comm``, round-robin (AdapCC, Sec. IV-B).

    Call it on every rank of ``comm``, an mpi4py communicator of at least two ranks, or let ``exec.launch``
    call it on each rank that it starts. Returns the `Profile` on rank 0, None elsewhere: alpha in seconds,
    beta in seconds per byte, for each ordered pair. ``effort`` says how long to measure, and what; N ranks
    take O(N) rounds, of some 0.1 s each.

    Raises UsageError for one rank, LockHeldError if another measurement of this user runs on one of the
    hosts, and UnavailableError if memory is short.

    >>> from exec import launch
    >>> from probes import Effort, profile
    >>> found = launch(profile, Effort(quick=True), ranks=2)
    >>> found.links.src.tolist(), found.links.dst.tolist()
    ([0, 1], [1, 0])
    """
    effort = effort or Effort()
    if comm.Get_size() < 2:
        raise UsageError("a profile measures links between ranks: expected at least 2 ranks, found 1")
    require_room(comm, Need(_RANK_BYTES, _SHARED_BYTES), "a profile")
    with held(comm, effort.wait_s, progress) as unlocked:
        return _measure(comm, effort, progress, unlocked)


def _measure(comm: Any, effort: Effort, progress: Safekeeping, unlocked: Sequence[str]) -> Profile | None:
    gpu, places = _placed(comm, effort)
    plan = effort.plan(places)
    packet_trains.warm_buffer()
    comm.Barrier()
    started_s = time.perf_counter()
    sent_before, retransmitted_before = sent_and_retransmitted()
    prober = Prober(comm, plan.dose, progress, gpu, _near(comm.Get_rank(), places))
    if prober.rank == 0:
        links = len({pair for pairs in plan.rounds for pair in pairs})
        progress.partial(Begun(tuple(places), library_name(), links))
    if effort.budget_s is not None:
        prober.deadline_s = started_s + effort.budget_s
    steps = Steps(prober, effort, places, started_s)
    passes, samples = steps.passes(plan)
    instances = steps.checked(samples)
    steps.retest(samples)
    shares, notes = steps.ports(samples)
    copies, memory = steps.host_copies(), steps.memory()
    sent, retransmitted = sent_and_retransmitted()
    prober.waits_for_all("how much was sent")
    segments = comm.gather((max(0, sent - sent_before), max(0, retransmitted - retransmitted_before)))
    if prober.rank != 0:
        return None
    return assemble(
        samples,
        places,
        library=library_name(),
        seconds=time.perf_counter() - started_s,
        rounds=len(plan.rounds) * passes,
        shares=shares,
        notes=[*unlocked, *steps.notes(samples), *notes],
        host_copies=copies,
        memory=memory,
        instances=instances,
        segments=_of_hosts(places, segments),
        topology=effort.topology_name,
    )


def _placed(comm: Any, effort: Effort) -> tuple[CudaEnd | None, list[Place]]:
    """Return this rank's GPU, if it has one, and the places of all ranks."""
    every: list[tuple[str, set[int]]] = comm.allgather((socket.gethostname(), os.sched_getaffinity(0)))
    hosts = [host for host, _ in every]
    rank = comm.Get_rank()
    cores = len(set().union(*(cores for host, cores in every if host == hosts[rank])))
    gpu = cuda_end(effort.device, hosts[:rank].count(hosts[rank]))
    here = Place(hosts[rank], cores, gpu.name if gpu else "process", bound_nic())
    if effort.topology is not None:
        declared = declared_nic(effort.topology, here.host, gpu.bus_id if gpu else "")
        here = replace(here, nic=declared.name, nic_kind=nic_kind(declared)) if declared else here
    return gpu, comm.allgather(here)


def _of_hosts(places: Sequence[Place], segments: Sequence[tuple[int, int]]) -> list[SentSegments]:
    """Return the segments of each host, as the first of its ranks counted them."""
    first: dict[str, SentSegments] = {}
    for place, (sent, retransmitted) in zip(places, segments, strict=True):
        first.setdefault(place.host, SentSegments(place.host, sent, min(sent, retransmitted)))
    return [one for one in first.values() if one.sent]


def _near(rank: int, places: Sequence[Place]) -> frozenset[int]:
    """Return the ranks that can copy from this rank's GPU without a network."""
    return frozenset(
        other
        for other, place in enumerate(places)
        if place.on_gpu and places[rank].on_gpu and place.host == places[rank].host
    )


def rescued(values: Iterable[object], why: str, seconds: float = 0.0) -> Profile | None:
    """Return the profile of the links measured before the run was cut short; None without any link."""
    begun: Begun | None = None
    samples = Samples()
    for value in values:
        if isinstance(value, Samples):
            samples.add(value)
        elif isinstance(value, Begun):
            begun = value
    if begun is None or not samples.measured():
        return None
    missing = begun.links - len(samples.measured())
    left = f"{missing} of {begun.links} links not measured" if missing else "each link measured at least once"
    cut_short = f"interrupted: {why}; {left}"
    return assemble(
        samples, begun.places, library=begun.library, seconds=seconds, rounds=0, interrupted=cut_short
    )
