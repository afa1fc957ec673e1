"""Profiles and health of small clusters as measurements give them: with noise, and with faults of choice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from given_profile import profile_of_links

from ccctl.acceptance import AcceptanceFolder, measured_in
from exec.acceptance import Stage, Terms, bought, judge, read_plan
from exec.benchmark import Measurement, Report, Row
from probes.health import ClusterHealth, HostHealth
from probes.link_costs import Profile
from probes.profiling import RawSamples, raw_samples
from probes.profiling.assemble import Fits
from probes.sampling import Samples, Trains

ALPHA_S = 20e-6
PLAN = b'racks = [["n0", "n1", "n2"], ["n3", "n4", "n5"]]\n'


def measured_profile(
    hosts: int,
    *,
    rate_bytes_per_s: float = 11.5e9,
    slow_senders: Mapping[int, float] | None = None,
    slow_receivers: Mapping[int, float] | None = None,
    seed: int = 0,
) -> Profile:
    """Return a profile of hosts n0, n1 …, one rank each, whose rates vary by a per cent."""
    generator = np.random.default_rng(seed)
    pairs = [(src, dst) for src in range(hosts) for dst in range(hosts) if src != dst]
    level = np.array(
        [min((slow_senders or {}).get(src, 1.0), (slow_receivers or {}).get(dst, 1.0)) for src, dst in pairs]
    )
    beta = 1 / (rate_bytes_per_s * level * np.exp(-np.abs(generator.normal(0, 0.01, len(pairs)))))
    alpha = np.full(len(pairs), ALPHA_S) * (1 + np.abs(generator.normal(0, 0.01, len(pairs))))
    return profile_of_links(
        [f"n{rank}" for rank in range(hosts)],
        pairs,
        alpha,
        beta,
        alphas=(1, 1.02, 1.1),
        betas=(1, 1.01, 1.03, 0.995, 1.01),
        residual=0.01,
        samples=5,
        library="Open MPI 5.0",
        seconds=3.0,
    )


def with_samples(profile: Profile, seed: int = 0) -> tuple[Profile, RawSamples]:
    """Return a profile with raw samples of its links, and with the costs that fit them."""
    generator = np.random.default_rng(seed)
    samples, links = Samples(), profile.links
    for row, pair in enumerate(zip(links.src.tolist(), links.dst.tolist(), strict=True)):
        alpha, beta = float(links.alpha_s[row]), float(links.beta_s_per_byte[row])
        late = 1 + np.abs(generator.normal(0, 0.02, 9))
        samples.round_trips_s[pair] = (2 * alpha * late).tolist()
        seconds = {size: (beta * size * late).tolist() for size in (1 << 17, 1 << 18, 1 << 19)}
        samples.trains[pair] = Trains(seconds, (1.1 * beta * late).tolist())
    return replace(profile, links=replace(links, **Fits(samples, ()).costs())), raw_samples([samples])


def measured_report(ranks: int) -> Report:
    """Return a report of one all_reduce on all ranks, with right results."""
    time = Measurement(1e-3, 1e-3, 1.1e-3, 0, 10.0, 18.0, 0)
    row = Row("all_reduce", 1 << 24, 1 << 22, "float32", "sum", -1, "ring", None, time, None, {})
    return Report(ranks, (), "mpi", "Open MPI 5.0", 3, 10, (row,))


def accept_six_hosts(folder: Path) -> AcceptanceFolder:
    """Write an acceptance of six hosts, one of which sends at half its rate, with a plan and evidence."""
    folder.mkdir(exist_ok=True)
    found = AcceptanceFolder(folder)
    found.write("health", ClusterHealth(tuple(host_health(f"n{at}") for at in range(6))))
    profile, samples = with_samples(measured_profile(6, slow_senders={2: 0.5}))
    found.write("samples", samples)
    found.write("profile", profile)
    found.keep("plan.toml", PLAN)
    found.keep("evidence/0-nccl.log", b"n1:7:7 [0] NCCL INFO NCCL version 2.21.5+cuda12.4\n")
    stages = tuple(Stage(name, 1.0, done=True) for name in ("hosts", "links", "whole"))
    terms = Terms(bought("100Gbit/s"), read_plan(PLAN, "plan.toml"), 1, "all_reduce", 1 << 26)
    found.write_certificate(judge(measured_in(found), terms, stages))
    return found


def host_health(name: str, **alike: str) -> HostHealth:
    """Return the health of a host with these facts."""
    return HostHealth(name, alike={"kernel": "6.8.0", **alike})
