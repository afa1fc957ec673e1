"""One library's own collective, timed on every rank, for comparison in ``lab_cases.py``.

    mpirun python benchmarks/lab_peer.py mpi  all_reduce SIZE ITERATIONS
    python benchmarks/lab_peer.py gloo all_reduce SIZE ITERATIONS RANK RANKS ADDRESS

SIZE is the bytes of the buffer, or the bytes of each block as JSON, a row for each source: an all_to_all of
uneven blocks has a row for each rank, other collectives have one. Rank 0 prints the seconds of each iteration
as a JSON list, the slowest rank's each time. Only a barrier lies between two iterations, as in ``ccctl
bench``: in a lab, a link that rests saves up bytes that it then sends at once. Needs NumPy, and mpi4py or
torch: it runs in the environment of the library, not in ccctl's.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from time import perf_counter

import numpy as np

# The elements of each block, by source (one row for all sources but in an all_to_all) and target.
Blocks = list[list[int]]
_ITEM_BYTES = 4


def blocks_of(kind: str, size: str, ranks: int) -> Blocks:
    """Return the elements of each block."""
    given: int | Blocks = json.loads(size)
    if isinstance(given, int):
        each = given // _ITEM_BYTES // ranks
        return [[each] * ranks] * (ranks if kind == "all_to_all" else 1)
    return [[size_bytes // _ITEM_BYTES for size_bytes in row] for row in given]


def mpi_times_s(kind: str, size: str, iterations: int) -> list[float] | None:
    """Return the seconds of each iteration after an untimed one; None on ranks other than 0."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    rank, ranks = comm.Get_rank(), comm.Get_size()
    blocks = blocks_of(kind, size, ranks)
    uneven = size.startswith("[")
    sends, total = blocks[rank % len(blocks)], sum(blocks[0])
    takes = [row[rank] for row in blocks]
    whole, own = np.ones(sum(sends), np.float32), np.ones(sends[rank], np.float32)
    if kind == "all_reduce":
        whole = np.ones(int(size) // _ITEM_BYTES, np.float32)
    into = np.empty({"all_to_all": sum(takes), "reduce_scatter": sends[rank]}.get(kind, total), np.float32)
    into = np.empty_like(whole) if kind == "all_reduce" else into
    even: dict[str, Callable[[], object]] = {
        "all_reduce": lambda: comm.Allreduce(whole, into),
        "all_gather": lambda: comm.Allgather(own, into),
        "reduce_scatter": lambda: comm.Reduce_scatter_block(whole, into),
        "all_to_all": lambda: comm.Alltoall(whole, into),
    }
    with_counts: dict[str, Callable[[], object]] = {
        "all_gather": lambda: comm.Allgatherv(own, (into, sends)),
        "reduce_scatter": lambda: comm.Reduce_scatter(whole, into, sends),
        "all_to_all": lambda: comm.Alltoallv((whole, sends), (into, takes)),
    }
    call, times_s = (with_counts if uneven else even)[kind], []
    for _ in range(iterations + 1):
        comm.Barrier()
        begin = perf_counter()
        call()
        times_s.append(perf_counter() - begin)
    slowest_s = np.array(times_s)
    comm.Allreduce(MPI.IN_PLACE, slowest_s, op=MPI.MAX)
    if "reduce" in kind and not (into == ranks).all():
        raise SystemExit(f"the library's {kind} is wrong")
    return slowest_s[1:].tolist() if rank == 0 else None


def gloo_times_s(
    kind: str, size: str, iterations: int, rank: int, ranks: int, address: str
) -> list[float] | None:
    """Return the same with torch.distributed's gloo; its all_gather needs blocks padded to the largest."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://{address}:29511", rank=rank, world_size=ranks)
    blocks = blocks_of(kind, size, ranks)
    sends, takes = blocks[rank % len(blocks)], [row[rank] for row in blocks]
    whole = torch.ones(int(size) // _ITEM_BYTES if kind == "all_reduce" else sum(sends))
    largest = max(sends)
    padded, parts = torch.ones(largest), [torch.empty(largest) for _ in range(ranks)]
    into, own = torch.empty(sum(takes)), torch.empty(sends[rank])
    calls: dict[str, Callable[[], object]] = {
        "all_reduce": lambda: dist.all_reduce(whole),
        "all_gather": lambda: dist.all_gather(parts, padded),
        "reduce_scatter": lambda: dist.reduce_scatter(own, list(whole.split(sends))),
        "all_to_all": lambda: dist.all_to_all_single(into, whole, takes, sends),
    }
    times_s = []
    for _ in range(iterations + 1):
        dist.barrier()
        begin = perf_counter()
        calls[kind]()
        times_s.append(perf_counter() - begin)
    slowest_s = torch.tensor(times_s, dtype=torch.float64)
    dist.all_reduce(slowest_s, dist.ReduceOp.MAX)
    dist.destroy_process_group()
    return slowest_s[1:].tolist() if rank == 0 else None


def main() -> None:
    """Print rank 0's list."""
    library, kind, size, iterations, *more = sys.argv[1:]
    if library == "mpi":
        times_s = mpi_times_s(kind, size, int(iterations))
    else:
        rank, ranks, address = more
        times_s = gloo_times_s(kind, size, int(iterations), int(rank), int(ranks), address)
    if times_s is not None:
        print(json.dumps(times_s), flush=True)


if __name__ == "__main__":
    main()
