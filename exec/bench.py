"""The benchmark: one program over many sizes, beside the MPI library, every element checked.

Sizes, columns and bandwidth factors are those of nccl-tests. Ours and theirs take turns, iteration
by iteration, on the same buffers, so that whatever disturbs one disturbs the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np

from exec.buffers import Buffers
from exec.layout import Layout, size_bytes_of
from exec.mpi.library import library_call, library_name
from exec.mpi.plan import Plan
from exec.redops import Array, dtype_of
from exec.report import Measurement, Report, Row
from probes.progress import Progress
from synth.collective import Kind
from synth.program import Program

__all__ = ["BenchRequest", "bench_task", "busbw_factor"]


@dataclass(frozen=True)
class BenchRequest:
    """What to run: block counts with the predicted time of each (None: not known), and how often.

    ``placements`` holds False (out of place) and True (in place), the first of which the peers run
    in; ``peers`` holds "mpi" or nothing.
    """

    program: Program
    counts: tuple[int, ...]
    predicted_s: tuple[float | None, ...]
    dtype: str
    redop: str
    warmup: int
    iterations: int
    placements: tuple[bool, ...]
    peers: tuple[str, ...]


def bench_task(comm: Any, request: BenchRequest, progress: Progress) -> Report:
    """Measure every size on every rank of ``comm``; the same report on all ranks."""
    hosts = comm.allgather(_host())
    rows = []
    for at, (count, predicted_s) in enumerate(zip(request.counts, request.predicted_s, strict=True)):
        size_bytes = size_bytes_of(request.program.collective, count, dtype_of(request.dtype).itemsize)
        progress.update(at, len(request.counts), f"{size_bytes} bytes")
        rows.append(_row(comm, request, Layout(request.program, count), predicted_s, progress))
    progress.update(len(rows), len(rows))
    return Report(
        ranks=comm.Get_size(),
        hosts=tuple(dict.fromkeys(hosts)),
        executor="mpi",
        library=library_name(),
        warmup=request.warmup,
        iterations=request.iterations,
        rows=tuple(rows),
    )


def busbw_factor(kind: Kind, ranks: int) -> float:
    """Bus bandwidth over algorithm bandwidth, as nccl-tests defines it."""
    if kind == "all_reduce":
        return 2 * (ranks - 1) / ranks
    across = ("all_gather", "reduce_scatter", "all_to_all", "scatter", "gather")
    return (ranks - 1) / ranks if kind in across else 1.0


def _row(
    comm: Any, request: BenchRequest, layout: Layout, predicted_s: float | None, progress: Progress
) -> Row:
    found: dict[bool, Measurement] = {}
    peers: dict[str, Measurement] = {}
    for in_place in request.placements:
        beside = request.peers if in_place == request.placements[0] else ()
        ours, *theirs = _placement(comm, request, layout, in_place, beside, progress)
        found[in_place] = ours
        peers |= dict(zip(beside, theirs, strict=True))
    collective = layout.program.collective
    dtype = dtype_of(request.dtype)
    return Row(
        collective=collective.kind,
        size_bytes=size_bytes_of(collective, layout.count, dtype.itemsize),
        count=layout.count,
        dtype=dtype.name,
        redop=request.redop if collective.reduces else "none",
        root=collective.root if collective.kind in ("broadcast", "reduce", "scatter", "gather") else -1,
        program=layout.program.name,
        predicted_s=predicted_s,
        out_of_place=found.get(False),
        in_place=found.get(True),
        peers=peers,
    )


def _placement(
    comm: Any,
    request: BenchRequest,
    layout: Layout,
    in_place: bool,
    peers: Sequence[str],
    progress: Progress,
) -> list[Measurement]:
    """Ours, then each peer, on the same buffers."""
    dtype = dtype_of(request.dtype)
    where = f"{'in' if in_place else 'out of'} place, {layout.count} elements of {dtype.name}"
    progress.waiting(-1, f"{layout.program.name} {where}: planning")
    buffers = Buffers(layout, comm.Get_rank(), dtype, in_place=in_place)
    plan = Plan(layout, comm, buffers.send, buffers.recv, request.redop)
    calls: list[Callable[[], object]] = [plan.run]
    results: list[Array] = [buffers.recv]
    for _ in peers:
        call, result = library_call(comm, layout.program.collective, buffers, request.redop)
        calls.append(call)
        results.append(result)
    progress.waiting(-1, f"{layout.program.name} {where}: timing")
    buffers.fill(request.redop)
    times_s = _interleaved(comm, calls, request.warmup, request.iterations)
    progress.waiting(-1, f"{layout.program.name} {where}: checking")
    wrong = [
        _wrong(comm, call, buffers, result, request.redop)
        for call, result in zip(calls, results, strict=True)
    ]
    plan.close()
    size_bytes = size_bytes_of(layout.program.collective, layout.count, dtype.itemsize)
    factor = busbw_factor(layout.program.collective.kind, layout.program.collective.size)
    return [
        _measurement(comm, own_s, size_bytes, factor, bad) for own_s, bad in zip(times_s, wrong, strict=True)
    ]


def _interleaved(comm: Any, calls: Sequence[Callable[[], object]], warmup: int, iterations: int) -> Array:
    """(calls, iterations): this rank's seconds; before every call all ranks meet."""
    times_s = np.zeros((len(calls), iterations))
    for iteration in range(-warmup, iterations):
        for number, call in enumerate(calls):
            comm.Barrier()
            begin = perf_counter()
            call()
            if iteration >= 0:
                times_s[number, iteration] = perf_counter() - begin
    return times_s


def _wrong(comm: Any, call: Callable[[], object], buffers: Buffers, result: Array, redop: str) -> int:
    """Elements that are not what they must be, over all ranks, after one run on fresh inputs."""
    buffers.fill(redop)
    comm.Barrier()
    call()
    return int(comm.allreduce(buffers.wrong(result, redop)))


def _measurement(comm: Any, own_s: Array, size_bytes: int, factor: float, wrong: int) -> Measurement:
    from mpi4py import MPI

    slowest_s = np.empty_like(own_s)
    comm.Allreduce(own_s, slowest_s, op=MPI.MAX)
    totals_s = comm.allgather(float(own_s.sum()))
    time_s = float(slowest_s.mean())
    algbw_gbs = size_bytes / time_s / 1e9
    return Measurement(
        time_s=time_s,
        p50_s=float(np.percentile(slowest_s, 50)),
        p99_s=float(np.percentile(slowest_s, 99)),
        slowest_rank=int(np.argmax(totals_s)),
        algbw_gbs=algbw_gbs,
        busbw_gbs=algbw_gbs * factor,
        wrong=wrong,
    )


def _host() -> str:
    import socket

    return socket.gethostname()
