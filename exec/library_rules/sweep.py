"""The measurement of an MPI library's algorithms: at few sizes first, then more where the choice changes."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from exec.benchmark import Repetitions, crowded, interleaved
from exec.library_rules import mpich
from exec.library_rules.choice import (
    AlgorithmTimes,
    MedianTime,
    Rule,
    disturbed,
    next_size,
    notably_less,
    rules_of,
    timing_of,
)
from exec.peers import Call, MpiPeer, Variables, algorithm_names, algorithm_numbers, library_path
from exec.program import Array
from probes.base import Progress, UnavailableError
from probes.live import library_name
from synth.collective import Collective, Kind, collective

__all__ = ["OWN", "UNTOUCHED", "PrivateBuffers", "Sweep", "SweepRequest", "sweep_task"]

# The component of the library that reads rules, left to its own choice of the algorithm.
OWN = "own"
# The library as it comes, without rules. Another component may then serve the call.
UNTOUCHED = "untouched"
_NAMES = {"openmpi": "Open MPI", "mpich": "MPICH"}
# The ratio of neighbouring sizes at first. Two more sizes then place a crossover within a factor of 2.
_STEP = 8
# The turns of each algorithm in a first measurement: the median of three resists one outlier.
_TURNS = 3
# The most turns of an algorithm at a size. The standard error of their median is an eighth of the standard
# deviation of a turn.
_MOST_TURNS = 100
# An algorithm whose first median is this many times the least is not measured further at that size. The sweep
# drops the fastest only if noise doubles the median of its three turns.
_HOPELESS = 2.0
# Most sizes added between the first ones, for each collective: enough for four crossovers.
_MOST_BETWEEN = 8


@dataclass(frozen=True)
class SweepRequest:
    """The collectives and sizes to measure, with ``budget_s`` seconds for each size.

    Sizes are those of nccl-tests. ``library`` is the MPI that the ranks must run: openmpi or mpich.
    """

    library: str
    kinds: tuple[Kind, ...]
    low_bytes: int
    high_bytes: int
    budget_s: float


@dataclass(frozen=True)
class Sweep:
    """The times of each collective, in order of size, and the library's numbers of its algorithms.

    ``parameters`` are those of the measured algorithms, and ``table`` is the library's own selection table;
    only MPICH has these. ``left_out`` are sizes that took far longer than a larger one, even when they were
    measured again. ``crowded`` says how many ranks share how many cores, "" if each can have one.
    """

    library: str
    ranks: int
    hosts: tuple[str, ...]
    points: dict[Kind, tuple[AlgorithmTimes, ...]]
    numbers: dict[Kind, dict[str, int]]
    parameters: dict[Kind, dict[str, dict[str, int]]]
    table: mpich.Table
    left_out: dict[Kind, tuple[int, ...]] = field(default_factory=dict)
    crowded: str = ""

    def rules(self) -> dict[Kind, tuple[Rule, ...]]:
        return {
            kind: rules_of([_without_untouched(point) for point in points], OWN)
            for kind, points in self.points.items()
        }

    def summary(self) -> dict[str, list[dict[str, Any]]]:
        """Return, for each size, the chosen algorithm, its time, and the time of the untouched library."""
        rows_by_kind: dict[str, list[dict[str, Any]]] = {}
        for kind, rules in self.rules().items():
            rows = []
            for point in self.points[kind]:
                taken = [rule.algorithm for rule in rules if rule.from_bytes <= point.size_bytes][-1]
                chosen, before = point.timings[taken], point.timings[UNTOUCHED]
                rows.append(
                    {
                        "size_bytes": point.size_bytes,
                        "algorithm": taken,
                        "time_s": chosen.time_s,
                        "error_s": chosen.error_s,
                        "untouched_s": before.time_s,
                        "untouched_error_s": before.error_s,
                    }
                )
            rows_by_kind[kind] = rows
        return rows_by_kind


@dataclass(frozen=True)
class PrivateBuffers:
    """Out-of-place buffers of one rank, in private memory."""

    send: Array
    recv: Array
    in_place: bool = False

    @property
    def whole(self) -> Array:
        return self.recv


def sweep_task(comm: Any, request: SweepRequest, progress: Progress) -> Sweep:
    """Measure on all ranks of ``comm``, and return the same result on each.

    Raises UnavailableError if the ranks run another library than ``request.library``.
    """
    name = library_name()
    if not name.startswith(_NAMES[request.library]):
        raise UnavailableError(
            f"the ranks run {name}, not {_NAMES[request.library]}",
            hint="ccctl measures the MPI library that its own mpi4py uses.",
        )
    points: dict[Kind, tuple[AlgorithmTimes, ...]] = {}
    left_out: dict[Kind, tuple[int, ...]] = {}
    numbers: dict[Kind, dict[str, int]] = {}
    for at, kind in enumerate(request.kinds):
        wanted = collective(kind, comm.Get_size())
        progress.update(at, len(request.kinds), kind)
        found = _points(comm, wanted, request, progress)
        strange = disturbed(found)
        points[kind] = tuple(point for at, point in enumerate(found) if at not in strange)
        if strange:
            left_out[kind] = tuple(found[at].size_bytes for at in strange)
        numbers[kind] = algorithm_numbers(wanted)
    progress.update(len(request.kinds), len(request.kinds))
    hosts = tuple(dict.fromkeys(comm.allgather(socket.gethostname())))
    of_mpich = request.library == "mpich"
    parameters = {kind: _parameters(kind, numbers[kind]) for kind in request.kinds if of_mpich}
    table: mpich.Table = {}
    doubt = crowded(comm.allgather((socket.gethostname(), os.sched_getaffinity(0))))
    if of_mpich:
        path = library_path()
        table = comm.bcast(
            mpich.library_table(path.read_bytes(), str(path)) if comm.Get_rank() == 0 else None
        )
    return Sweep(name, comm.Get_size(), hosts, points, numbers, parameters, table, left_out, doubt)


def _parameters(kind: Kind, names: Iterable[str]) -> dict[str, dict[str, int]]:
    """Return the parameter values that MPICH uses now, by algorithm."""
    variables = Variables()
    return {
        name: {word: variables.read(variable) for word, variable in found.items()}
        for name in names
        if (found := mpich.parameters_of(kind, name))
    }


def _points(comm: Any, wanted: Collective, request: SweepRequest, progress: Progress) -> list[AlgorithmTimes]:
    sizes = [request.low_bytes]
    while sizes[-1] * _STEP < request.high_bytes:
        sizes.append(sizes[-1] * _STEP)
    if sizes[-1] < request.high_bytes:
        sizes.append(request.high_bytes)
    left_out = mpich.LEFT_OUT if request.library == "mpich" else ()
    names = [name for name in algorithm_names(wanted) if name not in left_out]
    found = [_point(comm, wanted, names, size, request.budget_s, progress) for size in sizes]
    _again(found, lambda size: _point(comm, wanted, names, size, request.budget_s, progress))
    for _ in range(_MOST_BETWEEN):
        size = next_size([_without_untouched(each) for each in found], OWN)
        if size is None:
            break
        found.append(_point(comm, wanted, names, size, request.budget_s, progress))
        found.sort(key=lambda point: point.size_bytes)
        _again(found, lambda size: _point(comm, wanted, names, size, request.budget_s, progress))
    return found


def _again(found: list[AlgorithmTimes], measure: Callable[[int], AlgorithmTimes]) -> None:
    """Measure once more, in place, each size that took far longer than a larger one."""
    for at in disturbed(found):
        again = measure(found[at].size_bytes)
        found[at] = min((found[at], again), key=lambda point: point.timings[point.fastest].time_s)


def _without_untouched(point: AlgorithmTimes) -> AlgorithmTimes:
    """Return the times without UNTOUCHED, which no rule can select.

    Unless its time differs notably from that of OWN, both measured the same choice, and the lesser counts.
    """
    timings = {name: timing for name, timing in point.timings.items() if name != UNTOUCHED}
    if UNTOUCHED in point.timings and OWN in timings:
        own, before = timings[OWN], point.timings[UNTOUCHED]
        if before.time_s < own.time_s and not notably_less(before, own):
            timings[OWN] = before
    return AlgorithmTimes(point.size_bytes, timings)


def _point(
    comm: Any, wanted: Collective, names: Sequence[str], size_bytes: int, budget_s: float, progress: Progress
) -> AlgorithmTimes:
    """Measure all algorithms at one size, except those that the library refuses there."""
    sides = _make_buffers(wanted, size_bytes)
    calls: dict[str, Call] = {}
    peers = {UNTOUCHED: "", OWN: "0"} | {name: name for name in names}
    for name, algorithm in peers.items():
        try:
            calls[name] = MpiPeer(comm, algorithm, optional=True).ready(wanted, sides, "sum")
        except UnavailableError:
            continue
    try:
        first = _times(comm, calls, Repetitions(1, _TURNS), progress)
        fastest_s = min(timing.time_s for timing in first.values())
        kept = {
            name: call
            for name, call in calls.items()
            if name in (OWN, UNTOUCHED) or first[name].time_s <= _HOPELESS * fastest_s
        }
        turn_s = sum(first[name].time_s for name in kept)
        turns = min(max(int(budget_s / max(turn_s, 1e-9)), 2 * _TURNS), _MOST_TURNS)
        turns = comm.allreduce(turns) // comm.Get_size()
        return AlgorithmTimes(size_bytes, first | _times(comm, kept, Repetitions(0, turns), progress))
    finally:
        for call in calls.values():
            call.close()


def _times(
    comm: Any, calls: dict[str, Call], effort: Repetitions, progress: Progress
) -> dict[str, MedianTime]:
    """Return for each call the median over turns of the slowest rank's time, the same on all ranks."""
    own_s = interleaved(comm, list(calls.values()), list(calls), effort, progress)
    slowest_s = np.max(np.array(comm.allgather(own_s)), axis=0)
    return {name: timing_of(slowest_s[at]) for at, name in enumerate(calls)}


def _make_buffers(wanted: Collective, size_bytes: int) -> PrivateBuffers:
    """Return float32 buffers; the larger one has about ``size_bytes``."""
    share = max(size_bytes // (4 * wanted.ranks), 1)
    whole = share * wanted.ranks
    send = share if wanted.kind == "all_gather" else whole
    recv = share if wanted.kind == "reduce_scatter" else whole
    return PrivateBuffers(np.ones(send, dtype=np.float32), np.zeros(recv, dtype=np.float32))
