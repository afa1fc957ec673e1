"""The minutes, processor time and memory of an acceptance of 1,024 hosts; prints a table.

    python benchmarks/accept_scale.py [--hosts 1024] [--links all,quick]

The minutes of the links come from the rounds that `ccctl accept` plans, with the cost of a round from
docs/explanation/results/profiling-at-scale.md. The minutes of the collectives are, for each repetition of
each library, those of the best simple algorithm in the model of the network. The start of the ranks is not
counted. The rest runs for real. The health of this machine stands for the health of each host and goes up the
tree of hosts. A separate process computes the verdict from a simulated profile, in which one host sends at 60
% of the rate of the others and one has another kernel. The exit status is 1 if the verdict names anything
else.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from profile_scale import FULL, LINKS, QUICK, seconds, wave_seconds

from exec.acceptance import Measured, Terms, collective_time_s, judge
from exec.records import encode
from probes.base import floats, ints
from probes.health import ClusterHealth, HealthGroups, HostHealth, cluster_health, group_of, merged_groups
from probes.health.host import read_host
from probes.link_costs import Links, Profile, ProfiledRank, SharedPort
from probes.live import merged_up_a_tree
from probes.sampling import doubling_strides, strides
from synth.collective import Kind
from synth.networks import from_profile

NOISE, DISTURBED, DISTURBANCE, SAMPLES = 0.02, 0.05, 0.3, 6
SLOW, LEVEL, OLD, OLD_KERNEL = 3, 0.6, 5, "5.15.0-old"
# The wait between two readings of counters (`probes.health.task`), and the repetitions of `ccctl accept`:
# those that count, those before, and two libraries.
WAIT_S, REPETITIONS = 5.0, 2 * (10 + 2)
SIZE_BYTES = 1 << 30
EFFORTS = {"all": (strides, FULL), "quick": (doubling_strides, QUICK)}


@dataclass
class Mail:
    """Messages between ranks that run in turn, the last first, and the bytes that each receives."""

    boxes: dict[tuple[int, int], Any] = field(default_factory=dict)
    received: Counter[int] = field(default_factory=Counter)


@dataclass(frozen=True)
class Post:
    """The communicator of one rank."""

    mail: Mail
    rank: int

    def Get_rank(self) -> int:  # noqa: N802 - MPI's own name
        return self.rank

    def send(self, value: Any, dest: int, tag: int = 0) -> None:
        self.mail.boxes[self.rank, dest] = value

    def recv(self, source: int, tag: int = 0) -> Any:
        value = self.mail.boxes.pop((source, self.rank))
        self.mail.received[self.rank] += len(encode(value))
        return value


def gathered(hosts: Sequence[HostHealth]) -> tuple[ClusterHealth, Mail, float]:
    """Return the health of all hosts by the tree, the messages, and the processor seconds of rank 0."""
    mail, ranks = Mail(), list(range(len(hosts)))
    found: HealthGroups | None = None
    took_s = 0.0
    for rank in reversed(ranks):
        began_s = time.process_time()
        found = merged_up_a_tree(Post(mail, rank), ranks, group_of(rank, hosts[rank]), merged_groups)
        took_s = time.process_time() - began_s
    assert found is not None
    return cluster_health(found), mail, took_s


def profiled(hosts: Sequence[str], chosen: Sequence[int], alpha_s: float, beta: float) -> Profile:
    """Return the simulated profile of the links of these strides."""
    rng, count = np.random.default_rng(len(hosts)), len(hosts)
    src = np.tile(np.arange(count), len(chosen))
    dst = (src + np.repeat(np.array(chosen), count)) % count
    shape = (len(src), SAMPLES)
    late = np.exp(np.abs(rng.normal(0, NOISE, shape)))
    late *= 1 + rng.exponential(DISTURBANCE, shape) * (rng.random(shape) < DISTURBED)
    late *= beta / np.where(src == SLOW, LEVEL, 1.0)[:, None]
    best, middle, p90 = late.min(axis=1), np.median(late, axis=1), np.quantile(late, 0.9, axis=1)
    alpha = alpha_s * np.exp(np.abs(rng.normal(0, NOISE, len(src))))
    links = Links(
        ints(src), ints(dst), floats(alpha), floats(1.05 * alpha), floats(1.3 * alpha), floats(best),
        floats(middle), floats(p90), floats(best * (1 - NOISE)), floats(best * (1 + NOISE)),
        floats(np.zeros(len(src))), ints(np.full(len(src), SAMPLES)), ("",) * len(src),
    )  # fmt: skip
    ranks = tuple(ProfiledRank(rank, host, "process") for rank, host in enumerate(hosts))
    # A rank sends to one other at a time, and receives from one.
    ports = tuple(
        SharedPort(f"rank {rank} {way}", tuple(np.flatnonzero(ends == rank).tolist()), "declared")
        for way, ends in (("egress", src), ("ingress", dst))
        for rank in range(count)
    )
    return Profile(ranks, links, ports, "mpi", "simulated", 1.0, len(chosen))


def judged(hosts: list[str], effort: str, link: str, health: ClusterHealth, result: Any) -> None:
    """Put the named culprits, the processor seconds, the memory, and the seconds of collectives."""
    profile = profiled(hosts, EFFORTS[effort][0](len(hosts)), *LINKS[link])
    base_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began_s = time.process_time()
    found = judge(Measured(health=health, profile=profile), Terms(size_bytes=SIZE_BYTES))
    took_s = time.process_time() - began_s
    more_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - base_kib
    network = from_profile(profile, "the measured network")
    # Only all links together carry an all_to_all directly.
    kinds: tuple[Kind, ...] = ("all_reduce", "all_to_all") if effort == "all" else ("all_reduce",)
    whole_s = sum(REPETITIONS * collective_time_s(network, kind, SIZE_BYTES) for kind in kinds)
    named = [(one.kind, one.hosts) for one in found.culprits]
    result.put((named, took_s, more_kib / 1024, whole_s, found.reason))


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--hosts", type=int, default=1024)
    parser.add_argument("--links", default="quick,all", help="which links: quick, all")
    asked = parser.parse_args()
    names = [f"gpu{at + 1:04d}" for at in range(asked.hosts)]
    here = read_host(names[0])
    every = [replace(here, host=name) for name in names]
    every[OLD] = replace(every[OLD], alike={**here.alike, "kernel": OLD_KERNEL})
    health, mail, root_s = gathered(every)
    one, most = len(encode(group_of(0, here))), max(mail.received.values())
    print(f"hosts: one describes itself in {one:,} bytes; gathered on one host: {one * len(names):,}")
    print(f"hosts: by the tree, no host receives more than {most:,} bytes, rank 0 {mail.received[0]:,}")
    print(f"hosts: {len(health.hosts)} of {len(names)} described; rank 0 merges in {root_s:.3f} processor s")
    print("| links | network | hosts, min | links, min | collectives, min | judge, processor s | MiB |")
    print("|---|---|---:|---:|---:|---:|---:|")
    wrong = 0
    expected = [("egress", (names[SLOW],)), ("differs", (names[OLD],))]
    for effort in asked.links.split(","):
        choose, dose = EFFORTS[effort]
        for link, (alpha_s, beta) in LINKS.items():
            cost = wave_seconds(len(names), dose, alpha_s, beta)
            links_s = seconds(len(names), choose(len(names)), 2, cost)
            context = multiprocessing.get_context("spawn")
            result = context.Queue()
            worker = context.Process(target=judged, args=(names, effort, link, health, result))
            worker.start()
            named, took_s, more_mib, whole_s, reason = result.get()
            worker.join()
            minutes = " | ".join(f"{value / 60:.2g}" for value in (WAIT_S, links_s, whole_s))
            print(f"| {effort} | {link} | {minutes} | {took_s:.1f} | {more_mib:.0f} |", flush=True)
            if named != expected:
                print(f"  named {named}: {reason}")
                wrong += 1
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
