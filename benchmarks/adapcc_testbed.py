"""AdapCC's Figures 11 to 13 and 19a, simulated: its strategies on its testbed beside NCCL, MSCCL and Blink.

    python benchmarks/adapcc_testbed.py [FILTER]

The testbed has four hosts of four A100 with a NIC of 100 Gb/s each, and two hosts of four V100 with one of 50
Gb/s. Tensors have 256 MB, and M = 4. A case is written as in the paper: the GPUs of each host. The paper's
text names two cases, all GPUs and all A100. It does not name the other cases of its figures, so these are
chosen here. The paper's gains are the means that its text gives; no bar is read off.

- NCCL: the better of ring and double tree (of an all_to_all: direct sends), in the best of all chunk sizes.
- MSCCL: the algorithms of its repository for several hosts: hierarchical (where hosts have equally many
  GPUs), halving and doubling, all_to_all in two steps.
- Blink: trees inside a host, a ring between the first GPUs of hosts, trees back; one stage after the other,
  in chunks of 8 MB. It has no all_to_all between hosts.
- bound: the largest proven bound over ours. Where NICs are the bottleneck, direct sends already reach the
  bound of an all_to_all.
- one channel: the paper says that NCCL has one channel between hosts, which does not fill a NIC (Sec. VI-D),
  but not how much the channel carries. NCCL's own estimate, 14 GB/s (gc3_figures), is more than either NIC.
  So where the mean gain over NCCL is below the paper's, the last line has the rate of a channel at which the
  mean gain would be the paper's, if all traffic of a host goes through one channel. It also has the gains of
  single cases at this rate.

Fig. 19a is the speed-up over NCCL of an all_reduce of 528 MB, VGG16's gradients, for M = 1 to 8.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from math import inf
from statistics import geometric_mean

from probes.base.errors import UsageError
from synth import Request, synthesize
from synth.bounds.lower_bounds import bounds
from synth.check.schedule import check
from synth.collective import Kind
from synth.errors import NotApplicableError
from synth.methods import adapcc
from synth.network import Link, Network, build
from synth.simulation.schedule import replay

SIZE_BYTES = 256_000_000
VGG16_BYTES = 528_000_000
SUB_COLLECTIVES = 4
TIME_LIMIT_S = 15.0
BLINK_CHUNK_BYTES = 8_000_000
# A bisection of rates ends here: less than the last digit that is printed.
CLOSE_GB_PER_S = 0.05
# GB/s between two GPUs of a host, and of its NIC: of A100, then of V100.
SPEEDS = ((300.0, 12.5), (150.0, 6.25))
# GPUs of each host with A100, then with V100.
CASES = (
    ((4, 4), ()),
    ((4, 4, 4, 4), ()),
    ((4, 4), (4,)),
    ((4, 4), (4, 4)),
    ((2, 2, 4, 4), (4, 4)),
    ((4, 4, 4, 4), (4, 4)),
)
LIBRARIES: dict[str, dict[Kind, tuple[str, ...]]] = {
    "NCCL": {"reduce": ("ring", "tree"), "all_reduce": ("ring", "tree"), "all_to_all": ("direct",)},
    "MSCCL": {
        "reduce": ("hierarchical",),
        "all_reduce": ("hierarchical", "halving_doubling"),
        "all_to_all": ("two_step", "three_step"),
    },
}


@dataclass(frozen=True)
class Figure:
    """One figure, the mean gains that the paper tells of it, and the range of those over NCCL."""

    name: str
    kind: Kind
    paper: dict[str, float]
    span: str


FIGURES = (
    Figure("Fig. 11", "reduce", {"NCCL": 1.17, "MSCCL": 1.19, "Blink": 1.46}, "1.06 to 1.23x"),
    Figure("Fig. 12", "all_reduce", {"NCCL": 1.19, "MSCCL": 1.15, "Blink": 1.49}, "1.05 to 1.29x"),
    Figure("Fig. 13", "all_to_all", {"NCCL": 1.31, "MSCCL": 1.14}, "not said"),
)
Case = tuple[tuple[int, ...], tuple[int, ...]]


def testbed(case: Case = CASES[-1], channel_gb_per_s: float = inf) -> Network:
    """Return the network in which every GPU has a link to every other.

    Links between hosts go through the NICs, which the GPUs of a host share, and carry at most
    ``channel_gb_per_s``.
    """
    hosts = [
        (f"{'av'[kind]}{at}", SPEEDS[kind][0], min(SPEEDS[kind][1], channel_gb_per_s))
        for kind, gpus in enumerate(case)
        for at, count in enumerate(gpus)
        for _ in range(count)
    ]
    links = []
    for src, (here, inside, nic) in enumerate(hosts):
        for dst, (there, _, other_nic) in enumerate(hosts):
            if src != dst and here == there:
                links.append(Link(src, dst, 1e-6, 1e-9 / inside))
            elif src != dst:
                links.append(Link(src, dst, 5e-6, 1e-9 / min(nic, other_nic), (f"{here} out", f"{there} in")))
    return build("AdapCC's testbed", [name for name, _, _ in hosts], links)


def named(case: Case) -> str:
    """Return a case as the paper writes it."""
    kinds = (f"{gpu}:({','.join(map(str, hosts))})" for gpu, hosts in zip("AV", case, strict=True) if hosts)
    return " ".join(kinds)


def made_s(network: Network, kind: Kind, size_bytes: int, methods: tuple[str, ...]) -> float:
    """Return the simulated seconds of the best schedule by these methods; 0 if none applies."""
    found = []
    for method in methods:
        try:
            made = synthesize(Request(network, kind, size_bytes=size_bytes, method=method)).schedule
        except (NotApplicableError, UsageError):
            continue
        assert made.outcome is not None
        found.append(made.outcome.time_s)
    return min(found, default=0.0)


@cache
def nccl_s(case: Case, kind: Kind, size_bytes: int, channel_gb_per_s: float = inf) -> float:
    """Return the simulated seconds of NCCL, with channels of at most ``channel_gb_per_s``."""
    return made_s(testbed(case, channel_gb_per_s), kind, size_bytes, LIBRARIES["NCCL"][kind])


def blink_s(case: Case, kind: Kind) -> float:
    """Return the seconds of Blink's stages, one after the other; 0 for a collective that Blink lacks."""
    if kind == "all_to_all":
        return 0.0
    inside = [
        (kind_of, count) for kind_of, gpus in enumerate(case) for count in dict.fromkeys(gpus) if count > 1
    ]
    alone = [testbed(((count,), ()) if kind_of == 0 else ((), (count,))) for kind_of, count in inside]
    stages = ["reduce", "broadcast"] if kind == "all_reduce" else ["reduce"]
    chunks = SIZE_BYTES // BLINK_CHUNK_BYTES
    total_s = 0.0
    for stage in stages:
        hosts_s = [
            synthesize(
                Request(network, stage, chunk_bytes=BLINK_CHUNK_BYTES, chunks=chunks, method="forest")  # type: ignore[arg-type] # a Kind
            ).schedule.outcome.time_s  # type: ignore[union-attr] # of a proven schedule
            for network in alone
        ]
        total_s += max(hosts_s, default=0.0)
    leaders = testbed(tuple(tuple(1 for _ in gpus) for gpus in case))  # type: ignore[arg-type] # a pair
    return total_s + made_s(leaders, kind, SIZE_BYTES, ("ring", "tree"))


