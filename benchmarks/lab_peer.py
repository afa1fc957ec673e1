"""One library's own collective, timed on every rank, for comparison in ``lab_cases.py``.

    mpirun python benchmarks/lab_peer.py mpi  all_reduce BYTES ITERATIONS
    python benchmarks/lab_peer.py gloo all_reduce BYTES ITERATIONS RANK RANKS ADDRESS

Rank 0 prints the seconds of each iteration as a JSON list, the slowest rank's each time. Needs
NumPy, and mpi4py or torch: it runs in the environment of the library, not in ccctl's.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from time import perf_counter

import numpy as np


def mpi_times_s(kind: str, size_bytes: int, iterations: int) -> list[float] | None:
    """Return the seconds of each iteration after an untimed one; None on ranks other than 0."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    ranks = comm.Get_size()
    elements = size_bytes // 4
    whole, part = np.ones(elements, np.float32), np.ones(elements // ranks, np.float32)
    into = np.empty(part.size * ranks if kind != "all_reduce" else elements, np.float32)
    calls: dict[str, Callable[[], object]] = {
        "all_reduce": lambda: comm.Allreduce(whole, into),
        "all_gather": lambda: comm.Allgather(part, into),
        "all_to_all": lambda: comm.Alltoall(whole[: part.size * ranks], into),
    }
    times_s = []
    for _ in range(iterations + 1):
        comm.Barrier()
        begin = perf_counter()
        calls[kind]()
        times_s.append(comm.allreduce(perf_counter() - begin, op=MPI.MAX))
    if kind == "all_reduce" and not (into == ranks).all():
        raise SystemExit("the library's all_reduce is wrong")
    return times_s[1:] if comm.Get_rank() == 0 else None


def gloo_times_s(
    kind: str, size_bytes: int, iterations: int, rank: int, ranks: int, address: str
) -> list[float] | None:
    """Return the same with torch.distributed's gloo, which has no all_to_all of one tensor."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://{address}:29511", rank=rank, world_size=ranks)
    whole, part = torch.ones(size_bytes // 4), torch.ones(size_bytes // 4 // ranks)
    parts = [torch.empty_like(part) for _ in range(ranks)]
    calls: dict[str, Callable[[], object]] = {
        "all_reduce": lambda: dist.all_reduce(whole),
        "all_gather": lambda: dist.all_gather(parts, part),
    }
    times_s = []
    for _ in range(iterations + 1):
        dist.barrier()
        begin = perf_counter()
        calls[kind]()
        spent = torch.tensor(perf_counter() - begin)
        dist.all_reduce(spent, dist.ReduceOp.MAX)
        times_s.append(float(spent))
    dist.destroy_process_group()
    return times_s[1:] if rank == 0 else None


def main() -> None:
    """Print rank 0's list."""
    library, kind, size_bytes, iterations, *more = sys.argv[1:]
    if library == "mpi":
        times_s = mpi_times_s(kind, int(size_bytes), int(iterations))
    else:
        rank, ranks, address = more
        times_s = gloo_times_s(kind, int(size_bytes), int(iterations), int(rank), int(ranks), address)
    if times_s is not None:
        print(json.dumps(times_s), flush=True)


if __name__ == "__main__":
    main()
