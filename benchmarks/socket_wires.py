"""Time messages between two ranks by the wires that join hosts: TCP, and UCX over its tcp transport.

UCX runs without and with CMA, which copies from process to process.

Each rank counts as a host of its own. In each round every wire carries a ping-pong of a short message and of
a long one; the figures are medians of the rounds. A rank that waits sleeps in the kernel, as in a run. The
figures compare layers on one host; they say nothing of InfiniBand.

    python -P benchmarks/socket_wires.py [--rounds 5] [--sizes 8,64K,16M]
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import secrets
import time
from multiprocessing.connection import Connection
from statistics import median

import numpy as np

import exec.sockets.mesh
from exec.program import Wire
from exec.sockets import FlowWires, Group, join
from exec.sockets.ucx import library
from probes.base import format_size, parse_size

_WIRES = {"TCP": ("tcp", ""), "UCX, tcp": ("ucx", "tcp"), "UCX, tcp and cma": ("ucx", "tcp,cma")}
_BYTES_A_ROUND = 256 << 20


def wire(outgoing: bool, peer: int, size: int) -> Wire:
    """Return one end of a connection that carries one message in each run."""
    return Wire(
        outgoing, peer, 0, np.zeros(2, np.int64), [np.ones(size, np.uint8)], 1, (True,), np.zeros(1, np.int64)
    )


def carry(wires: FlowWires, end: Wire, run: int) -> None:
    """Move message number ``run`` of this end."""
    end.counters[0 if end.outgoing else 1] = run + 1
    while end.counters[int(end.outgoing)] <= run:
        wires.serve(wait=True)


def time_of_a_message(group: Group, size: int, repeats: int) -> float:
    """Return the seconds that one message takes, half a round trip."""
    rank = group.Get_rank()
    out, into = wire(True, 1 - rank, size), wire(False, 1 - rank, size)
    wires = group.wires([out, into])
    began_s = 0.0
    for run in range(repeats + 1):
        if run == 1:
            # The first messages connect the ends.
            began_s = time.perf_counter()
        wires.begin(run)
        for end in (out, into) if rank == 0 else (into, out):
            carry(wires, end, run)
    found = (time.perf_counter() - began_s) / (2 * repeats)
    group.Barrier()
    wires.free()
    return found


def rank_of(rank: int, other: Connection, key: bytes, over: tuple[str, str], sizes: list[int]) -> None:
    """Join the other rank, measure all sizes, and send them to the parent."""
    os.environ["CCCTL_WIRES"], tls = over
    if tls:
        os.environ["UCX_TLS"] = tls
    vars(exec.sockets.mesh)["host_key"] = lambda: ("apart", rank)

    def exchange(own: bytes) -> list[bytes]:
        other.send_bytes(own)
        theirs = other.recv_bytes()
        return [own, theirs] if rank == 0 else [theirs, own]

    group = join(rank, 2, exchange, key)
    found = []
    for at, size in enumerate(sizes):
        repeats = max(5, min(1000, _BYTES_A_ROUND // (8 * size)))
        found.append(time_of_a_message(group.among([0, 1], str(at)), size, repeats))
    if rank == 0:
        other.send(found)
    group.Barrier()
    group.mesh.close()


def measured(over: tuple[str, str], sizes: list[int]) -> list[float]:
    """Return the seconds that a message of each size takes."""
    context, key = multiprocessing.get_context("spawn"), secrets.token_bytes(32)
    ends = context.Pipe()
    ranks = [context.Process(target=rank_of, args=(rank, ends[rank], key, over, sizes)) for rank in range(2)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join()
    found: list[float] = ends[1].recv()
    return found


def main() -> None:
    """Measure all wires in turn, and print the medians of the rounds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sizes", type=lambda text: [parse_size(size) for size in text.split(",")])
    asked = parser.parse_args()
    sizes = asked.sizes or [8, 64 << 10, 16 << 20]
    over = {name: how for name, how in _WIRES.items() if how[0] == "tcp" or library() is not None}
    rounds = [{name: measured(how, sizes) for name, how in over.items()} for _ in range(asked.rounds)]
    if (ucx := library()) is not None:
        print(f"UCX {ucx.ucp_get_version_string().decode()}")
    for name in over:
        print(name)
        for at, size in enumerate(sizes):
            seconds = [found[name][at] for found in rounds]
            middle = median(seconds)
            print(
                f"  {format_size(size):>8}: {1e6 * middle:9.1f} us ({1e6 * min(seconds):.1f} to "
                f"{1e6 * max(seconds):.1f}), {size / middle / 1e9:.3f} GB/s"
            )


if __name__ == "__main__":
    main()