def ours(network: Network, kind: Kind, size_bytes: int, sub_collectives: int) -> tuple[float, float, float]:
    """Return the seconds of (strategy, bound, solving); exit if the schedule is wrong."""
    begun_s = time.perf_counter()
    schedule, _ = adapcc.choose(
        network, kind, size_bytes, time_limit_s=TIME_LIMIT_S, sub_collectives=sub_collectives
    )
    taken_s = time.perf_counter() - begun_s
    if findings := check(schedule):
        sys.exit(f"{kind}: {findings[0]}")
    proven = bounds(network, schedule.collective, schedule.chunk_bytes, fluid=True)
    return replay(schedule).time_s, max(bound.time_s for bound in proven), taken_s


def rows(figure: Figure) -> Iterator[str]:
    """Yield a line for each case, and the geometric means beside the paper's."""
    gains: dict[str, list[float]] = {}
    found_s: dict[Case, float] = {}
    for case in CASES:
        network = testbed(case)
        ours_s, bound_s, taken_s = ours(network, figure.kind, SIZE_BYTES, SUB_COLLECTIVES)
        found_s[case] = ours_s
        peers = {
            "NCCL": nccl_s(case, figure.kind, SIZE_BYTES),
            "MSCCL": made_s(network, figure.kind, SIZE_BYTES, LIBRARIES["MSCCL"][figure.kind]),
            "Blink": blink_s(case, figure.kind),
        }
        told = ""
        for name, peer_s in peers.items():
            if peer_s:
                gains.setdefault(name, []).append(peer_s / ours_s)
                told += f"   {name} {SIZE_BYTES / peer_s * 1e-9:6.2f} GB/s {peer_s / ours_s:5.2f}x"
        yield (
            f"{figure.name}  {figure.kind:11}{named(case):24}{SIZE_BYTES / ours_s * 1e-9:7.2f} GB/s "
            f"{bound_s / ours_s:6.1%} of bound {taken_s:6.1f} s{told}"
        )
    for name, found in gains.items():
        mean, paper = geometric_mean(found), figure.paper[name]
        yield f"{figure.name}  mean over {name}: {mean:.2f}x (paper {paper:.2f}x)"
    if geometric_mean(gains["NCCL"]) < figure.paper["NCCL"]:
        yield one_channel(figure, found_s)


