"""A folder as after a profile, a synthesis and a benchmark of a cluster in which one host is slow."""

from dataclasses import replace

import numpy as np
from given_profile import profile_of_links
from machine_changes import recorded

from ccctl.artifacts import codec
from exec.benchmark.report import Measurement, Report, Row
from probes.profiling import faults_of, with_faults
from synth import compile as compile_schedule, synthesize
from synth.networks.measured import from_profile


def profile_with_slow_host(hosts=6, ranks_a_host=2, slow=3, times=2.4, seed=7):
    """Links of 5 GB/s inside hosts and 1.1 between them; one host sends ``times`` more slowly."""
    rng = np.random.default_rng(seed)
    host = [f"node{rank // ranks_a_host + 1}" for rank in range(hosts * ranks_a_host)]
    pairs = [(a, b) for a in range(len(host)) for b in range(len(host)) if a != b]
    inside = np.array([host[a] == host[b] for a, b in pairs])
    beta = np.where(inside, 1 / 5e9, 1 / 1.1e9) * rng.uniform(1.0, 1.03, len(pairs))
    sends_slowly = np.array([host[a] == f"node{slow}" for a, _ in pairs]) & ~inside
    beta = np.where(sends_slowly, beta * times, beta)
    profile = profile_of_links(
        host,
        pairs,
        np.where(inside, 2e-6, 25e-6),
        beta,
        betas=(1, 1.02, 1.05, 0.99, 1.01),
        residual=0.01,
        samples=32,
        library="Open MPI v5.0.8",
        seconds=41.0,
        rounds=22,
    )
    return with_faults(profile, faults_of(profile))


def report_beside(profile, sizes):
    """An all_reduce of ours and of the library, with the prediction that both miss."""
    ranks = len(profile.ranks)

    def measured(time_s, size):
        rate = size / time_s / 1e9
        return Measurement(time_s, time_s, 1.3 * time_s, 4, rate, rate * 2 * (ranks - 1) / ranks, 0)

    rows = []
    for size in sizes:
        best_s = 150e-6 + size * 2.6 / 1.1e9
        ours, mpi = measured(1.2 * best_s, size), measured((1.05 if size < 1 << 16 else 2.0) * best_s, size)
        what = ("all_reduce", size, size // 4, "float32", "sum", -1, "forest")
        rows.append(Row(*what, best_s, ours, None, {"mpi": mpi}))
    hosts = tuple(sorted({one.host for one in profile.ranks}))
    return Report(ranks, hosts, "mpi", "Open MPI v5.0.8", 3, 20, tuple(rows))


def fill(folder, samples, sizes=tuple(1 << power for power in range(12, 27, 2))):
    """Write one artifact of each kind into ``folder``, and a file that is none; return the profile."""
    profile = profile_with_slow_host()
    schedule = synthesize(from_profile(profile), "all_reduce", 1 << 22, method="ring").schedule
    report = report_beside(profile, sizes)
    explained = replace(report.rows[-1], breakdown=samples["report"].rows[0].breakdown)
    own = {
        "profile": profile,
        "schedule": schedule,
        "report": replace(report, rows=(*report.rows[:-1], explained)),
        "topology": recorded(),
        "program": compile_schedule(schedule),
    }
    for kind, value in {**samples, **own}.items():
        codec.write(str(folder / f"{kind}.json"), kind, value)
    (folder / "broken.json").write_text('{"schema": "ccctl/profile/1", "body": {"ranks": 7}}')
    (folder / "notes.txt").write_text("the switch of rack 2 was replaced on Monday\n")
    return profile
