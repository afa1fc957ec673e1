"""AdapCC's testbed: its strategies against the best ring and the best double tree, all simulated.

    python benchmarks/adapcc_testbed.py [FILTER]

Four hosts of four A100 with a NIC of 100 Gb/s each and two hosts of four V100 with one of 50 Gb/s; 256 MB,
four sub-collectives. The peers take the best of all chunk sizes that the portfolio would try; where they
do not serve a collective (all_to_all), the peer is ``direct``, which every library sends. The paper reports
1.05 to 1.29 times NCCL; the slow NICs alone hold a ring to 6.25 GB/s, and the sum of all NICs allows an
all_reduce 1.67 times that.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator

from synth.bounds.bounds import bounds
from synth.check.schedule import check
from synth.collective import Kind
from synth.errors import NotApplicableError
from synth.methods import adapcc
from synth.network import Link, Network, build
from synth.portfolio.synthesize import Request, synthesize
from synth.simulation.schedule import replay

SIZE_BYTES = 256_000_000
SUB_COLLECTIVES = 4
TIME_LIMIT_S = 55.0
# (GPUs of each host, GB/s between two of them, GB/s of its NIC, how many such hosts)
HOSTS = ((4, 300.0, 12.5, 4), (4, 150.0, 6.25, 2))
KINDS: tuple[tuple[Kind, tuple[str, ...]], ...] = (
    ("reduce", ("ring", "tree")),
    ("all_reduce", ("ring", "tree")),
    ("all_to_all", ("direct",)),
)


def testbed() -> Network:
    """Every GPU has a link to every other; between hosts it goes through the NICs, which their GPUs share."""
    hosts = [
        (f"{'av'[kind]}{at}", inside, nic)
        for kind, (gpus, inside, nic, count) in enumerate(HOSTS)
        for at in range(count)
        for _ in range(gpus)
    ]
    links = []
    for src, (here, inside, nic) in enumerate(hosts):
        for dst, (there, _, other_nic) in enumerate(hosts):
            if src != dst and here == there:
                links.append(Link(src, dst, 1e-6, 1e-9 / inside))
            elif src != dst:
                links.append(Link(src, dst, 5e-6, 1e-9 / min(nic, other_nic), (f"{here} out", f"{there} in")))
    return build("AdapCC's testbed", [name for name, _, _ in hosts], links)


def cpu_seconds() -> float:
    """Of this process and the solvers it has waited for."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def peers(network: Network, kind: Kind, methods: tuple[str, ...]) -> Iterator[tuple[str, float]]:
    """(name, simulated seconds) of the best that each method makes of it."""
    for method in methods:
        try:
            found = synthesize(Request(network, kind, size_bytes=SIZE_BYTES, method=method))
        except NotApplicableError:
            continue
        assert found.schedule.outcome is not None
        yield method, found.schedule.outcome.time_s


def main(wanted: str = "") -> None:
    """Print a row for each collective whose name contains ``wanted``."""
    network = testbed()
    print(
        f"{'collective':12}{'adapcc':>10}{'bound':>10}{'of it':>8}{'gap':>8}{'solve':>9}{'CPU':>9}   against"
    )
    for kind, methods in KINDS:
        if wanted not in kind:
            continue
        begun_s, cpu_s = time.perf_counter(), cpu_seconds()
        schedule, planned = adapcc.choose(
            network, kind, SIZE_BYTES, time_limit_s=TIME_LIMIT_S, sub_collectives=SUB_COLLECTIVES
        )
        taken_s, cpu_s = time.perf_counter() - begun_s, cpu_seconds() - cpu_s
        if findings := check(schedule):
            sys.exit(f"{kind}: {findings[0]}")
        time_s = replay(schedule).time_s
        bound_s = max(
            bound.time_s for bound in bounds(network, schedule.collective, schedule.chunk_bytes, fluid=True)
        )
        print(
            f"{kind:12}{time_s * 1e3:8.2f}ms{bound_s * 1e3:8.2f}ms{bound_s / time_s:8.1%}{planned.gap:8.1%}"
            f"{taken_s:8.1f}s{cpu_s:8.1f}s",
            *(
                f"  {name} {peer_s * 1e3:.2f} ms: {peer_s / time_s:.2f}x"
                for name, peer_s in peers(network, kind, methods)
            ),
            flush=True,
        )


if __name__ == "__main__":
    main(*sys.argv[1:2])