def one_channel(figure: Figure, ours_s: Mapping[Case, float]) -> str:
    """Return the rate of a channel of NCCL at which the mean gain is the paper's, and all gains."""

    def gains(rate_gb_per_s: float) -> list[float]:
        return [
            nccl_s(case, figure.kind, SIZE_BYTES, rate_gb_per_s) / time_s for case, time_s in ours_s.items()
        ]

    low, high = 0.0, max(nic for _, nic in SPEEDS)
    while high - low > CLOSE_GB_PER_S:
        middle = (low + high) / 2
        low, high = (middle, high) if geometric_mean(gains(middle)) > figure.paper["NCCL"] else (low, middle)
    found = gains(high)
    return (
        f"{figure.name}  {figure.paper['NCCL']:.2f}x in the mean if a channel of NCCL carries {high:.1f} "
        f"GB/s; then {min(found):.2f} to {max(found):.2f}x (paper {figure.span})"
    )


def parallel() -> Iterator[str]:
    """Yield the lines of Fig. 19a: M sub-collectives on the whole testbed."""
    network = testbed()
    theirs_s = nccl_s(CASES[-1], "all_reduce", VGG16_BYTES)
    for count in (1, 2, 4, 8):
        ours_s, bound_s, taken_s = ours(network, "all_reduce", VGG16_BYTES, count)
        yield (
            f"Fig. 19a  M = {count}   {theirs_s / ours_s:5.2f}x NCCL {bound_s / ours_s:6.1%} of bound "
            f"{taken_s:6.1f} s"
        )


def main(wanted: str = "") -> None:
    """Print the figures whose name or collective contains ``wanted``."""
    for figure in FIGURES:
        if wanted in f"{figure.name} {figure.kind}":
            for line in rows(figure):
                print(line, flush=True)
    if wanted in "Fig. 19a":
        for line in parallel():
            print(line, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:2])
