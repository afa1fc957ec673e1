"""Checks that collectives give the same bits twice; finds ranks and links that corrupt data silently.

All ranks run a program twice on the same random inputs, and so does each library. Rounding makes sums of
random numbers depend on the order of additions, so two runs that add in different orders differ in some bits.
On CPUs each step of both runs of the program is compared with the reference (`exec.program.corruptions`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from exec.benchmark.report import Integrity
from exec.executors import Executor, executor_of
from exec.memory_demand import bench_need
from exec.mpi import MpiPlan, shared_array
from exec.peers import Call, open_peers
from exec.program import (
    Array,
    Buffers,
    Corruption,
    Layout,
    StepSums,
    checksum,
    corruptions,
    count_of,
    dtype_of,
    expected_sums,
    size_bytes_of,
)
from probes.base import Indices, Safekeeping, UnavailableError
from probes.live import require_room
from synth.program import INPUT, Program

__all__ = ["IntegrityRequest", "integrity_task"]

# The most ranks whose steps are compared. The reference runs all ranks in one process, which takes about a
# second for 64 ranks and 1 MiB, and grows with the square of their number.
_MOST_RANKS = 256
_RUNS = 2


@dataclass(frozen=True)
class IntegrityRequest:
    """A program to check with ``size_bytes`` of random numbers, and the libraries beside it."""

    program: Program
    size_bytes: int
    libraries: tuple[str, ...] = ()
    device: str = "cpu"
    seed: int = 0


def integrity_task(comm: Any, request: IntegrityRequest, progress: Safekeeping) -> Integrity | None:
    """Return on rank 0 the integrity of the results of a program and of libraries; elsewhere None."""
    progress.waiting(-1, "planning two runs on the same inputs")
    program, dtype = request.program, dtype_of("float32")
    layout = Layout(program, count_of(program.collective, request.size_bytes, dtype.itemsize))
    require_room(
        comm,
        bench_need([layout], comm.Get_rank(), dtype.itemsize, (False,), peers=True, far=True),
        f"two runs of {program.collective.label}",
    )
    buffers = Buffers(layout, comm.Get_rank(), dtype, in_place=False, make=shared_array)
    given = _input(layout, comm.Get_rank(), request.seed)
    where, why_not = executor_of(comm, request.device), ""
    if where == "cuda":
        why_not = "the steps of GPUs keep no checksums"
    elif program.ranks > _MOST_RANKS:
        why_not = f"more than {_MOST_RANKS} ranks"
    sums: list[_OwnSums] = []
    digests = {"ccctl": _own_runs(comm, request, buffers, given, sums, summed=not why_not)}
    for name, call in _library_calls(comm, request, buffers):
        digests[name] = [_digest(call, buffers, given, call.run) for _ in range(_RUNS)]
        call.close()
    every = comm.gather((digests, sums))
    if every is None:
        return None
    progress.waiting(-1, "comparing all steps with the reference")
    unlike = {
        name: tuple(rank for rank, (own, _) in enumerate(every) if len(set(own[name])) > 1)
        for name in digests
    }
    found: tuple[Corruption, ...] = ()
    if not why_not:
        found = _located(layout, request.seed, [own for _, own in every])
    return Integrity(
        collective=program.collective.kind,
        size_bytes=size_bytes_of(program.collective, layout.count, dtype.itemsize),
        seed=request.seed,
        runs=tuple(digests),
        unlike={name: ranks for name, ranks in unlike.items() if ranks},
        steps=0 if why_not else program.steps,
        why_not=why_not,
        corruptions=found,
    )


# (Steps of a rank, their checksums, checksum of the rank's output) in one run.
_OwnSums = tuple[Indices, Indices, int]


def _input(layout: Layout, rank: int, seed: int) -> Array:
    """Return the random input of a rank; every rank can compute the input of any other."""
    random = np.random.default_rng((seed, rank))
    return random.standard_normal(layout.elements(rank, INPUT), dtype=np.float32)


def _own_runs(
    comm: Any,
    request: IntegrityRequest,
    buffers: Buffers,
    given: Array,
    sums: list[_OwnSums],
    *,
    summed: bool,
) -> list[str]:
    """Return the digests of two runs of the program; keep the checksums of both in ``sums``."""
    if not summed:
        call = Executor(comm, request.device).ready(buffers.layout, buffers.send, buffers.recv, "sum")
        found = [_digest(call, buffers, given, call.run) for _ in range(_RUNS)]
        call.close()
        return found
    plan = MpiPlan(buffers.layout, comm, buffers.send, buffers.recv, summed=True)
    call = Call(plan.run, buffers.recv, close=plan.close)
    found = []
    for _ in range(_RUNS):
        found.append(_digest(call, buffers, given, plan.run))
        sums.append((*plan.checksums(), checksum(buffers.recv)))
    call.close()
    return found


def _digest(call: Call, buffers: Buffers, given: Array, run: Callable[[], object]) -> str:
    """Return the digest of a rank's result after one run on ``given``."""
    buffers.whole[:] = 0
    buffers.send[:] = given
    call.place()
    call.prepare()
    run()
    call.settle()
    call.fetch()
    return hashlib.sha256(np.ascontiguousarray(call.result).tobytes()).hexdigest()


def _library_calls(comm: Any, request: IntegrityRequest, buffers: Buffers) -> list[tuple[str, Call]]:
    """Return the collective of each library that has it, by the library's name."""
    found = []
    for peer in open_peers(comm, request.libraries, request.program.collective):
        try:
            call = peer.ready(request.program.collective, buffers, "sum")
        except UnavailableError:
            continue
        found.append((peer.name, call))
    return found


def _located(layout: Layout, seed: int, every: Sequence[Sequence[_OwnSums]]) -> tuple[Corruption, ...]:
    """Return the corruptions of all runs, each place once."""
    program = layout.program
    expected = expected_sums(program, [_input(layout, rank, seed) for rank in range(program.ranks)])
    culprits: dict[tuple[str, int, int], Corruption] = {}
    for number in range(_RUNS):
        found = StepSums(
            *(np.zeros(size, dtype=np.int64) for size in (program.steps, program.steps, program.ranks))
        )
        for rank, runs in enumerate(every):
            steps, sums, output = runs[number]
            found.received[steps], found.result[steps] = sums.T
            found.output[rank] = output
        for one in corruptions(layout, expected, found):
            culprits.setdefault((one.kind, one.rank, one.peer), one)
    return tuple(culprits.values())
