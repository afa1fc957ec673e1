"""GC3's Figures 7 to 9 and 11 in simulation: its programs against the paper's baselines.

    python benchmarks/gc3_figures.py [--all] [FILTER]

Algorithmic bandwidth is a rank's buffer over the time. Figures 7, 8 and 11 are on nodes of eight A100 with a
NIC of 25 GB/s for each GPU, Figure 9 on two NDv2, with GPUs numbered along a ring of NVLinks. Compared is
the largest gain over the sizes of a figure; of the paper's the text tells one each, and no point is read off.
--all takes 16 and 32 nodes in Figure 7, too: minutes.

What a connection adds is what NCCL's own tuning reckons with (tuning.cc of NCCL 2.x). A threadblock moves
20 GB/s by LL128 and 24 by Simple, half of a link is LL's and 94 % LL128's (GC3, Sec. 4.3); a hop takes 0.6,
1.9 or 3.4 us on NVLink and 2.7, 4.0 or 14.0 on a network. NCCL takes the protocol that is the fastest for
each size, a program the one that the paper names.

Where the model is silent:

- Fig. 7: what each message costs a NIC beside its bytes, for which NCCL's 8 times as many pay in the paper.
- Fig. 8: a chunk moves whole. In the paper it travels in slices, so that with a threadblock of its own it is
  at several ranks at once, which is what a ring of eight threadblocks gains over eight rings.
- Fig. 11: how much of a NIC one connection of NCCL fills. Here it fills all of it, so that eight NICs gain
  at most eight times; the paper's 14.5 would need it to fill a little more than half.
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from synth.lang import Algorithm
from synth.network import Network
from synth.networks.dgx import pod
from synth.program import Program
from synth.simulation.program import Costs, simulate_program

EXAMPLES = Path(__file__).parents[1] / "examples"
NODES, MANY_NODES = (8,), (8, 16, 32)
# A ring through the GPUs of a hybrid cube mesh, each beside the next by NVLink.
RING = (0, 1, 2, 3, 7, 6, 5, 4)
KIB, MIB = 1 << 10, 1 << 20


@dataclass(frozen=True)
class Protocol:
    """What a threadblock moves, which part of a link is data, and what a hop takes: inside, between hosts."""

    threadblock_bytes_per_s: float
    part: float
    hop_s: tuple[float, float]


PROTOCOLS = {
    "LL": Protocol(10e9, 0.5, (0.6e-6, 2.7e-6)),
    "LL128": Protocol(20e9, 0.94, (1.9e-6, 4.0e-6)),
    "Simple": Protocol(24e9, 1.0, (3.4e-6, 14.0e-6)),
}


@dataclass(frozen=True)
class Runner:
    """A program by a protocol (None: the fastest for each size)."""

    name: str
    program: Program
    protocol: str | None = None


@dataclass(frozen=True)
class Figure:
    """Two programs on one network at some sizes, and the gain that the paper tells."""

    name: str
    network: Network
    ours: Runner
    theirs: Runner
    sizes: Sequence[int]
    paper: str


@cache
def compiled(example: str, **parameters: Any) -> Program:
    """An example of the chunk language, compiled."""
    found: Algorithm = runpy.run_path(str(EXAMPLES / f"{example}.py"))[example]
    return found.compile(parameters)


def by(network: Network, protocol: Protocol) -> Network:
    """The network as a protocol uses it."""
    alpha_s = np.where(network.within_host, *protocol.hop_s)
    return replace(network, alpha_s=alpha_s, beta_s_per_byte=network.beta_s_per_byte / protocol.part)


def along(network: Network, order: Sequence[int]) -> Network:
    """The network with the GPUs of each host numbered in another order."""
    size = len(order)
    place = np.argsort(order)
    src, dst = (
        (ends // size * size + place[ends % size]).astype(ends.dtype) for ends in (network.src, network.dst)
    )
    return replace(network, src=src, dst=dst)


def time_s(runner: Runner, network: Network, size_bytes: int) -> tuple[float, str]:
    """(seconds for a buffer of so many bytes, by which protocol)."""
    chunk_bytes = max(1, -(-size_bytes // runner.program.collective.total_bytes(1)))
    names = [runner.protocol] if runner.protocol else list(PROTOCOLS)
    found = []
    for name in names:
        protocol = PROTOCOLS[name]
        costs = Costs(threadblock_bytes_per_s=protocol.threadblock_bytes_per_s)
        found.append(
            (simulate_program(runner.program, by(network, protocol), chunk_bytes, costs).time_s, name)
        )
    return min(found)


def doubled(first: int, last: int, factor: int) -> list[int]:
    """From the first size to the last, each so many times the one before."""
    sizes = [first]
    while sizes[-1] * factor <= last:
        sizes.append(sizes[-1] * factor)
    return sizes


def figures(node_counts: Sequence[int]) -> Iterator[Figure]:
    """All figures, made when their turn comes."""
    for nodes in node_counts:
        yield Figure(
            f"Fig. 7, {nodes} nodes",
            pod(f"dgx-a100:{nodes}"),
            Runner("two-step", compiled("two_step_alltoall", nodes=nodes, gpus=8), "Simple"),
            Runner("direct", compiled("allpairs_alltoall", ranks=8 * nodes)),
            doubled(1 * MIB, 1024 * MIB, 8),
            "20 % for large sizes",
        )
    yield Figure(
        "Fig. 8",
        pod("dgx-a100"),
        Runner("ring of 8 tb x 4", compiled("ring_allreduce", ranks=8, tbs=8, instances=4), "LL128"),
        Runner("24 rings", compiled("ring_allreduce", ranks=8, instances=24)),
        doubled(128 * KIB, 32 * MIB, 4),
        "48 % at 2 MB",
    )
    yield Figure(
        "Fig. 9",
        along(pod("ndv2:2"), RING),
        Runner("hierarchical", compiled("hierarchical_allreduce", nodes=2, gpus=8, instances=4)),
        Runner("ring", compiled("ring_allreduce", ranks=16, instances=4)),
        doubled(32 * KIB, 512 * MIB, 8),
        "no figure in its text",
    )
    yield Figure(
        "Fig. 11",
        pod("dgx-a100:3"),
        Runner("all_to_next", compiled("alltonext", nodes=3, gpus=8, instances=8), "Simple"),
        Runner("send", compiled("alltonext", nodes=24, gpus=1, instances=8)),
        doubled(128 * KIB, 1024 * MIB, 8),
        "14.5x at 1 GB, slower below 512 KB",
    )


def rows(figure: Figure) -> Iterator[str]:
    """A line for each size, and the largest gain beside the paper's."""
    best = (0.0, 0)
    for size_bytes in figure.sizes:
        (ours_s, ours_by), (theirs_s, theirs_by) = (
            time_s(runner, figure.network, size_bytes) for runner in (figure.ours, figure.theirs)
        )
        best = max(best, (theirs_s / ours_s, size_bytes))
        yield (
            f"{figure.name:18}{size_bytes / MIB:10.3f} MiB   {figure.ours.name} "
            f"{size_bytes / ours_s * 1e-9:7.2f} GB/s by {ours_by}, {figure.theirs.name} "
            f"{size_bytes / theirs_s * 1e-9:7.2f} GB/s by {theirs_by}: {theirs_s / ours_s:.2f}x"
        )
    yield f"{figure.name:18}at most {best[0]:.2f}x, at {best[1] / MIB:g} MiB; the paper: {figure.paper}"


def main(*arguments: str) -> None:
    """Print the figures whose name has FILTER."""
    words = [word for word in arguments if word != "--all"]
    if len(words) > 1 or any(word.startswith("-") for word in words):
        sys.exit(f"usage: gc3_figures.py [--all] [FILTER], found {' '.join(arguments)}")
    wanted = "".join(words)
    counts = MANY_NODES if "--all" in arguments else NODES
    if wanted and not wanted.startswith("Fig. 7"):
        counts = ()
    for figure in figures(counts):
        if wanted in figure.name:
            for line in rows(figure):
                print(line, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
