"""Makes MSCCL++ plans of schedules on many networks, judges them and runs them in random orders.

usage: python benchmarks/plans_of_programs.py [RUNS] [NETWORK ...]

Each network stands as it is and without one link drawn by chance; hosts are those of the network, one for
every two ranks, and one for all. A row tells the plan's size, what the judge finds (must be 0) and how many
of RUNS (default 2) runs of two launches were right. The exit status is 1 where one was not.
"""

import random
import sys
import time

from exec.runtimes.mscclpp import run_plan
from synth import compile as compiled, family, synthesize
from synth.mscclpp import examine_plan, plan_of
from synth.network import Network
from synth.networks.dgx import is_pod, pod
from synth.networks.failures import Failures, without

_KINDS = ("all_gather", "reduce_scatter", "all_reduce", "all_to_all")
_NETWORKS = ("ring:4", "fc:5", "fc_switch:4x2", "torus:2x4", "fc_switch:8x3", "dgx-a100:2")


def main(runs: int, networks: list[str]) -> int:
    """Return one row a plan; 1 where one was rejected, or went wrong."""
    bad = 0
    print(f"{'network':>24} {'collective':>14} hosts operations blocks findings cautions right  judge s")
    for spec in networks:
        whole = pod(spec) if is_pod(spec) else family(spec, [1e-6], [10e9])
        for network in (whole, broken(whole)):
            for kind in _KINDS:
                program = compiled(synthesize(network, kind, chunk_bytes=1 << 16, chunks=1).schedule)
                for hosts in hosts_of(network):
                    plan = plan_of(program, hosts)
                    begin = time.perf_counter()
                    verdict = examine_plan(plan)
                    judged_s = time.perf_counter() - begin
                    right = sum(run_plan(plan, seed, 2).right for seed in range(runs))
                    bad += bool(verdict.findings) or right < runs
                    print(
                        f"{network.name[:24]:>24} {kind:>14} {len(set(hosts)):5} {plan.operations:10} "
                        f"{plan.threadblocks_max:6} {len(verdict.findings):8} {len(verdict.cautions):8} "
                        f"{right:5} {judged_s:8.1f}",
                        flush=True,
                    )
    print(f"{bad} plans rejected or wrong")
    return 1 if bad else 0


def broken(network: Network) -> Network:
    """Return the network without one of its links."""
    link = random.Random(network.name).randrange(network.links)
    failed = (int(network.src[link]), int(network.dst[link]))
    return without(network, Failures(links=(failed,)))


def hosts_of(network: Network) -> list[list[int]]:
    """Return the host of each rank: the network's, one for every two, one for all; each of them once."""
    ranks = range(network.ranks)
    found: list[list[int]] = [network.host_of.tolist(), [rank // 2 for rank in ranks], [0 for _ in ranks]]
    return [hosts for at, hosts in enumerate(found) if hosts not in found[:at]]


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    sys.exit(main(count, sys.argv[2:] or list(_NETWORKS)))
