"""Functions that start the ranks and execute a program: `run` once on data, `bench` to time it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from exec.benchmark import BenchRequest, Contender, Report, bench_all_task, forecast
from exec.executors import parse_device
from exec.launcher import launch
from exec.peers import parse_peers
from exec.program import Array, count_of, dtype_of, size_bytes_of, ufunc_of
from exec.run_once import fitting, run_task
from probes.base import SILENT, Progress, UsageError
from synth import compile as compile_
from synth.network import Network
from synth.prediction import predicted_s
from synth.program import Program
from synth.schedules import AnySchedule

__all__ = ["bench", "run"]


def run(
    program: Program,
    inputs: Sequence[Array],
    op: str = "sum",
    *,
    device: str = "cpu",
    hosts: str | None = None,
    hostfile: str | None = None,
    timeout_s: float | None = None,
    progress: Progress = SILENT,
) -> list[Array]:
    """Run a program once on real data, with one process for each rank, and return the output of each rank.

    ``inputs`` are the flat arrays of the ranks, all of one type; each length is the number of the rank's
    input chunks times a factor that is the same for all ranks. ``op`` is sum, prod, min, max or avg;
    ``device`` is "cpu", "cuda" or "auto". Ranks run on this host, or on ``hosts`` or ``hostfile`` as in
    `launch`, and have ended when this returns. Starting them takes about a second.

    Raises UsageError if the data does not fit, UnavailableError if MPI, a GPU or memory is missing, and
    LostRankError and TimeoutExpired as `launch` does.

    >>> import numpy as np
    >>> from exec import run
    >>> from synth import compile, family, synthesize
    >>> pair = synthesize(family("ring:2", [0.0], [1e9]), "all_reduce", 1 << 10).schedule
    >>> [found.tolist() for found in run(compile(pair), [np.ones(2), np.full(2, 3.0)])]
    [[4.0, 4.0], [4.0, 4.0]]
    """
    ufunc_of(op)
    request = fitting(program, tuple(inputs), op, device=parse_device(device))
    found, _ = launch(
        run_task,
        request,
        ranks=program.ranks,
        hosts=hosts,
        hostfile=hostfile,
        timeout_s=timeout_s,
        progress=progress,
    )
    outputs: list[Array] = found
    return outputs


def bench(
    made: Program | AnySchedule,
    sizes_bytes: Sequence[int],
    *,
    dtype: str = "float32",
    op: str = "sum",
    iterations: int = 20,
    warmup: int = 5,
    peers: Sequence[str] = (),
    network: Network | None = None,
    explain: bool = False,
    device: str = "cpu",
    hosts: str | None = None,
    hostfile: str | None = None,
    timeout_s: float | None = None,
    keep: Callable[[Report], None] = lambda rows: None,
    progress: Progress = SILENT,
) -> Report:
    """Time a program and other libraries in turns at each size; check every element of the results.

    A schedule of any kind is compiled first; a schedule that depends on the size is compiled for each size.
    Sizes (the larger buffer of a rank) and bandwidths (GB/s, 10^9) are those of nccl-tests. If the program
    can run both in place and out of place, both are measured. ``peers`` are "mpi", "mpi:ALGORITHM", "gloo" or
    "nccl". With ``network`` each row has a predicted time. ``keep`` is called with the report of each size as
    soon as it is measured. With ``explain`` a row has a breakdown of its time. A benchmark makes 2 ·
    (``warmup`` + ``iterations``) runs for each size and library.

    Raises the errors of `run`. Wrong elements raise no error; the rows count them.

    >>> from exec import bench
    >>> from synth import compile, family, synthesize
    >>> pair = synthesize(family("ring:2", [0.0], [1e9]), "all_reduce", 1 << 16).schedule
    >>> report = bench(compile(pair), [1 << 12, 1 << 16], iterations=3)
    >>> [(row.size_bytes, row.out_of_place.wrong) for row in report.rows]
    [(4096, 0), (65536, 0)]
    >>> pair, options = family("ring:2", [0.0], [1e9]), ({"method": "periodic"}, {"sizes": (1024, 4096)})
    >>> every = [synthesize(pair, **each).schedule for each in (*options, {"method": "symmetric"})]
    >>> [row.out_of_place.wrong for each in every for row in bench(each, [4096], iterations=3).rows]
    [0, 0, 0]
    """
    ufunc_of(op)
    if not sizes_bytes or min(sizes_bytes) < 1:
        raise UsageError(": expected sizes of at least 1 byte", argument="sizes_bytes")
    requests = tuple(
        _bench_request(
            program,
            sizes,
            network,
            explain,
            dtype=dtype,
            redop=op,
            warmup=warmup,
            iterations=iterations,
            peers=parse_peers(",".join(peers) or None),
            device=parse_device(device),
        )
        for program, sizes in _programs(made, sizes_bytes)
    )

    found: Report = launch(
        bench_all_task,
        requests,
        ranks=requests[0].contenders[0].program.ranks,
        hosts=hosts,
        hostfile=hostfile,
        timeout_s=timeout_s,
        keep=lambda piece: keep(piece) if piece.rows else None,
        progress=progress,
    )
    return found


def _programs(made: Program | AnySchedule, sizes_bytes: Sequence[int]) -> list[tuple[Program, Sequence[int]]]:
    """Return pairs of a program and the sizes for which it is used."""
    if isinstance(made, Program):
        return [(made, sizes_bytes)]
    if made.is_listed:
        return [(compile_(made), sizes_bytes)]
    return [(compile_(made, size_bytes=size), [size]) for size in sizes_bytes]


def _bench_request(
    program: Program, sizes_bytes: Sequence[int], network: Network | None, explain: bool, **how: Any
) -> BenchRequest:
    """Return the request to measure one program in place, out of place or both, as far as it can."""
    itemsize, collective = dtype_of(how["dtype"]).itemsize, program.collective
    counts = tuple(dict.fromkeys(count_of(collective, size, itemsize) for size in sizes_bytes))
    chunk_bytes = [
        max(1, -(-size_bytes_of(collective, count, itemsize) // collective.total_bytes(1)))
        for count in counts
    ]
    contender = Contender(
        program.name,
        program,
        tuple(predicted_s(program, network, each) if network else None for each in chunk_bytes),
        tuple(forecast(program, network, each) if network and explain else None for each in chunk_bytes),
        network if explain else None,
    )
    return BenchRequest(
        contenders=(contender,),
        counts=counts,
        placements=tuple(p for p in (False, True) if (program.in_place if p else program.out_of_place)),
        explain=explain,
        **how,
    )
