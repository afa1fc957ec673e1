"""The benchmark: programs over many sizes, beside the libraries, every element checked.

Sizes, columns and bandwidth factors are those of nccl-tests. Our programs and the libraries take turns,
iteration by iteration, on the same buffers, so that disturbances affect all alike.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

import numpy as np

from exec.benchmark.breakdown import Breakdown, Forecast, Placement
from exec.benchmark.clocks import clock_offsets
from exec.benchmark.environment import crowded, machine, waiting
from exec.benchmark.report import Average, Measurement, Report, Row
from exec.benchmark.run_logs import Clocks, RunLogs
from exec.benchmark.timing import Repetitions, interleaved, measurement
from exec.executors import Executor
from exec.memory_demand import bench_need
from exec.mpi import shared_array
from exec.peers import Call, Peer, open_peers
from exec.program import Array, Buffers, Layout, dtype_of, size_bytes_of
from exec.sockets import Group
from probes.base import Progress, Safekeeping, UnavailableError, size_text
from probes.live import library_name, require_room
from probes.sampling import waited_s
from synth.collective import ROOTED, Collective, Kind
from synth.network import Network
from synth.program import Program

__all__ = ["OWN_WIRES", "BenchRequest", "Contender", "bench_all_task", "busbw_factor"]

# A report names this as the library if ccctl's own sockets connect the ranks, without MPI.
OWN_WIRES = "wires of ccctl"


@dataclass(frozen=True)
class Contender:
    """A program that takes turns with others of the same collective.

    ``predicted_s`` holds its predicted seconds for each count, None where unknown; it is empty without any
    prediction. If runs are explained, ``forecasts`` hold the parts of the predictions, and ``network`` the
    links and ports. If ``library`` names one that ``exec.peers.registry`` knows, that library's own
    collective runs in place of the program, where the library has it.
    """

    name: str
    program: Program
    predicted_s: tuple[float | None, ...] = ()
    forecasts: tuple[Forecast | None, ...] = ()
    network: Network | None = None
    library: str = ""


@dataclass(frozen=True)
class BenchRequest:
    """A benchmark to run: programs of one collective, block counts, and how often.

    ``placements`` holds False (out of place), True (in place) or both; the peers run only in the first.
    ``peers`` are names that ``exec.peers.registry`` knows. With ``optional_peers``, a peer that lacks the
    collective is left out. ``aggregate`` calls are timed as one. With ``window`` the ranks of a host read
    each other's buffers in place; ``device`` is one of ``exec.executors.DEVICES``. With ``explain`` the time
    of one run of each contender is broken down, in the first placement.
    """

    contenders: tuple[Contender, ...]
    counts: tuple[int, ...]
    dtype: str
    redop: str
    warmup: int
    iterations: int
    placements: tuple[bool, ...]
    peers: tuple[str, ...]
    aggregate: int = 1
    average: Average = "slowest"
    check: bool = True
    samples: bool = False
    window: bool = False
    device: str = "cpu"
    explain: bool = False
    optional_peers: bool = False

    @property
    def collective(self) -> Collective:
        return self.contenders[0].program.collective

    @property
    def effort(self) -> Repetitions:
        return Repetitions(self.warmup, self.iterations, self.aggregate)


def bench_all_task(comm: Any, requests: Sequence[BenchRequest], progress: Safekeeping) -> Report:
    """Return one report of several requests, which share their peers and repetitions.

    Rank 0 hands on the rows of each size as soon as they are measured, in a report of their own. Before these
    it hands on a report without rows. The command joins these reports.
    """
    first = requests[0]
    hosts = comm.allgather(socket.gethostname())
    executor = Executor(comm, first.device)
    _require_memory(comm, requests, far=len(set(hosts)) > 1)
    shared = crowded(comm.allgather((socket.gethostname(), os.sched_getaffinity(0))))
    clocks = Clocks(*clock_offsets(comm)) if any(request.explain for request in requests) else None
    progress.waiting(-1, "opening the peers")
    peers = open_peers(comm, first.peers, first.collective)
    named = {entry.library for request in requests for entry in request.contenders if entry.library}
    libraries = {one.name: one for one in open_peers(comm, sorted(named), first.collective)}
    # A peer may lack some of several requested types or operators. If only one is requested, it must have
    # that one.
    several = len({(request.dtype, request.redop) for request in requests}) > 1
    total, done, rows = sum(len(request.counts) for request in requests), 0, []
    whole = Report(
        ranks=comm.Get_size(),
        hosts=tuple(dict.fromkeys(hosts)),
        executor=executor.name,
        library=OWN_WIRES if isinstance(comm, Group) else library_name(),
        warmup=first.warmup,
        iterations=first.iterations,
        rows=(),
        average=first.average,
        label=first.collective.label if first.collective.kind == "custom" else "",
        machine=machine(comm) | {peer.name.partition(":")[0]: peer.version for peer in peers},
    )
    if comm.Get_rank() == 0:
        progress.partial(whole)
    for request in requests:
        for at, count in enumerate(request.counts):
            size_bytes = size_bytes_of(request.collective, count, dtype_of(request.dtype).itemsize)
            progress.update(done, total, f"at {size_text(size_bytes)}")
            lenient = several or request.optional_peers
            one = _Size(comm, request, at, executor, peers, libraries, progress, clocks, lenient, shared)
            found = one.rows()
            rows += found
            whole = replace(whole, machine=whole.machine | executor.chosen)
            if comm.Get_rank() == 0:
                progress.partial(replace(whole, rows=tuple(found)))
            done += 1
    progress.update(total, total)
    for peer in (*peers, *libraries.values()):
        peer.close()
    return replace(whole, rows=tuple(rows))


def _require_memory(comm: Any, requests: Sequence[BenchRequest], *, far: bool) -> None:
    """Raise UnavailableError on all ranks if a host lacks the memory for one of the sizes; collective."""
    needs = []
    for request in requests:
        count, itemsize = max(request.counts), dtype_of(request.dtype).itemsize
        layouts = [Layout(entry.program, count) for entry in request.contenders]
        need = bench_need(
            layouts, comm.Get_rank(), itemsize, request.placements, peers=bool(request.peers), far=far
        )
        needs.append((size_bytes_of(request.collective, count, itemsize), need))
    size_bytes, need = max(needs, key=lambda pair: (pair[1].memory_bytes, pair[0]))
    require_room(comm, need, f"{requests[0].collective.label} of {size_bytes} bytes")


def busbw_factor(kind: Kind, ranks: int) -> float:
    """Return bus bandwidth over algorithm bandwidth, as nccl-tests defines it."""
    if kind == "all_reduce":
        return 2 * (ranks - 1) / ranks
    across = ("all_gather", "reduce_scatter", "all_to_all", "scatter", "gather")
    return (ranks - 1) / ranks if kind in across else 1.0


@dataclass(eq=False)
class _Size:
    """One count of a request: every contender in every placement, every peer in the first."""

    comm: Any
    request: BenchRequest
    at: int
    executor: Executor
    peers: Sequence[Peer]
    libraries: Mapping[str, Peer]
    progress: Progress
    clocks: Clocks | None
    lenient: bool
    crowded: str

    def __post_init__(self) -> None:
        self.contenders = self.request.contenders
        self.breakdowns: list[Breakdown] = []
        self.layouts = [Layout(entry.program, self.request.counts[self.at]) for entry in self.contenders]
        self.dtype = dtype_of(self.request.dtype)
        self.type_name = self.dtype.names[0] if self.dtype.names else self.dtype.name

    def rows(self) -> list[Row]:
        """Return a row for each contender, all with the same measurements of the peers."""
        found: dict[bool, list[Measurement]] = {}
        theirs: dict[str, Measurement] = {}
        for in_place in self.request.placements:
            beside = self.peers if in_place == self.request.placements[0] else ()
            ours, beside_them = self._placement(in_place, beside)
            found[in_place] = ours
            theirs |= beside_them
        collective = self.request.collective
        return [
            Row(
                collective=collective.kind,
                size_bytes=self._size_bytes(collective),
                count=self.request.counts[self.at],
                dtype=self.type_name,
                redop=self.request.redop if collective.reduces else "none",
                root=collective.root if collective.kind in ROOTED else -1,
                program=contender.name,
                predicted_s=contender.predicted_s[self.at] if contender.predicted_s else None,
                out_of_place=found[False][number] if False in found else None,
                in_place=found[True][number] if True in found else None,
                peers=theirs,
                breakdown=self.breakdowns[number] if self.breakdowns else None,
                crowded=self.crowded,
            )
            for number, contender in enumerate(self.contenders)
        ]

    def _size_bytes(self, collective: Collective) -> int:
        return size_bytes_of(collective, self.request.counts[self.at], self.dtype.itemsize)

    def _placement(
        self, in_place: bool, peers: Sequence[Peer]
    ) -> tuple[list[Measurement], dict[str, Measurement]]:
        """Return measurements of (every contender, each peer by name), all on the same buffers."""
        request, comm = self.request, self.comm
        names = [entry.name for entry in self.contenders]
        count = self.request.counts[self.at]
        where = f"{'in' if in_place else 'out of'} place, {count} elements of {self.type_name}"
        self.progress.waiting(-1, f"{names[0]} {where}: planning")
        make = shared_array if request.window else np.zeros
        buffers = Buffers(self.layouts[0], comm.Get_rank(), self.dtype, in_place=in_place, make=make)
        explains = request.explain and self.clocks is not None and not self.breakdowns
        calls = [
            self._library_call(entry.library, buffers) or self._planned(layout, buffers, traced=explains)
            for entry, layout in zip(self.contenders, self.layouts, strict=True)
        ]
        logs = [RunLogs(call) for call in calls]
        for peer in peers:
            try:
                calls.append(peer.ready(self.request.collective, buffers, request.redop))
            except UnavailableError:
                if not (peer.optional or self.lenient):
                    raise
                continue
            names.append(peer.name)
        buffers.fill(request.redop)
        for call in calls:
            call.place()
        timed = [f"{name} {where}: timing" for name in names]

        def keep(number: int, iteration: int, begin_s: float, end_s: float) -> None:
            if explains and number < len(logs):
                logs[number].keep(iteration, begin_s, end_s)

        waited_before_s, begun_s = waited_s(), perf_counter()
        times_s = interleaved(comm, calls, timed, request.effort, self.progress, keep)
        share = (waited_s() - waited_before_s) / (perf_counter() - begun_s)
        self.crowded = self.crowded or waiting(max(comm.allgather(share)))
        if explains:
            self._break_down(logs, times_s, in_place=in_place)
        wrong: list[int | None] = [None] * len(calls)
        if request.check:
            self.progress.waiting(-1, f"{where}: checking")
            wrong = [_wrong(comm, call, buffers, request.redop) for call in calls]
        for call in calls:
            call.close()
        collective = self.request.collective
        factor = busbw_factor(collective.kind, collective.size)
        measured = [
            measurement(
                comm,
                own_s,
                self._size_bytes(collective),
                factor,
                bad,
                average=request.average,
                samples=request.samples,
            )
            for own_s, bad in zip(times_s, wrong, strict=True)
        ]
        ours = len(self.contenders)
        return measured[:ours], dict(zip(names[ours:], measured[ours:], strict=True))

    def _library_call(self, library: str, buffers: Buffers) -> Call | None:
        """Return the call of the library that runs in place of a program; None if there is none."""
        if not library:
            return None
        try:
            return self.libraries[library].ready(self.request.collective, buffers, self.request.redop)
        except UnavailableError:
            return None

    def _planned(self, layout: Layout, buffers: Buffers, *, traced: bool) -> Call:
        both = buffers.send, buffers.recv
        return self.executor.ready(layout, *both, self.request.redop, self.progress, traced=traced)

    def _break_down(self, logs: Sequence[RunLogs], times_s: Array, *, in_place: bool) -> None:
        """Break down a run of each contender; collective."""
        assert self.clocks is not None
        for entry, log, own_s in zip(self.contenders, logs, times_s, strict=False):
            forecast = entry.forecasts[self.at] if entry.forecasts else None
            placement: Placement = "in place" if in_place else "out of place"
            self.breakdowns.append(
                log.breakdown(self.comm, own_s.tolist(), placement, self.clocks, forecast, entry.network)
            )


def _wrong(comm: Any, call: Call, buffers: Buffers, redop: str) -> int:
    """Return the number of wrong elements over all ranks, after one run on fresh inputs; collective."""
    buffers.fill(redop)
    call.place()
    call.prepare()
    comm.Barrier()
    call.run()
    call.settle()
    call.fetch()
    return sum(comm.allgather(int(buffers.wrong(call.result, redop))))
