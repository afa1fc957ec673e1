"""GC3's Figures 7 to 9 and 11 in simulation: its programs against the paper's baselines.

    python benchmarks/gc3_figures.py [--all] [FILTER]

Algorithmic bandwidth is a rank's buffer over the time. Figures 7, 8 and 11 are on nodes of eight A100 with a
NIC of 25 GB/s for each GPU, Figure 9 on two NDv2, with GPUs numbered along a ring of NVLinks. The last line
of a figure compares its largest gain with the gain in the paper's text; no point is read off the paper's
plots. --all also runs Figure 7 on 16 and 32 nodes, which takes minutes.

In Figure 11 a connection between hosts carries 14 GB/s, NCCL's own estimate (paths.cc,
NCCL_P2P_PER_CHANNEL_NET_BW). NCCL 2.8.4, which the paper ran, opens one connection for each pair of ranks
(paths.cc, ncclTopoGetNchannels); the paper's program opens as many as it has instances.

The alpha and the share of bandwidth of each protocol are those of NCCL's tuner
(``synth.simulation.protocols``). NCCL takes the fastest protocol for each size, a program the one that the
paper names.

Chunks move in tiles of 4 MB, the outermost loop, and each tile in four slices (Sec. 4.3).

Two costs are in no source. The last lines of Figures 7 and 8 print the values of these costs that would
explain the paper's gains, and the gains at each size with them:

- Fig. 7: a cost of a NIC for each message beside its bytes. NCCL sends 8 times as many messages, and pays for
  them in the paper.
- Fig. 8: the time that a threadblock needs between two steps, here 0.5 us by default. By NCCL's figures a hop
  takes longer than the step of its threadblock, so both rings take 14 hops and little else. A step of this
  project's kernel took 2.6 us on one H100.
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
from synth.network import Link, Network, build
from synth.networks.dgx import pod
from synth.program import Program, Protocol
from synth.simulation import Costs
from synth.simulation.protocols import PROTOCOLS, simulate_by

EXAMPLES = Path(__file__).parents[1] / "examples"
NODES, MANY_NODES = (8,), (8, 16, 32)
# A ring through the GPUs of a hybrid cube mesh, each beside the next by NVLink.
RING = (0, 1, 2, 3, 7, 6, 5, 4)
_NOTHING_MORE = Costs()
KIB, MIB = 1 << 10, 1 << 20
CONNECTION_BYTES_PER_S = 14e9


@dataclass(frozen=True)
class Runner:
    """A program by a protocol (None: the fastest for each size)."""

    name: str
    program: Program
    protocol: Protocol | None = None


@dataclass(frozen=True)
class Figure:
    """Two programs on one network at some sizes, and the gain in the paper's text."""

    name: str
    network: Network
    ours: Runner
    theirs: Runner
    sizes: Sequence[int]
    paper: str


@cache
def compiled(example: str, **parameters: Any) -> Program:
    """Return an example of the chunk language, compiled."""
    found: Algorithm = runpy.run_path(str(EXAMPLES / f"{example}.py"))[example]
    return found.compile(parameters)


def along(network: Network, order: Sequence[int]) -> Network:
    """Return the network with the GPUs of each host numbered in another order."""
    size = len(order)
    place = np.argsort(order)
    src, dst = (
        (ends // size * size + place[ends % size]).astype(ends.dtype) for ends in (network.src, network.dst)
    )
    return replace(network, src=src, dst=dst)


def by_connections(network: Network, count: int) -> Network:
    """Return the network with ``count`` parallel links, of at most 14 GB/s, between ranks of two hosts."""
    start, port = network.link_port_start, network.link_port
    links = []
    for row, within in enumerate(network.within_host.tolist()):
        ports = tuple(network.ports[at] for at in port[start[row] : start[row + 1]])
        beta = float(network.beta_s_per_byte[row])
        beta = beta if within else max(beta, 1 / CONNECTION_BYTES_PER_S)
        link = Link(int(network.src[row]), int(network.dst[row]), float(network.alpha_s[row]), beta, ports)
        links += [link] * (1 if within else count)
    found = build(network.name, network.hosts, links)
    carries = dict(zip(network.ports, network.port_s_per_byte.tolist(), strict=True))
    own = np.array([carries[name] for name in found.ports])
    return replace(found, queues=True, port_beta_s_per_byte=own)


def time_s(
    runner: Runner, network: Network, size_bytes: int, costs: Costs = _NOTHING_MORE
) -> tuple[float, str]:
    """Return (seconds for a buffer of ``size_bytes``, the protocol used)."""
    names = [runner.protocol] if runner.protocol else list(PROTOCOLS)
    return min(
        (simulate_by(name, runner.program, network, size_bytes, costs)[0].time_s, name) for name in names
    )


def doubled(first: int, last: int, factor: int) -> list[int]:
    """Return sizes from the first to the last, each ``factor`` times the one before."""
    sizes = [first]
    while sizes[-1] * factor <= last:
        sizes.append(sizes[-1] * factor)
    return sizes


def figures(node_counts: Sequence[int]) -> Iterator[Figure]:
    """Yield all figures, each made on demand."""
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
        by_connections(pod("dgx-a100:3"), 8),
        Runner("all_to_next", compiled("alltonext", nodes=3, gpus=8, instances=8), "Simple"),
        Runner("send", compiled("alltonext", nodes=24, gpus=1)),
        [*doubled(128 * KIB, 512 * MIB, 8), 1024 * MIB],
        "14.5x at 1 GB, slower below 512 KB",
    )


def rows(figure: Figure) -> Iterator[str]:
    """Yield a line for each size, and the largest gain beside the paper's."""
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
    if figure.name.startswith("Fig. 7"):
        yield from explained(figure, "message_s", "each message held its NIC for", 128 * MIB, 1.2)
    if figure.name == "Fig. 8":
        yield from explained(figure, "step_s", "each step took", 2 * MIB, 1.48)
    yield f"{figure.name:18}at most {best[0]:.2f}x, at {best[1] / MIB:g} MiB; the paper: {figure.paper}"


def gain_of(figure: Figure, size_bytes: int, costs: Costs) -> float:
    """Return the baseline's time over the program's."""
    ours_s, theirs_s = (
        time_s(runner, figure.network, size_bytes, costs)[0] for runner in (figure.ours, figure.theirs)
    )
    return theirs_s / ours_s


def explained(figure: Figure, cost: str, words: str, size_bytes: int, gain: float) -> Iterator[str]:
    """Yield the cost, 0 to 64 us (by bisection), that would explain ``gain``, and all gains then."""
    low_s, high_s = 0.0, 64e-6
    while high_s - low_s > 0.1e-6:
        middle_s = (low_s + high_s) / 2
        enough = gain_of(figure, size_bytes, Costs(**{cost: middle_s})) >= gain
        low_s, high_s = (low_s, middle_s) if enough else (middle_s, high_s)
    yield f"{figure.name:18}{gain:g}x at {size_bytes / MIB:g} MiB if {words} {high_s * 1e6:.1f} us"
    costs = Costs(**{cost: high_s})
    gains = (f"{gain_of(figure, size, costs):.2f}x at {size / MIB:g}" for size in figure.sizes)
    yield f"{figure.name:18}with that, in MiB: {', '.join(gains)}"


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
